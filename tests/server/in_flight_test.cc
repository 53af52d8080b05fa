#include "server/in_flight.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace paramd {
namespace {

// Reservations that were asked for, in the order in which they came.
struct Requests {
  explicit Requests(InFlightLimiter* limiter) : limiter_(limiter) {}
  ~Requests() {
    // Each release may bring the next one's turn.
    while (!held.empty()) Release(held.back().first);
  }

  void Ask(const char* name, uint64_t bytes) {
    limiter_->Reserve(name, bytes, [this, name](Reservation reservation) {
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
  InFlightLimiter* const limiter_;
};

TEST_CASE("What fits is given at once, and given back when the reservation goes") {
  InFlightLimiter limiter(100);
  {
    Requests requests(&limiter);
    requests.Ask("a", 60);
    requests.Ask("b", 40);
    CHECK(requests.order == "ab");
    CHECK(limiter.used_bytes() == 100);
    CHECK(limiter.waiting() == 0);
  }
  CHECK(limiter.used_bytes() == 0);
}

TEST_CASE("A reservation moves with its bytes, and releases them once") {
  InFlightLimiter limiter(100);
  Reservation a = limiter.TryReserve(60);
  CHECK_FALSE(a.empty());
  Reservation b = std::move(a);
  CHECK(a.empty());
  CHECK(limiter.used_bytes() == 60);
  Reservation c = limiter.TryReserve(30);
  c = std::move(b);
  CHECK(limiter.used_bytes() == 60);
  c.Release();
  c.Release();
  CHECK(c.empty());
  CHECK(limiter.used_bytes() == 0);
}

TEST_CASE("What does not fit waits, first come first served: a large request is not overtaken by a small one") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 60);
  requests.Ask("B", 80);
  requests.Ask("c", 10);
  CHECK(requests.order == "a");
  CHECK(limiter.waiting() == 2);
  CHECK(limiter.TryReserve(1).empty());
  requests.Release("a");
  CHECK(requests.order == "aBc");
  CHECK(limiter.used_bytes() == 90);
  CHECK(limiter.waiting() == 0);
}

TEST_CASE("One release serves as many as fit then") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("A", 100);
  for (const char* name : {"b", "c", "d"}) requests.Ask(name, 40);
  requests.Release("A");
  CHECK(requests.order == "Abc");
  requests.Release("b");
  CHECK(requests.order == "Abcd");
}

TEST_CASE("A request larger than the cap gets its turn when nothing else is in flight") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 50);
  requests.Ask("H", 1000);
  requests.Ask("c", 50);
  CHECK(requests.order == "a");
  requests.Release("a");
  CHECK(requests.order == "aH");
  CHECK(limiter.used_bytes() == 1000);
  requests.Release("H");
  CHECK(requests.order == "aHc");
}

TEST_CASE("TryReserve gives at once or not at all") {
  InFlightLimiter limiter(100);
  const Reservation a = limiter.TryReserve(100);
  CHECK_FALSE(a.empty());
  CHECK(limiter.TryReserve(1).empty());
  CHECK(limiter.used_bytes() == 100);
  CHECK(limiter.waiting() == 0);
}

TEST_CASE("A request that waits can be cancelled, once; the others keep their place") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 60);
  requests.Ask("B", 80);
  const int tag = 0;
  limiter.Reserve(&tag, 80, [&](Reservation) { requests.order += "cancelled"; });
  requests.Ask("c", 20);
  CHECK_FALSE(limiter.Cancel(&limiter));
  CHECK(limiter.Cancel(&tag));
  CHECK_FALSE(limiter.Cancel(&tag));
  CHECK(limiter.waiting() == 2);
  requests.Release("a");
  CHECK(requests.order == "aBc");
}

TEST_CASE("Cancelling the first in line serves the next") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 60);
  const int tag = 0;
  limiter.Reserve(&tag, 80, [&](Reservation) { requests.order += "cancelled"; });
  requests.Ask("c", 40);
  REQUIRE(requests.order == "a");
  CHECK(limiter.Cancel(&tag));
  CHECK(requests.order == "ac");
}

TEST_CASE("A request that had its turn can't be cancelled any more") {
  InFlightLimiter limiter(100);
  Reservation held;
  const int tag = 0;
  limiter.Reserve(&tag, 10, [&](Reservation reservation) { held = std::move(reservation); });
  CHECK_FALSE(limiter.Cancel(&tag));
  CHECK(limiter.used_bytes() == 10);
}

TEST_CASE("A request that has waited to its deadline is told so with an empty reservation, and the next moves up") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 60);
  const absl::Time deadline = absl::UnixEpoch() + absl::Seconds(10);
  int expired = 0;
  for (int i = 0; i < 2; ++i) {
    limiter.Reserve(
        nullptr, 80, [&](Reservation reservation) { expired += reservation.empty() ? 1 : 100; }, deadline);
  }
  requests.Ask("c", 40);
  limiter.Expire(deadline - absl::Nanoseconds(1));
  CHECK(expired == 0);
  CHECK(requests.order == "a");
  limiter.Expire(deadline);
  CHECK(expired == 2);
  CHECK(requests.order == "ac");
  CHECK(limiter.used_bytes() == 100);
  limiter.Expire(absl::InfiniteFuture() - absl::Seconds(1));
  CHECK(requests.order == "ac");
}

TEST_CASE("The cap only rises, and what fits then is served") {
  InFlightLimiter limiter(100);
  Requests requests(&limiter);
  requests.Ask("a", 100);
  requests.Ask("b", 100);
  limiter.RaiseTo(50);
  CHECK(limiter.max_bytes() == 100);
  CHECK(requests.order == "a");
  limiter.RaiseTo(200);
  CHECK(limiter.max_bytes() == 200);
  CHECK(requests.order == "ab");
}

TEST_CASE("A callback may release and reserve") {
  InFlightLimiter limiter(100);
  Reservation blocker = limiter.TryReserve(100);
  std::string order;
  Reservation held;
  limiter.Reserve(nullptr, 100, [&](Reservation reservation) {
    order += "a";
    limiter.Reserve(nullptr, 100, [&](Reservation next) {
      order += "c";
      held = std::move(next);
    });
    reservation.Release();
    order += "A";
  });
  limiter.Reserve(nullptr, 100, [&](Reservation) { order += "b"; });
  blocker.Release();
  CHECK(order == "aAbc");
  CHECK(limiter.used_bytes() == 100);
}

TEST_CASE("Thousands may wait, and give back at once when they are served") {
  InFlightLimiter limiter(1);
  Reservation blocker = limiter.TryReserve(1);
  int served = 0;
  for (int i = 0; i < 10'000; ++i) {
    limiter.Reserve(nullptr, 1, [&](Reservation) { ++served; });
  }
  CHECK(limiter.waiting() == 10'000);
  blocker.Release();
  CHECK(served == 10'000);
  CHECK(limiter.used_bytes() == 0);
}

TEST_CASE("Under many threads every request has its turn once, and the cap holds") {
  constexpr int kThreads = 8;
  constexpr int kRequests = 2000;
  constexpr uint64_t kMax = 100;
  InFlightLimiter limiter(kMax);
  std::atomic<int> served{0};
  std::atomic<int64_t> in_use{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        const uint64_t bytes = 1 + static_cast<uint64_t>(i * 7 + t) % 60;
        limiter.Reserve(&t, bytes, [&, bytes](Reservation reservation) {
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
  CHECK(limiter.used_bytes() == 0);
  CHECK(limiter.waiting() == 0);
}

}  // namespace
}  // namespace paramd
