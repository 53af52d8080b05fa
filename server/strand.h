// Work of one model that takes long: one thing at a time, in the order it came, on the threads of those who bring it.
#ifndef PARAMD_SERVER_STRAND_H_
#define PARAMD_SERVER_STRAND_H_

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe. Nobody ever waits for the strand: who finds it busy leaves its task to whoever runs there.
class Strand {
 public:
  // Runs `task` before it returns if nothing else is running, and then what has been left here meanwhile.
  template <typename Task>
  void Run(Task&& task) {
    {
      MutexLock lock(&mutex_);
      if (running_) {
        queue_.emplace_back(std::forward<Task>(task));
        return;
      }
      running_ = true;
    }
    std::forward<Task>(task)();
    RunQueued();
  }

 private:
  void RunQueued() {
    while (true) {
      absl::AnyInvocable<void()> next;
      {
        MutexLock lock(&mutex_);
        if (queue_.empty()) {
          running_ = false;
          return;
        }
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      next();
    }
  }

  Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STRAND_H_
