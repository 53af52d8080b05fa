// Work of one model that takes long: one thing at a time, in the order it came, on the threads of those who bring it.
#ifndef PARAMD_SERVER_STRAND_H_
#define PARAMD_SERVER_STRAND_H_

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe. Nobody ever waits for the strand: who finds it busy leaves its task to whoever runs there. A task that
// throws ends the turn of who runs it; what was left there then goes with the next turn.
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
    Turn turn(this);
    std::forward<Task>(task)();
    while (auto next = turn.Next()) next();
  }

 private:
  // Of the thread that runs.
  class Turn {
   public:
    explicit Turn(Strand* strand) : strand_(strand) {}
    ~Turn() {
      if (strand_ == nullptr) return;
      MutexLock lock(&strand_->mutex_);
      strand_->running_ = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // The next task that was left here; null ends the turn.
    absl::AnyInvocable<void()> Next() {
      MutexLock lock(&strand_->mutex_);
      if (strand_->queue_.empty()) {
        strand_->running_ = false;
        strand_ = nullptr;
        return nullptr;
      }
      absl::AnyInvocable<void()> next = std::move(strand_->queue_.front());
      strand_->queue_.pop_front();
      return next;
    }

   private:
    Strand* strand_;
  };

  Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STRAND_H_
