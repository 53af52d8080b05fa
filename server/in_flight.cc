#include "server/in_flight.h"

#include <algorithm>
#include <utility>

namespace paramd {

Reservation::Reservation(Reservation&& other) noexcept
    : limiter_(std::exchange(other.limiter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    limiter_ = std::exchange(other.limiter_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::Release() {
  if (limiter_ != nullptr) std::exchange(limiter_, nullptr)->Give(std::exchange(bytes_, 0));
}

void InFlightLimiter::RaiseTo(uint64_t bytes) {
  {
    MutexLock lock(&mutex_);
    max_bytes_ = std::max(max_bytes_, bytes);
  }
  Serve();
}

bool InFlightLimiter::FitsLocked(uint64_t bytes) const {
  return used_bytes_ == 0 || (bytes <= max_bytes_ && used_bytes_ <= max_bytes_ - bytes);
}

Reservation InFlightLimiter::TryReserve(uint64_t bytes) {
  MutexLock lock(&mutex_);
  if (!waiters_.empty() || !FitsLocked(bytes)) return Reservation();
  used_bytes_ += bytes;
  return Reservation(this, bytes);
}

void InFlightLimiter::Reserve(const void* tag, uint64_t bytes, Ready ready, absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    if (!waiters_.empty() || !FitsLocked(bytes)) {
      waiters_.push_back({tag, bytes, std::move(ready), deadline});
      return;
    }
    used_bytes_ += bytes;
  }
  ready(Reservation(this, bytes));
}

void InFlightLimiter::Expire(absl::Time now) {
  std::list<Waiter> expired;
  {
    MutexLock lock(&mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto waiter = it++;
      if (waiter->deadline <= now) expired.splice(expired.end(), waiters_, waiter);
    }
  }
  if (expired.empty()) return;
  // Whoever stood behind them may fit now.
  Serve();
  for (Waiter& waiter : expired) waiter.ready(Reservation());
}

bool InFlightLimiter::Cancel(const void* tag) {
  std::list<Waiter> cancelled;
  {
    MutexLock lock(&mutex_);
    const auto it = std::find_if(waiters_.begin(), waiters_.end(), [tag](const Waiter& w) { return w.tag == tag; });
    if (it == waiters_.end()) return false;
    cancelled.splice(cancelled.end(), waiters_, it);
  }
  // Whoever stood behind it may fit now.
  Serve();
  return true;
}

void InFlightLimiter::Give(uint64_t bytes) {
  {
    MutexLock lock(&mutex_);
    used_bytes_ -= bytes;
  }
  Serve();
}

void InFlightLimiter::Serve() {
  // A callback may release in its turn: the Serve that called it goes on then, or the stack would grow by every waiter.
  thread_local const InFlightLimiter* serving = nullptr;
  if (serving == this) return;
  const InFlightLimiter* const outer = std::exchange(serving, this);
  while (true) {
    std::list<Waiter> served;
    {
      MutexLock lock(&mutex_);
      while (!waiters_.empty() && FitsLocked(waiters_.front().bytes)) {
        used_bytes_ += waiters_.front().bytes;
        served.splice(served.end(), waiters_, waiters_.begin());
      }
    }
    if (served.empty()) break;
    for (Waiter& waiter : served) waiter.ready(Reservation(this, waiter.bytes));
  }
  serving = outer;
}

uint64_t InFlightLimiter::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

uint64_t InFlightLimiter::max_bytes() const {
  MutexLock lock(&mutex_);
  return max_bytes_;
}

uint64_t InFlightLimiter::waiting() const {
  MutexLock lock(&mutex_);
  return waiters_.size();
}

}  // namespace paramd
