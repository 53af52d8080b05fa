#include "server/budget.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/fake_clock.h"

namespace paramd {
namespace {

using testing::FakeClock;

// Reservations that were asked for, in the order in which they came.
struct Requests {
  explicit Requests(Budget* budget) : budget_(budget) {}
  ~Requests() {
    // Each release may bring the next one's turn.
    while (!held.empty()) Release(held.back().first);
  }

  void Ask(const char* name, uint64_t bytes) {
    budget_->Reserve({.tag = name, .bytes = bytes}, [this, name](Reservation reservation) {
      order += name;
      held.emplace_back(name, std::move(reservation));
    });
  }

  void Release(const std::string& name) {
    for (auto it = held.begin(); it != held.end(); ++it) {
      if (it->first != name) continue;
      // Its release calls back and adds to `held`.
      Reservation reservation = std::move(it->second);
      held.erase(it);
      reservation.Release();
      return;
    }
    FAIL(name << " holds nothing");
  }

  std::string order;
  std::vector<std::pair<std::string, Reservation>> held;

 private:
  Budget* const budget_;
};

TEST_CASE("What fits is given at once, and given back when the reservation goes") {
  Budget budget({.max_in_flight_bytes = 100});
  {
    Requests requests(&budget);
    requests.Ask("a", 60);
    requests.Ask("b", 40);
    CHECK(requests.order == "ab");
    CHECK(budget.used_bytes(BudgetKind::kInFlight) == 100);
    CHECK(budget.waiting() == 0);
  }
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
}

TEST_CASE("A reservation moves with its bytes, and releases them once") {
  Budget budget({.max_in_flight_bytes = 100});
  Reservation a = budget.TryReserve(60);
  CHECK_FALSE(a.empty());
  Reservation b = std::move(a);
  CHECK(a.empty());
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 60);
  Reservation c = budget.TryReserve(30);
  c = std::move(b);
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 60);
  c.Release();
  c.Release();
  CHECK(c.empty());
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
}

TEST_CASE("What does not fit waits, first come first served: a large request is not overtaken by a small one") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 60);
  requests.Ask("B", 80);
  requests.Ask("c", 10);
  CHECK(requests.order == "a");
  CHECK(budget.waiting() == 2);
  CHECK(budget.TryReserve(1).empty());
  requests.Release("a");
  CHECK(requests.order == "aBc");
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 90);
  CHECK(budget.waiting() == 0);
}

TEST_CASE("One release serves as many as fit then") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("A", 100);
  for (const char* name : {"b", "c", "d"}) requests.Ask(name, 40);
  requests.Release("A");
  CHECK(requests.order == "Abc");
  requests.Release("b");
  CHECK(requests.order == "Abcd");
}

TEST_CASE("A request larger than the cap gets its turn when nothing else is in flight") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 50);
  requests.Ask("H", 1000);
  requests.Ask("c", 50);
  CHECK(requests.order == "a");
  requests.Release("a");
  CHECK(requests.order == "aH");
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 1000);
  requests.Release("H");
  CHECK(requests.order == "aHc");
}

TEST_CASE("TryReserve gives at once or not at all") {
  Budget budget({.max_in_flight_bytes = 100});
  const Reservation a = budget.TryReserve(100);
  CHECK_FALSE(a.empty());
  CHECK(budget.TryReserve(1).empty());
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 100);
  CHECK(budget.waiting() == 0);
}

TEST_CASE("A request that waits can be cancelled, once; the others keep their place") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 60);
  requests.Ask("B", 80);
  const int tag = 0;
  budget.Reserve({.tag = &tag, .bytes = 80}, [&](Reservation) { requests.order += "cancelled"; });
  requests.Ask("c", 20);
  CHECK_FALSE(budget.Cancel(&budget));
  CHECK(budget.Cancel(&tag));
  CHECK_FALSE(budget.Cancel(&tag));
  CHECK(budget.waiting() == 2);
  requests.Release("a");
  CHECK(requests.order == "aBc");
}

TEST_CASE("Cancelling the first in line serves the next") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 60);
  const int tag = 0;
  budget.Reserve({.tag = &tag, .bytes = 80}, [&](Reservation) { requests.order += "cancelled"; });
  requests.Ask("c", 40);
  REQUIRE(requests.order == "a");
  CHECK(budget.Cancel(&tag));
  CHECK(requests.order == "ac");
}

TEST_CASE("A request that had its turn can't be cancelled any more") {
  Budget budget({.max_in_flight_bytes = 100});
  Reservation held;
  const int tag = 0;
  budget.Reserve({.tag = &tag, .bytes = 10}, [&](Reservation reservation) { held = std::move(reservation); });
  CHECK_FALSE(budget.Cancel(&tag));
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 10);
}

