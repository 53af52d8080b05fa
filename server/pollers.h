// The threads that serve a completion queue.
#ifndef PARAMD_SERVER_POLLERS_H_
#define PARAMD_SERVER_POLLERS_H_

#include <grpcpp/grpcpp.h>

#include <thread>
#include <vector>

#include "sync/mutex.h"

namespace paramd {

// One thread polls, and handles what comes. gRPC would let several poll, but then every event wakes another of them to
// take over the polling, and a small exchange takes half as long again. Instead, a handler that is about to compute for
// long steps aside, and another thread polls from then on. Thread-safe.
class Pollers {
 public:
  // The queue's tags are Events.
  Pollers(grpc::ServerCompletionQueue* queue, int threads);
  // Returns when the queue has been shut down and is empty.
  ~Pollers();

  // Called by whatever is about to take longer than a thread takes to wake up (tens of microseconds). Does nothing on
  // a thread that does not poll.
  static void StepAside();

 private:
  void Run();

  grpc::ServerCompletionQueue* const queue_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar changed_;
  bool polling_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_POLLERS_H_
