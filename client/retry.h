// When a call that failed is tried again. Internal to the client.
#ifndef PARAMD_CLIENT_RETRY_H_
#define PARAMD_CLIENT_RETRY_H_

#include <optional>

#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sync/clock.h"

namespace paramd {

// Capped exponential backoff with jitter, until the deadline, or until the server has given no sign of life for longer
// than `patience`. It only decides: its caller waits. Thread-compatible.
class Retry {
 public:
  // `clock` must outlive it; all times are that clock's.
  Retry(const Clock* clock, absl::Time deadline, absl::Duration patience);

  // The server said something: its patience begins anew.
  void SignOfLife();
  // It answered, which is a sign of life. Until it answers something else or the connection breaks, an error is the
  // reason of what the deadline cuts off. Returns whether `answer` is another one than before.
  bool Answered(const absl::Status& answer);

  absl::Time Now() const { return clock_->Now(); }
  absl::Time deadline() const { return deadline_; }
  // When an attempt must have ended, unless there is another sign of life. However short the time that the call has,
  // the first attempt may take a round trip.
  absl::Time attempt_deadline() const;

  // After an attempt failed with `error`: when to begin the next one, or what the call is to return. `transient`:
  // another attempt may do better. What an attempt's deadline cut off is told as the reason of the attempt before.
  absl::StatusOr<absl::Time> Next(const absl::Status& error, bool transient);

  // Whether `error` says something that was not told yet since the last sign of life; from then on it was.
  bool IsNews(const absl::Status& error);

 private:
  const Clock* const clock_;
  const absl::Time deadline_;
  const absl::Time first_deadline_;
  const absl::Duration patience_;
  absl::Time last_life_;
  absl::Duration backoff_;
  absl::Status reason_;    // the last answer, or why the attempts since the last sign of life failed
  bool answered_ = false;  // reason_ is an answer
  absl::Status told_;
  std::optional<absl::BitGen> random_;  // takes a while to make, and most calls need none
};

// Whether an error of the transport says that the server is away, going, or silent, so that it may be back soon.
bool IsUnreachable(const absl::Status& status);

}  // namespace paramd

#endif  // PARAMD_CLIENT_RETRY_H_
