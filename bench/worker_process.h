// Workers of the benchmark, each a process of its own as in real training, and how they are told what to do: lines on
// their standard input, an answer a line on their standard output.
#ifndef PARAMD_BENCH_WORKER_PROCESS_H_
#define PARAMD_BENCH_WORKER_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/child.h"
#include "bench/peer.h"
#include "bench/transport.h"

namespace paramd::bench {

// What a worker did in one round.
struct Ran {
  int64_t start_ns = 0;  // of the monotonic clock, which processes share
  int64_t end_ns = 0;
  std::vector<double> latencies_us;  // of each operation
};

// Thread-compatible.
class WorkerProcess {
 public:
  // The worker's buffers hold `bytes`.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const Programs& programs, const std::string& name,
                                                              size_t bytes);

  // Connects a peer, to be known as `key`.
  absl::Status Connect(const std::string& key, const PeerAddress& address);
  absl::Status Disconnect(const std::string& key);

  // Begins a round: the operation again and again for the time of `slice`, and at least `min_operations` times.
  absl::Status Begin(const std::string& key, Operation operation, absl::Duration slice, int min_operations);
  // Waits for its end.
  absl::StatusOr<Ran> End();

 private:
  WorkerProcess(std::unique_ptr<Child> child, std::string name);

  absl::StatusOr<std::string> Answer();

  const std::unique_ptr<Child> child_;
  const std::string name_;
};

// The worker's side: serves until its input ends.
absl::Status ServeWorker(size_t bytes, const std::string& algorithm);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_WORKER_PROCESS_H_
