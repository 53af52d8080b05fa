// A paramd worker as a peer.
#ifndef PARAMD_BENCH_PARAMD_PEER_H_
#define PARAMD_BENCH_PARAMD_PEER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/peer.h"

namespace paramd::bench {

// Joins the benchmark's model as `worker`, and creates and initializes it first if nobody did.
absl::StatusOr<std::unique_ptr<Peer>> ConnectParamdPeer(const std::string& address, const std::string& algorithm,
                                                        const std::string& worker, Buffers buffers);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_PARAMD_PEER_H_
