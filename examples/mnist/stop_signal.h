// SIGINT and SIGTERM as a call on a thread, where locks and everything else are allowed.
#ifndef PARAMD_EXAMPLES_MNIST_STOP_SIGNAL_H_
#define PARAMD_EXAMPLES_MNIST_STOP_SIGNAL_H_

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sync/mutex.h"

namespace paramd {

// Make one in main before any other thread: threads started earlier would still die of the signals. On the first
// signal it calls the handler, if there is one, and then gives the process `grace` to end by itself; after that, on a
// second signal, or without a handler it ends the process with exit code 1. Thread-safe.
class StopSignal {
 public:
  explicit StopSignal(absl::Duration grace);
  ~StopSignal();

  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // What to call, null: nothing. Waits for a call of the one before to end.
  void SetHandler(std::function<void()> handler);

 private:
  void Run();

  const absl::Duration grace_;
  std::atomic<bool> done_ = false;
  Mutex mutex_;
  std::function<void()> handler_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_STOP_SIGNAL_H_
