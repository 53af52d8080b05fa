#include "server/budget.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace paramd {
namespace {

constexpr uint64_t kDefaultInFlightBytes = uint64_t{64} << 20;
constexpr int64_t kPaused = std::numeric_limits<int64_t>::max();

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// Reservation

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), held_(other.held_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    held_ = other.held_;
  }
  return *this;
}

void Reservation::Release() {
  if (budget_ != nullptr) std::exchange(budget_, nullptr)->Release(held_);
}

uint64_t Reservation::bytes() const {
  if (budget_ == nullptr) return 0;
  MutexLock lock(&budget_->mutex_);
  return held_->bytes;
}

void Reservation::Resize(uint64_t bytes) {
  MutexLock lock(&budget_->mutex_);
  budget_->UsedLocked(held_->kind) += bytes - held_->bytes;
  held_->bytes = bytes;
}

Reservation Reservation::Split(uint64_t bytes) {
  if (budget_ == nullptr) return Reservation();
  MutexLock lock(&budget_->mutex_);
  bytes = std::min(bytes, held_->bytes);
  held_->bytes -= bytes;
  budget_->UsedLocked(held_->kind) -= bytes;
  return budget_->HoldLocked(held_->kind, bytes, {});
}

void Reservation::SetOwner(std::weak_ptr<ReservationOwner> owner) {
  if (budget_ == nullptr) return;
  Progress();
  MutexLock lock(&budget_->mutex_);
  held_->owner = std::move(owner);
}

void Reservation::Progress() {
  if (budget_ != nullptr) held_->progressed_ns = absl::ToUnixNanos(budget_->options_.clock->Now());
}

void Reservation::Pause() {
  if (budget_ != nullptr) held_->progressed_ns = kPaused;
}

bool Reservation::Stalled() const {
  return budget_ != nullptr && budget_->Stalled(*held_, budget_->options_.clock->Now());
}

// ---------------------------------------------------------------------------------------------------------------------
// Budget

Budget::Budget(BudgetOptions options) : options_(options), next_check_(options.clock->Now()) {}

uint64_t Budget::CapLocked() const {
  const uint64_t cap = options_.max_in_flight_bytes != 0 ? options_.max_in_flight_bytes : kDefaultInFlightBytes;
  return centers_.empty() ? cap : std::max(cap, 2 * *centers_.rbegin());
}

bool Budget::FitsLocked(uint64_t bytes) const {
  const uint64_t used = used_bytes_[static_cast<size_t>(BudgetKind::kInFlight)];
  const uint64_t cap = CapLocked();
  return used == 0 || (bytes <= cap && used <= cap - bytes);
}

Reservation Budget::HoldLocked(BudgetKind kind, uint64_t bytes, std::weak_ptr<ReservationOwner> owner) {
  UsedLocked(kind) += bytes;
  auto& list = kind == BudgetKind::kInFlight ? in_flight_ : counted_;
  // What nobody owns can't stall, and looks at no clock.
  const int64_t progressed_ns = owner.expired() ? kPaused : absl::ToUnixNanos(options_.clock->Now());
  list.emplace_front(kind, bytes, std::move(owner), progressed_ns);
  return Reservation(this, list.begin());
}

Reservation Budget::TryReserve(uint64_t bytes, std::weak_ptr<ReservationOwner> owner) {
  MutexLock lock(&mutex_);
  if (!waiters_.empty() || !FitsLocked(bytes)) return Reservation();
  return HoldLocked(BudgetKind::kInFlight, bytes, std::move(owner));
}

void Budget::Reserve(Request request, Ready ready) {
  Reservation reservation;
  {
    MutexLock lock(&mutex_);
    if (!waiters_.empty() || !FitsLocked(request.bytes)) {
      waiters_.push_back({std::move(request), std::move(ready)});
      return;
    }
    reservation = HoldLocked(BudgetKind::kInFlight, request.bytes, std::move(request.owner));
  }
  ready(std::move(reservation));
}

Reservation Budget::Count(BudgetKind kind, uint64_t bytes) {
  Reservation reservation;
  {
    MutexLock lock(&mutex_);
    reservation = HoldLocked(kind, bytes, {});
    if (kind != BudgetKind::kCenters) return reservation;
    centers_.insert(bytes);
  }
  Serve();
  return reservation;
}

Reservation Budget::Watch(std::weak_ptr<ReservationOwner> owner) {
  MutexLock lock(&mutex_);
  Reservation watch = HoldLocked(BudgetKind::kInFlight, 0, std::move(owner));
  watch.Pause();
  return watch;
}

