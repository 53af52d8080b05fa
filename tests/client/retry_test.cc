// Whether and when a call is tried again, in time that a test makes pass.
#include "client/retry.h"

#include <catch2/catch.hpp>
#include <string>

#include "client/cancellation.h"
#include "tests/client/waiting_clock.h"
#include "tests/support/fake_clock.h"

namespace paramd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
const absl::Status kGone = absl::UnavailableError("connection refused");

TEST_CASE("backoff doubles with jitter, up to two seconds") {
  testing::FakeClock clock;
  Retry retry(&clock, clock.Now() + absl::Hours(1), absl::InfiniteDuration());
  absl::Duration limit = absl::Milliseconds(20);
  for (int i = 0; i < 20; ++i) {
    const auto next = retry.Next(kGone, /*transient=*/true);
    REQUIRE(next.ok());
    const absl::Duration wait = *next - clock.Now();
    INFO(i << ": " << wait);
    CHECK(wait >= limit / 2);
    CHECK(wait <= limit);
    clock.Advance(wait);
    limit = std::min(limit * 2, absl::Seconds(2));
  }
}

TEST_CASE("what is not transient is final at once") {
  testing::FakeClock clock;
  Retry retry(&clock, clock.Now() + kTimeout, kTimeout);
  const absl::Status full = absl::ResourceExhaustedError("too many models");
  CHECK(retry.Next(full, /*transient=*/false).status() == full);
}

TEST_CASE("the deadline ends the attempts, with the reason of the last one that had one") {
  testing::FakeClock clock;
  const absl::Time deadline = clock.Now() + kTimeout;
  Retry retry(&clock, deadline, absl::InfiniteDuration());
  CHECK(retry.attempt_deadline() == deadline);
  clock.Advance(kTimeout - absl::Milliseconds(1));
  const auto last = retry.Next(kGone, true);
  REQUIRE(last.ok());
  CHECK(*last == deadline);  // not beyond
  clock.Advance(absl::Milliseconds(1));
  const auto over = retry.Next(absl::DeadlineExceededError("cut off"), true);
  CHECK(over.status() == absl::DeadlineExceededError("connection refused"));
}

TEST_CASE("without any time there is one attempt, of a round trip") {
  testing::FakeClock clock;
  Retry retry(&clock, clock.Now(), absl::Seconds(10));
  CHECK(retry.attempt_deadline() == clock.Now() + absl::Milliseconds(500));
  CHECK(retry.Next(kGone, true).status() == absl::DeadlineExceededError("connection refused"));
}

TEST_CASE("a server without a sign of life is given up on, and any sign begins that anew") {
  testing::FakeClock clock;
  Retry retry(&clock, absl::InfiniteFuture(), absl::Seconds(10));
  clock.Advance(absl::Seconds(9));
  REQUIRE(retry.Next(kGone, true).ok());
  retry.SignOfLife();
  CHECK(retry.attempt_deadline() == clock.Now() + absl::Seconds(10));
  clock.Advance(absl::Seconds(9));
  REQUIRE(retry.Next(kGone, true).ok());
  clock.Advance(absl::Seconds(1));
  CHECK(retry.Next(kGone, true).status() == kGone);
}

TEST_CASE("a reason is news once between signs of life") {
  testing::FakeClock clock;
  Retry retry(&clock, absl::InfiniteFuture(), kTimeout);
  CHECK(retry.IsNews(kGone));
  CHECK_FALSE(retry.IsNews(kGone));
  CHECK(retry.IsNews(absl::UnavailableError("no route to host")));
  CHECK_FALSE(retry.IsNews(absl::DeadlineExceededError("cut off")));
  retry.SignOfLife();
  CHECK(retry.IsNews(kGone));
}

TEST_CASE("an answer is the reason until another one comes, or the connection breaks, and is news once") {
  testing::FakeClock clock;
  const absl::Time deadline = clock.Now() + kTimeout;
  Retry retry(&clock, deadline, kTimeout);
  const absl::Status going = absl::UnavailableError("the server is going");
  const absl::Status cut_off = absl::DeadlineExceededError("no answer in time");
  CHECK(retry.Answered(going));
  REQUIRE(retry.Next(going, true).ok());
  // Bytes that are taken change nothing about that.
  retry.SignOfLife();
  CHECK_FALSE(retry.Answered(going));
  REQUIRE(retry.Next(going, true).ok());
  retry.SignOfLife();
  SECTION("cut off by the deadline") {
    clock.Advance(kTimeout);
    CHECK(retry.Next(cut_off, true).status() == absl::DeadlineExceededError("the server is going"));
  }
  SECTION("after another answer") {
    CHECK(retry.Answered(absl::DeadlineExceededError("waits for 'b'")));
    clock.Advance(kTimeout);
    CHECK(retry.Next(cut_off, true).status() == absl::DeadlineExceededError("waits for 'b'"));
  }
  SECTION("after the connection broke") {
    REQUIRE(retry.Next(kGone, true).ok());
    clock.Advance(kTimeout / 2);
    CHECK(retry.Answered(going));
    REQUIRE(retry.Next(kGone, true).ok());
    clock.Advance(kTimeout / 2);
    CHECK(retry.Next(cut_off, true).status() == absl::DeadlineExceededError("connection refused"));
  }
}

TEST_CASE("a server that is silent after its answer is called silent") {
  testing::FakeClock clock;
  Retry retry(&clock, absl::InfiniteFuture(), absl::Seconds(10));
  retry.Answered(absl::DeadlineExceededError("waits for 'b'"));
  clock.Advance(absl::Seconds(10));
  CHECK(retry.Next(absl::DeadlineExceededError("no answer in time"), true).status() ==
        absl::UnavailableError("no answer in time"));
}

TEST_CASE("a cancellation ends waits and calls until it is reset, an end for good and with its reason") {
  testing::WaitingClock clock;
  Cancellation cancellation(&clock);
  CHECK(cancellation.WaitUntil(clock.Now() + absl::Seconds(3)).ok());
  int interrupted = 0;
  {
    const Cancellation::Interrupt call(&cancellation, [&] { ++interrupted; });
    cancellation.Cancel();
    CHECK(interrupted == 1);
    cancellation.Cancel();
    CHECK(interrupted == 1);
  }
  const absl::Time now = clock.Now();
  CHECK(cancellation.WaitUntil(now + absl::Seconds(3)).code() == absl::StatusCode::kCancelled);
  CHECK(clock.Now() == now);
  cancellation.Reset();
  CHECK(cancellation.status().ok());

  cancellation.End(absl::AbortedError("fenced"));
  cancellation.End(absl::NotFoundError("later"));
  cancellation.Reset();
  CHECK(cancellation.status() == absl::AbortedError("fenced"));
  CHECK(cancellation.ended() == absl::AbortedError("fenced"));
  const Cancellation::Interrupt late(&cancellation, [&] { ++interrupted; });
  CHECK(interrupted == 2);
}

}  // namespace
}  // namespace paramd
