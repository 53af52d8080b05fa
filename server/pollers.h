// The threads that serve a queue of events.
#ifndef PARAMD_SERVER_POLLERS_H_
#define PARAMD_SERVER_POLLERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/event.h"
#include "sync/mutex.h"

namespace paramd {

// One thread polls, and handles what comes. gRPC would let several poll, but then every event wakes another of them to
// take over the polling, and a small exchange takes half as long again. Instead, a handler that is about to compute for
// long steps aside, and another thread polls from then on: one that is idle, else one more, which stays for the next
// time. A handler that turns out to take long without having said so is relieved in the same way. Thread-safe.
class Pollers {
 public:
  // Waits for the next event; false: there will be none.
  using Next = std::function<bool(Event** event, bool* ok)>;

  // So many threads to begin with, and at most kMaxThreads, or `threads` if those are more.
  Pollers(Next next, int threads);
  // Returns when `next` has returned false and all handlers have ended.
  ~Pollers();

  // Called by whatever is about to take longer than a thread takes to wake up (tens of microseconds). Does nothing on
  // a thread that does not poll.
  static void StepAside();

  // Handlers that take long at the same time; with more of them nobody polls.
  static constexpr size_t kMaxThreads = 256;

 private:
  void Run();
  // Polls until another thread does; false if there will be no more events.
  bool Poll();
  // To be called when event_ was taken from whoever polled.
  void HandOver();
  void Watch();

  const Next next_;
  const size_t max_threads_;

  // Number of the event being handled; 0: none is, or its handler polls no more. Whoever changes a number to 0, the
  // handler at its end or else who takes the polling from it, decides who polls next.
  std::atomic<uint64_t> event_{0};
  uint64_t last_event_ = 0;  // of whoever polls

  Mutex mutex_;
  CondVar changed_;
  CondVar over_changed_;
  bool polling_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);

  std::thread watch_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_POLLERS_H_
