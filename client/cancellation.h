// What ends calls before they are done. Internal to the client.
#ifndef PARAMD_CLIENT_CANCELLATION_H_
#define PARAMD_CLIENT_CANCELLATION_H_

#include <functional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// Ends what is under way and what comes later: until Reset, or for good. Thread-safe.
class Cancellation {
 public:
  explicit Cancellation(const Clock* clock = Clock::Steady()) : clock_(clock) {}
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // With CANCELLED, until Reset.
  void Cancel();
  void Reset();

  // With `why`, for good; the first one counts.
  void End(const absl::Status& why);

  // What End was given, or OK.
  absl::Status ended() const;

  // OK, or what calls return now.
  absl::Status status() const;

  // Waits until then, unless it is cancelled; returns status().
  absl::Status WaitUntil(absl::Time deadline);

  // While one lives, `interrupt` is called when that happens, or at once if it already has. Under a lock: it must be
  // short and leave this class alone.
  class Interrupt {
   public:
    Interrupt(Cancellation* cancellation, std::function<void()> interrupt);
    ~Interrupt();
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

   private:
    friend class Cancellation;
    Cancellation* const cancellation_;
    const std::function<void()> interrupt_;
  };

 private:
  void SetLocked(absl::Status* status, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const absl::Status& StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::set<Interrupt*> interrupts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_CANCELLATION_H_
