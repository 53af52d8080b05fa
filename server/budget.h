// The one budget of everything that a peer can make the daemon hold.
#ifndef PARAMD_SERVER_BUDGET_H_
#define PARAMD_SERVER_BUDGET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

class Budget;

// Who holds a reservation.
class ReservationOwner {
 public:
  virtual ~ReservationOwner() = default;

  // A reservation of this owner has made no progress for the stall timeout: find it (Reservation::Stalled) and let go
  // of it. Called from Budget::Tick, under no lock, and again later if it is still so.
  virtual void OnStall() = 0;
};

// Bytes of the budget, given back on destruction. Movable. Thread-compatible, and the three that say so thread-safe.
//
// To release one that is in flight may give others their turn, and so call them: never do it under a lock.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  void Release();
  bool empty() const { return budget_ == nullptr; }
  uint64_t bytes() const;

  // Of one that is only counted.
  void Resize(uint64_t bytes);

  // So many of its bytes as one of their own, which has no owner.
  Reservation Split(uint64_t bytes);

  // Hands it over to another owner, and counts as progress.
  void SetOwner(std::weak_ptr<ReservationOwner> owner);

  // Thread-safe. Its peer did its part: the stall timeout begins anew.
  void Progress();
  // Thread-safe. It waits for something else than its peer: it can't stall until the next Progress.
  void Pause();
  // Thread-safe.
  bool Stalled() const;

 private:
  friend class Budget;
  struct Held;
  Reservation(Budget* budget, std::list<Held>::iterator held) : budget_(budget), held_(held) {}

  Budget* budget_ = nullptr;
  std::list<Held>::iterator held_;
};

// What bytes are held for.
enum class BudgetKind : size_t {
  kInFlight,   // commits being received, centers being sent, answers that may be asked for again: capped
  kCenters,    // of initialized models
  kBases,      // centers pinned for workers, of algorithms that need them
  kRounds,     // sums of rounds, and centers that all answers of a round share
  kHistories,  // capped by themselves (Histories)
  kImages,     // of models that are being written, or brought back
};
inline constexpr size_t kBudgetKinds = 6;

struct BudgetOptions {
  const Clock* clock = Clock::Steady();
  // Cap on what is in flight. 0: 64 MiB. Never less than two commits of the largest initialized model, which would
  // otherwise wait for ever.
  uint64_t max_in_flight_bytes = 0;
  absl::Duration stall_timeout = absl::Seconds(60);
  // Runs a task soon, on another thread. Null: whoever releases calls those who have their turn now, and works for
  // them.
  std::function<void(std::function<void()>)> post;
};

struct Reservation::Held {
  Held(BudgetKind of, uint64_t size, std::weak_ptr<ReservationOwner> holder, int64_t now_ns)
      : kind(of), bytes(size), owner(std::move(holder)), progressed_ns(now_ns) {}

  const BudgetKind kind;
  uint64_t bytes;                         // guarded by the budget's lock
  std::weak_ptr<ReservationOwner> owner;  // guarded by the budget's lock
  std::atomic<int64_t> progressed_ns;     // kPaused: can't stall
};

// What is in flight is given first come, first served: a large request is not overtaken. Thread-safe.
class Budget {
 public:
  using Ready = std::function<void(Reservation)>;

  struct Request {
    const void* tag = nullptr;  // names the request for Cancel
    uint64_t bytes = 0;
    std::weak_ptr<ReservationOwner> owner;  // expired: it can't stall
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit Budget(BudgetOptions options = {});

  // Calls `ready` with the reservation: at once if there is room and nobody waits, else later, by `post` or by whoever
  // releases. Under no lock. A request larger than the cap gets its turn when nothing else is in flight. After its
  // deadline, Tick calls `ready` with an empty reservation.
  void Reserve(Request request, Ready ready);

  // At once or not at all: an empty reservation if there is no room or somebody waits.
  Reservation TryReserve(uint64_t bytes, std::weak_ptr<ReservationOwner> owner = {});

  // Holds no bytes, but stalls as those do that hold some. Paused at first.
  Reservation Watch(std::weak_ptr<ReservationOwner> owner);

  // Forgets a waiting request; returns false if it had its turn.
  bool Cancel(const void* tag);

  // Counts what is not in flight; there is always room. To count a center raises the cap in flight as long as it is
  // held, which may give others their turn: not under a lock.
  Reservation Count(BudgetKind kind, uint64_t bytes);

  // Ends the wait of those whose deadline has passed and tells the owners of what has stalled, at most a sixteenth of
  // the timeout late. `overslept`: how much later than due this call comes, which counts against nobody.
  void Tick(absl::Duration overslept = absl::ZeroDuration());

  absl::Duration stall_timeout() const { return options_.stall_timeout; }
  uint64_t used_bytes(BudgetKind kind) const;
  uint64_t max_in_flight_bytes() const;
  uint64_t waiting() const;

 private:
  friend class Reservation;
  struct Waiter {
    Request request;
    Ready ready;
  };

  uint64_t CapLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FitsLocked(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Reservation HoldLocked(BudgetKind kind, uint64_t bytes, std::weak_ptr<ReservationOwner> owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(std::list<Reservation::Held>::iterator held);
  void Serve();
  void Call(Ready ready, Reservation reservation);
  bool Stalled(const Reservation::Held& held, absl::Time now) const;
  uint64_t& UsedLocked(BudgetKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return used_bytes_[static_cast<size_t>(kind)];
  }

  const BudgetOptions options_;

  mutable Mutex mutex_;
  std::array<uint64_t, kBudgetKinds> used_bytes_ ABSL_GUARDED_BY(mutex_) = {};
  std::multiset<uint64_t> centers_ ABSL_GUARDED_BY(mutex_);  // bytes of each
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::list<Reservation::Held> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::list<Reservation::Held> counted_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_check_ ABSL_GUARDED_BY(mutex_);  // of what has stalled
};

}  // namespace paramd

#endif  // PARAMD_SERVER_BUDGET_H_