TEST_CASE("A request that has waited to its deadline is told so with an empty reservation, and the next moves up") {
  FakeClock clock;
  Budget budget({.clock = &clock, .max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 60);
  const absl::Time deadline = clock.Now() + absl::Seconds(10);
  int expired = 0;
  for (int i = 0; i < 2; ++i) {
    budget.Reserve({.bytes = 80, .deadline = deadline},
                   [&](Reservation reservation) { expired += reservation.empty() ? 1 : 100; });
  }
  requests.Ask("c", 40);
  clock.Advance(absl::Seconds(10) - absl::Nanoseconds(1));
  budget.Tick();
  CHECK(expired == 0);
  CHECK(requests.order == "a");
  clock.Advance(absl::Nanoseconds(1));
  budget.Tick();
  CHECK(expired == 2);
  CHECK(requests.order == "ac");
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 100);
  clock.Advance(absl::Hours(1));
  budget.Tick();
  CHECK(requests.order == "ac");
}

TEST_CASE("The cap holds two commits of the largest center, and falls again when that goes") {
  Budget budget({.max_in_flight_bytes = 100});
  Requests requests(&budget);
  requests.Ask("a", 100);
  requests.Ask("b", 100);
  const Reservation small = budget.Count(BudgetKind::kCenters, 50);
  CHECK(budget.max_in_flight_bytes() == 100);
  Reservation large = budget.Count(BudgetKind::kCenters, 100);
  CHECK(budget.max_in_flight_bytes() == 200);
  CHECK(requests.order == "ab");
  const Reservation equal = budget.Count(BudgetKind::kCenters, 100);
  large.Release();
  CHECK(budget.max_in_flight_bytes() == 200);
  Reservation larger = budget.Count(BudgetKind::kCenters, 1000);
  larger.Release();
  CHECK(budget.max_in_flight_bytes() == 200);
  CHECK(budget.used_bytes(BudgetKind::kCenters) == 150);
  // What is in flight beyond a cap that fell stays, and holds the others up.
  requests.Ask("c", 1);
  CHECK(requests.order == "ab");
}

TEST_CASE("What is only counted is counted by kind, takes no room in flight and can be resized") {
  Budget budget({.max_in_flight_bytes = 100});
  {
    Reservation history = budget.Count(BudgetKind::kHistories, 1000);
    const Reservation base = budget.Count(BudgetKind::kBases, 300);
    const Reservation base2 = budget.Count(BudgetKind::kBases, 300);
    history.Resize(10);
    CHECK(budget.used_bytes(BudgetKind::kHistories) == 10);
    CHECK(budget.used_bytes(BudgetKind::kBases) == 600);
    CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
    CHECK_FALSE(budget.TryReserve(100).empty());
  }
  CHECK(budget.used_bytes(BudgetKind::kHistories) == 0);
  CHECK(budget.used_bytes(BudgetKind::kBases) == 0);
}

// Lets go of what has stalled.
class Owner : public ReservationOwner {
 public:
  void OnStall() override {
    ++told;
    for (Reservation& reservation : held) {
      if (reservation.Stalled()) reservation.Release();
    }
  }

  int told = 0;
  std::vector<Reservation> held;
};

TEST_CASE("The owner of a reservation without progress for the stall timeout is told, and the next has its turn") {
  FakeClock clock;
  Budget budget({.clock = &clock, .max_in_flight_bytes = 100, .stall_timeout = absl::Seconds(16)});
  const auto owner = std::make_shared<Owner>();
  owner->held.push_back(budget.TryReserve(50, owner));
  owner->held.push_back(budget.TryReserve(50, owner));
  Requests requests(&budget);
  requests.Ask("c", 50);
  for (int s = 0; s < 15; ++s) {
    clock.Advance(absl::Seconds(1));
    owner->held[0].Progress();
    budget.Tick();
  }
  CHECK(owner->told == 0);
  clock.Advance(absl::Seconds(1));
  budget.Tick();
  CHECK(owner->told == 1);
  CHECK_FALSE(owner->held[0].empty());
  CHECK(owner->held[1].empty());
  CHECK(requests.order == "c");
}

TEST_CASE("What waits for something else than its peer, or has no owner any more, does not stall") {
  FakeClock clock;
  Budget budget({.clock = &clock, .max_in_flight_bytes = 100, .stall_timeout = absl::Seconds(16)});
  auto gone = std::make_shared<Owner>();
  const auto owner = std::make_shared<Owner>();
  const Reservation orphan = budget.TryReserve(10, gone);
  gone.reset();
  owner->held.push_back(budget.TryReserve(10, owner));
  owner->held[0].Pause();
  const auto stalled = [&] {
    const int before = owner->told;
    clock.Advance(absl::Seconds(100));
    budget.Tick(absl::ZeroDuration());
    return owner->told > before;
  };
  CHECK_FALSE(stalled());
  owner->held[0].Progress();
  budget.Tick();
  CHECK(owner->told == 0);
  CHECK(stalled());
  CHECK(owner->held[0].empty());
}

