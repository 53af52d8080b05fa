// What a benchmark's worker does to the thing that is measured: paramd, or a baseline.
#ifndef PARAMD_BENCH_PEER_H_
#define PARAMD_BENCH_PEER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace paramd::bench {

enum class Operation { kPull, kCommit, kExchange };

inline constexpr Operation kOperations[] = {Operation::kPull, Operation::kCommit, Operation::kExchange};

inline std::string Name(Operation operation) {
  return operation == Operation::kPull ? "pull" : operation == Operation::kCommit ? "commit" : "exchange";
}

inline bool Pulls(Operation operation) { return operation != Operation::kCommit; }
inline bool Commits(Operation operation) { return operation != Operation::kPull; }

// What a worker connects to. `kind`: memcpy, memcpy-fresh, socket, tls, unary, one of those that MakeWorkerOptions
// knows, or waiting, a paramd worker that only waits.
struct PeerAddress {
  std::string kind;
  std::string address;  // "-" for none
};

// The memory of one worker, which all its peers share: of equal length.
struct Buffers {
  absl::Span<const float> update;  // to commit
  absl::Span<float> center;        // to pull into
};

// Thread-compatible.
class Peer {
 public:
  virtual ~Peer() = default;

  // Does the operation once, over all bytes of the buffers, and returns when it is done.
  virtual absl::Status Run(Operation operation) = 0;
};

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_PEER_H_
