// Time as both sides see it: steady, and replaceable in tests.
#ifndef PARAMD_SYNC_CLOCK_H_
#define PARAMD_SYNC_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Never goes back. Only differences mean something.
  virtual absl::Time Now() const = 0;

  // Waits for `changed`, until `deadline` at the longest. As CondVar's, in a loop that tests the condition.
  virtual void Wait(CondVar* changed, Mutex* mutex, absl::Time deadline) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    changed->WaitWithTimeout(mutex, deadline - Now());
  }

  static const Clock* Steady();
};

}  // namespace paramd

#endif  // PARAMD_SYNC_CLOCK_H_
