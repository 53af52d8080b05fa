#include "client/cancellation.h"

#include <utility>

namespace paramd {

void Cancellation::Cancel() {
  MutexLock lock(&mutex_);
  SetLocked(&cancelled_, absl::CancelledError("cancelled by this process"));
}

void Cancellation::Reset() {
  MutexLock lock(&mutex_);
  cancelled_ = absl::OkStatus();
}

void Cancellation::End(const absl::Status& why) {
  MutexLock lock(&mutex_);
  SetLocked(&ended_, why);
}

absl::Status Cancellation::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

absl::Status Cancellation::status() const {
  MutexLock lock(&mutex_);
  return StatusLocked();
}

absl::Status Cancellation::WaitUntil(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (StatusLocked().ok() && clock_->Now() < deadline) clock_->Wait(&changed_, &mutex_, deadline);
  return StatusLocked();
}

void Cancellation::SetLocked(absl::Status* status, const absl::Status& why) {
  const bool first = StatusLocked().ok();
  if (status->ok()) *status = why;
  changed_.SignalAll();
  if (!first) return;
  for (const Interrupt* interrupt : interrupts_) interrupt->interrupt_();
}

const absl::Status& Cancellation::StatusLocked() const { return ended_.ok() ? cancelled_ : ended_; }

Cancellation::Interrupt::Interrupt(Cancellation* cancellation, std::function<void()> interrupt)
    : cancellation_(cancellation), interrupt_(std::move(interrupt)) {
  MutexLock lock(&cancellation_->mutex_);
  cancellation_->interrupts_.insert(this);
  if (!cancellation_->StatusLocked().ok()) interrupt_();
}

Cancellation::Interrupt::~Interrupt() {
  MutexLock lock(&cancellation_->mutex_);
  cancellation_->interrupts_.erase(this);
}

}  // namespace paramd
