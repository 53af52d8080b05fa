#include "client/retry.h"

#include <algorithm>

namespace paramd {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
constexpr absl::Duration kRoundTrip = absl::Milliseconds(500);

}  // namespace

Retry::Retry(const Clock* clock, absl::Time deadline, absl::Duration patience)
    : clock_(clock),
      deadline_(deadline),
      first_deadline_(clock->Now() + kRoundTrip),
      patience_(patience),
      last_life_(clock->Now()),
      backoff_(kFirstBackoff) {}

void Retry::SignOfLife() {
  last_life_ = clock_->Now();
  told_ = absl::OkStatus();
  if (!answered_) reason_ = absl::OkStatus();
}

bool Retry::Answered(const absl::Status& answer) {
  SignOfLife();
  const bool news = answer != reason_;
  reason_ = answer;
  answered_ = !answer.ok();
  return news;
}

absl::Time Retry::attempt_deadline() const {
  return std::min(std::max(deadline_, first_deadline_), last_life_ + patience_);
}

absl::StatusOr<absl::Time> Retry::Next(const absl::Status& error, bool transient) {
  if (!transient) return error;
  // An attempt that the deadline cut off knows less than the one before it.
  if (error != reason_ && (reason_.ok() || !absl::IsDeadlineExceeded(error))) {
    reason_ = error;
    answered_ = false;
  }
  const absl::Time now = clock_->Now();
  if (now >= deadline_) return absl::DeadlineExceededError(reason_.message());
  if (now >= last_life_ + patience_) return absl::UnavailableError((answered_ ? error : reason_).message());
  // Full jitter spreads workers that failed together.
  if (!random_.has_value()) random_.emplace();
  const absl::Duration wait = backoff_ * absl::Uniform(*random_, 0.5, 1.0);
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  return std::min({now + wait, deadline_, last_life_ + patience_});
}

bool Retry::IsNews(const absl::Status& error) {
  if (error == told_ || (absl::IsDeadlineExceeded(error) && !told_.ok())) return false;
  told_ = error;
  return true;
}

bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace paramd
