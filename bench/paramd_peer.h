// paramd workers as peers.
#ifndef PARAMD_BENCH_PARAMD_PEER_H_
#define PARAMD_BENCH_PARAMD_PEER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/peer.h"
#include "client/worker.h"

namespace paramd::bench {

// How a worker joins the benchmark's model, and creates it first if nobody did. `kind`: grpc, grpc-tls (the
// authority is in the file that BENCH_TLS_CA names), grpc-f16, grpc-bf16, shm or shm-inplace; INVALID_ARGUMENT for
// another one.
absl::StatusOr<WorkerOptions> MakeWorkerOptions(const std::string& kind, const std::string& address,
                                                const std::string& algorithm, const std::string& worker, size_t floats);

// Joins as `worker`, and initializes the model if nobody did. shm-inplace commits from and pulls into the worker's own
// buffers, not those given.
absl::StatusOr<std::unique_ptr<Peer>> ConnectParamdPeer(const std::string& kind, const std::string& address,
                                                        const std::string& algorithm, const std::string& worker,
                                                        Buffers buffers);

// Joins another model, which nobody ever initializes, and waits there in a pull, on a thread of its own, until it is
// destroyed. Runs nothing.
absl::StatusOr<std::unique_ptr<Peer>> ConnectWaitingPeer(const std::string& address, const std::string& worker,
                                                         Buffers buffers);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_PARAMD_PEER_H_
