// The limit of TLS: what baseline_socket.h does, through OpenSSL over loopback.
#ifndef PARAMD_BENCH_BASELINE_TLS_H_
#define PARAMD_BENCH_BASELINE_TLS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/peer.h"

namespace paramd::bench {

// As ServeSocket, on loopback, with a certificate of its own that nobody checks.
absl::Status ServeTls(size_t bytes);

absl::StatusOr<std::unique_ptr<Peer>> ConnectTlsPeer(const std::string& address, Buffers buffers);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_BASELINE_TLS_H_