bool Budget::Cancel(const void* tag) {
  std::list<Waiter> cancelled;
  {
    MutexLock lock(&mutex_);
    const auto it =
        std::find_if(waiters_.begin(), waiters_.end(), [tag](const Waiter& w) { return w.request.tag == tag; });
    if (it == waiters_.end()) return false;
    cancelled.splice(cancelled.end(), waiters_, it);
  }
  // Whoever stood behind it may fit now.
  Serve();
  return true;
}

void Budget::Release(std::list<Reservation::Held>::iterator held) {
  std::list<Reservation::Held> released;  // its owner may go with it, outside the lock
  {
    MutexLock lock(&mutex_);
    UsedLocked(held->kind) -= held->bytes;
    const bool in_flight = held->kind == BudgetKind::kInFlight;
    released.splice(released.begin(), in_flight ? in_flight_ : counted_, held);
    if (held->kind == BudgetKind::kCenters) centers_.erase(centers_.find(held->bytes));
    if (!in_flight || waiters_.empty()) return;
  }
  Serve();
}

void Budget::Serve() {
  // A callback may release in its turn: the Serve that called it goes on then, or the stack would grow by every waiter.
  thread_local const Budget* serving = nullptr;
  if (serving == this) return;
  const Budget* const outer = std::exchange(serving, this);
  while (true) {
    std::list<Waiter> served;
    std::vector<Reservation> reservations;
    {
      MutexLock lock(&mutex_);
      while (!waiters_.empty() && FitsLocked(waiters_.front().request.bytes)) {
        Request& request = waiters_.front().request;
        reservations.push_back(HoldLocked(BudgetKind::kInFlight, request.bytes, std::move(request.owner)));
        served.splice(served.end(), waiters_, waiters_.begin());
      }
    }
    if (served.empty()) break;
    auto reservation = reservations.begin();
    for (Waiter& waiter : served) Call(std::move(waiter.ready), std::move(*reservation++));
  }
  serving = outer;
}

void Budget::Call(Ready ready, Reservation reservation) {
  if (!options_.post) return ready(std::move(reservation));
  // Copyable, as a task has to be.
  const auto room = std::make_shared<Reservation>(std::move(reservation));
  options_.post([ready = std::move(ready), room] { ready(std::move(*room)); });
}

bool Budget::Stalled(const Reservation::Held& held, absl::Time now) const {
  const int64_t progressed_ns = held.progressed_ns;
  return progressed_ns != kPaused && absl::FromUnixNanos(progressed_ns) + options_.stall_timeout <= now;
}

void Budget::Tick(absl::Duration overslept) {
  std::list<Waiter> expired;
  std::vector<std::shared_ptr<ReservationOwner>> stalled;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto waiter = it++;
      if (waiter->request.deadline <= now) expired.splice(expired.end(), waiters_, waiter);
    }
    if (overslept > absl::ZeroDuration()) {
      for (Reservation::Held& held : in_flight_) {
        int64_t progressed_ns = held.progressed_ns;
        // Whoever changes it meanwhile knows better.
        if (progressed_ns != kPaused) {
          const int64_t granted = progressed_ns + absl::ToInt64Nanoseconds(overslept);
          held.progressed_ns.compare_exchange_strong(progressed_ns, std::min(granted, absl::ToUnixNanos(now)));
        }
      }
    }
    if (now >= next_check_) {
      next_check_ = now + options_.stall_timeout / 16;
      for (const Reservation::Held& held : in_flight_) {
        if (!Stalled(held, now)) continue;
        if (auto owner = held.owner.lock(); owner != nullptr) stalled.push_back(std::move(owner));
      }
    }
  }
  // Whoever stood behind those whose wait is over may fit now.
  if (!expired.empty()) Serve();
  for (Waiter& waiter : expired) waiter.ready(Reservation());
  for (const auto& owner : stalled) owner->OnStall();
}

uint64_t Budget::used_bytes(BudgetKind kind) const {
  MutexLock lock(&mutex_);
  return used_bytes_[static_cast<size_t>(kind)];
}

uint64_t Budget::max_in_flight_bytes() const {
  MutexLock lock(&mutex_);
  return CapLocked();
}

uint64_t Budget::waiting() const {
  MutexLock lock(&mutex_);
  return waiters_.size();
}

}  // namespace paramd
