// The limit of the socket: a server that does a parameter server's work on a raw stream socket, without a protocol,
// checks, versions or isolation. A pull sends the center, a commit is received and added to it, an exchange does both
// at once: each piece goes back as soon as it is added.
#ifndef PARAMD_BENCH_BASELINE_SOCKET_H_
#define PARAMD_BENCH_BASELINE_SOCKET_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/peer.h"

namespace paramd::bench {

// Serves until the process ends: a thread a connection. `listen` is "tcp" (loopback, any port) or unix:PATH. Prints
// "listens on ADDRESS" on stdout when it does. Returns only on an error.
absl::Status ServeSocket(const std::string& listen, size_t bytes);

// `address` as the server printed it.
absl::StatusOr<std::unique_ptr<Peer>> ConnectSocketPeer(const std::string& address, Buffers buffers);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_BASELINE_SOCKET_H_
