// The cap on bytes in flight: commits being received and snapshots on the wire.
#ifndef PARAMD_SERVER_IN_FLIGHT_H_
#define PARAMD_SERVER_IN_FLIGHT_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sync/mutex.h"

namespace paramd {

class InFlightLimiter;

// Bytes counted against the cap, given back on destruction. Movable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  void Release();
  bool empty() const { return limiter_ == nullptr; }

 private:
  friend class InFlightLimiter;
  Reservation(InFlightLimiter* limiter, uint64_t bytes) : limiter_(limiter), bytes_(bytes) {}

  InFlightLimiter* limiter_ = nullptr;
  uint64_t bytes_ = 0;
};

// First come, first served: a large request is not overtaken. Thread-safe.
class InFlightLimiter {
 public:
  using Ready = std::function<void(Reservation)>;

  explicit InFlightLimiter(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // The cap is never below this from now on: it must hold two commits of the largest model.
  void RaiseTo(uint64_t bytes);

  // Calls `ready` with the reservation: at once if there is room and nobody waits, else later, from the thread that
  // releases. Never under a lock. A request larger than the cap gets its turn when nothing else is in flight. `tag`
  // names the request for Cancel. After `deadline`, Expire calls `ready` with an empty reservation.
  void Reserve(const void* tag, uint64_t bytes, Ready ready, absl::Time deadline = absl::InfiniteFuture());

  // At once or not at all: an empty reservation if there is no room or somebody waits.
  Reservation TryReserve(uint64_t bytes);

  // Ends the wait of those whose deadline has passed. To be called every now and then.
  void Expire(absl::Time now);

  // Forgets a waiting request; returns false if it had its turn.
  bool Cancel(const void* tag);

  uint64_t used_bytes() const;
  uint64_t max_bytes() const;
  uint64_t waiting() const;

 private:
  friend class Reservation;
  struct Waiter {
    const void* tag;
    uint64_t bytes;
    Ready ready;
    absl::Time deadline;
  };

  bool FitsLocked(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(uint64_t bytes);
  void Serve();

  mutable Mutex mutex_;
  uint64_t max_bytes_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_IN_FLIGHT_H_