TEST_CASE("A reservation that changes hands stalls with its new owner, from then on") {
  FakeClock clock;
  Budget budget({.clock = &clock, .max_in_flight_bytes = 100, .stall_timeout = absl::Seconds(16)});
  const auto first = std::make_shared<Owner>();
  const auto second = std::make_shared<Owner>();
  Reservation reservation = budget.TryReserve(10, first);
  clock.Advance(absl::Seconds(15));
  reservation.SetOwner(second);
  second->held.push_back(std::move(reservation));
  clock.Advance(absl::Seconds(15));
  budget.Tick();
  CHECK(second->told == 0);
  clock.Advance(absl::Seconds(1));
  budget.Tick();
  CHECK(first->told == 0);
  CHECK(second->told == 1);
}

TEST_CASE("Time that the server itself overslept counts against nobody") {
  FakeClock clock;
  Budget budget({.clock = &clock, .max_in_flight_bytes = 100, .stall_timeout = absl::Seconds(16)});
  const auto owner = std::make_shared<Owner>();
  owner->held.push_back(budget.TryReserve(10, owner));
  clock.Advance(absl::Seconds(15 + 100));
  budget.Tick(absl::Seconds(100));
  CHECK(owner->told == 0);
  clock.Advance(absl::Seconds(1));
  budget.Tick();
  CHECK(owner->told == 1);
  // Nor is it granted to who went on after it.
  owner->told = 0;
  clock.Advance(absl::Seconds(100));
  owner->held.push_back(budget.TryReserve(10, owner));
  budget.Tick(absl::Seconds(100));
  clock.Advance(absl::Seconds(16));
  budget.Tick();
  CHECK(owner->told == 1);
}

TEST_CASE("A callback may release and reserve") {
  Budget budget({.max_in_flight_bytes = 100});
  Reservation blocker = budget.TryReserve(100);
  std::string order;
  Reservation held;
  budget.Reserve({.bytes = 100}, [&](Reservation reservation) {
    order += "a";
    budget.Reserve({.bytes = 100}, [&](Reservation next) {
      order += "c";
      held = std::move(next);
    });
    reservation.Release();
    order += "A";
  });
  budget.Reserve({.bytes = 100}, [&](Reservation) { order += "b"; });
  blocker.Release();
  CHECK(order == "aAbc");
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 100);
}

TEST_CASE("Whoever has its turn is called by a posted task, not by who releases") {
  std::vector<std::function<void()>> posted;
  Budget budget({.max_in_flight_bytes = 100, .post = [&](std::function<void()> task) { posted.push_back(task); }});
  Reservation blocker = budget.TryReserve(100);
  bool called = false;
  budget.Reserve({.bytes = 60}, [&](const Reservation& reservation) { called = !reservation.empty(); });
  blocker.Release();
  CHECK_FALSE(called);
  REQUIRE(posted.size() == 1);
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 60);
  posted[0]();
  CHECK(called);
  posted.clear();
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
  budget.Reserve({.bytes = 60}, [&](const Reservation&) { called = false; });
  CHECK_FALSE(called);
}

TEST_CASE("Thousands may wait, and give back at once when they are served") {
  Budget budget({.max_in_flight_bytes = 1});
  Reservation blocker = budget.TryReserve(1);
  int served = 0;
  for (int i = 0; i < 10'000; ++i) {
    budget.Reserve({.bytes = 1}, [&](Reservation) { ++served; });
  }
  CHECK(budget.waiting() == 10'000);
  blocker.Release();
  CHECK(served == 10'000);
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
}

TEST_CASE("Under many threads every request has its turn once, and the cap holds") {
  constexpr int kThreads = 8;
  constexpr int kRequests = 2000;
  constexpr uint64_t kMax = 100;
  Budget budget({.max_in_flight_bytes = kMax});
  std::atomic<int> served{0};
  std::atomic<int64_t> in_use{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        const uint64_t bytes = 1 + static_cast<uint64_t>(i * 7 + t) % 60;
        budget.Reserve({.tag = &t, .bytes = bytes}, [&, bytes](Reservation reservation) {
          if (in_use.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes) >
              static_cast<int64_t>(kMax)) {
            exceeded = true;
          }
          in_use -= static_cast<int64_t>(bytes);
          ++served;
          reservation.Release();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == kThreads * kRequests);
  CHECK_FALSE(exceeded);
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == 0);
  CHECK(budget.waiting() == 0);
}

}  // namespace
}  // namespace paramd
