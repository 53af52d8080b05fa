// Bounded consistency, step by step; model_schedule_test has random schedules.
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

struct Fixture {
  Fixture(const std::string& algorithm, const std::string& consistency)
      : model(MakeModel(MakeSpec(algorithm, 1, consistency), {.clock = &clock, .lease = absl::Seconds(30)})) {
    Initialize(model.get(), {0});
  }

  uint64_t ClockOf(const std::string& worker) const { return DescribeWorker(*model, worker).clock(); }

  FakeClock clock;
  std::unique_ptr<Model> model;
};

TEST_CASE("A worker goes on while it is at most S clocks ahead of the slowest, and waits then") {
  Fixture f("downpour", "bounded:2");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  CHECK(fast.Exchange({1}).status.ok());
  CHECK(fast.Exchange({1}).status.ok());
  fast.Start({1});
  REQUIRE(fast.waiting());
  // The commit is in; only the answer is held up.
  CHECK(f.model->Describe().version() == 3);
  CHECK(f.ClockOf("fast") == 2);
  CHECK(DescribeWorker(*f.model, "fast").waiting());
  CHECK_FALSE(DescribeWorker(*f.model, "slow").waiting());

  CHECK(slow.Exchange({1}).version == 4);
  REQUIRE_FALSE(fast.waiting());
  const Outcome outcome = fast.End();
  CHECK(outcome.status.ok());
  CHECK(outcome.version == 4);
  CHECK(f.ClockOf("fast") == 3);
  CHECK(f.ClockOf("slow") == 1);
}

TEST_CASE("With bounded:0 the workers go on together") {
  Fixture f("downpour", "bounded:0");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  for (uint64_t i = 1; i <= 3; ++i) {
    a.Start({1});
    REQUIRE(a.waiting());
    b.Start({1});
    REQUIRE_FALSE(a.waiting());
    REQUIRE_FALSE(b.waiting());
    CHECK(a.End().status.ok());
    CHECK(b.End().status.ok());
    CHECK(f.ClockOf("a") == i);
    CHECK(f.ClockOf("b") == i);
  }
}

TEST_CASE("An elastic commit waits before it is applied, so that its answer is fresh") {
  Fixture f("aeasgd", "bounded:0");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  REQUIRE(a.waiting());
  CHECK(f.model->Describe().version() == 0);
  b.Start({1});
  REQUIRE_FALSE(a.waiting());
  REQUIRE_FALSE(b.waiting());
  CHECK(f.model->Describe().version() == 2);
  CHECK(a.End().center->version + b.End().center->version == 0 + 1);
}

TEST_CASE("A worker that is waited for and leaves, fails or loses its lease is no longer waited for, at once") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  Fixture f(algorithm, "bounded:0");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  fast.Start({1});
  REQUIRE(fast.waiting());
  SECTION("leaves") { REQUIRE(slow.Leave().ok()); }
  SECTION("fails") { REQUIRE(slow.Leave("no more memory").ok()); }
  SECTION("loses its lease") {
    f.clock.Advance(absl::Seconds(31));
    REQUIRE(fast.Heartbeat().ok());
    REQUIRE(fast.waiting());
    f.model->Tick();
  }
  SECTION("is replaced by a new incarnation, which starts beside the others") { ModelWorker(f.model.get(), "slow"); }
  REQUIRE_FALSE(fast.waiting());
  CHECK(fast.End().status.ok());
  CHECK(f.model->Describe().version() == 1);
}

TEST_CASE("A late joiner starts at the clock of the slowest live worker") {
  Fixture f("downpour", "bounded:1");
  ModelWorker a(f.model.get(), "a");
  for (int i = 0; i < 5; ++i) REQUIRE(a.Exchange({1}).status.ok());
  ModelWorker b(f.model.get(), "b");
  CHECK(f.ClockOf("b") == 5);
  REQUIRE(b.Exchange({1}).status.ok());
  b.Start({1});
  CHECK(b.waiting());
  CHECK(a.Exchange({1}).status.ok());
  CHECK_FALSE(b.waiting());
}

TEST_CASE("A wait ends at its deadline with the commit applied; the worker asks again and goes on when it may") {
  Fixture f("downpour", "bounded:0");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  fast.set_wait(absl::Seconds(5));
  fast.Start({1});
  f.clock.Advance(absl::Seconds(4));
  f.model->Tick();
  REQUIRE(fast.waiting());
  f.clock.Advance(absl::Seconds(1));
  f.model->Tick();
  REQUIRE_FALSE(fast.waiting());
  const Outcome outcome = fast.End();
  CHECK(outcome.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(outcome.committed);
  CHECK_THAT(std::string(outcome.status.message()),
             Contains("'fast'") && Contains("waits for 'slow' (clock 0)") && Contains("bounded:0"));
  CHECK(f.ClockOf("fast") == 0);

  fast.StartAskAgain();
  REQUIRE(fast.waiting());
  CHECK(slow.Exchange({1}).status.ok());
  REQUIRE_FALSE(fast.waiting());
  const Outcome again = fast.End();
  CHECK(again.status.ok());
  CHECK(again.version == 2);
  CHECK(f.model->Describe().version() == 2);
}

TEST_CASE("A commit that waits for its turn until its deadline is not applied") {
  Fixture f("aeasgd", "bounded:0");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  fast.set_wait(absl::Seconds(5));
  fast.Start({1});
  f.clock.Advance(absl::Seconds(5));
  f.model->Tick();
  REQUIRE_FALSE(fast.waiting());
  const Outcome outcome = fast.End();
  CHECK(outcome.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_FALSE(outcome.committed);
  CHECK(f.model->Describe().version() == 0);
  fast.StartRetry();
  CHECK(slow.Exchange({1}).status.ok());
  CHECK(fast.End().status.ok());
  CHECK(f.model->Describe().version() == 2);
}

TEST_CASE("A cancelled wait ends with CANCELLED, and only that one") {
  Fixture f("downpour", "bounded:0");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  b.Start({1});
  a.Cancel();
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().status.code() == absl::StatusCode::kCancelled);
  CHECK(b.waiting());
  a.Cancel();
}

TEST_CASE("A worker does not get further ahead by losing its lease and coming back") {
  Fixture f("downpour", "bounded:1");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  REQUIRE(fast.Exchange({1}).status.ok());
  fast.Start({1});
  REQUIRE(fast.waiting());
  f.clock.Advance(absl::Seconds(31));
  REQUIRE(slow.Heartbeat().ok());
  f.model->Tick();
  REQUIRE(DescribeWorker(*f.model, "fast").state() == v1::WorkerInfo::EXPIRED);
  // It goes on waiting, whether it gives a sign of life meanwhile or not.
  REQUIRE(fast.waiting());
  const bool lives = GENERATE(false, true);
  if (lives) REQUIRE(fast.Heartbeat().ok());
  REQUIRE(fast.waiting());
  CHECK(f.ClockOf("fast") == 1);
  CHECK(slow.Exchange({1}).status.ok());
  REQUIRE_FALSE(fast.waiting());
  // Without one it gets no center, which it might never read, until it asks again.
  const Outcome outcome = fast.End();
  CHECK(outcome.committed);
  CHECK(outcome.status.code() == (lives ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable));
  if (!lives) {
    fast.StartAskAgain();
    CHECK(fast.End().status.ok());
  }
  CHECK(f.ClockOf("fast") == 2);
  fast.Start({1});
  CHECK(fast.waiting());
}

TEST_CASE("bounded:S holds whatever times out: a worker over the bound is held before its next commit is applied") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  const uint64_t bound = GENERATE(0, 3);
  Fixture f(algorithm, absl::StrCat("bounded:", bound));
  ModelWorker idle(f.model.get(), "idle");
  ModelWorker eager(f.model.get(), "eager");
  eager.set_wait(absl::Seconds(1));
  for (int i = 0; i < 100; ++i) {
    const bool pull = i % 3 != 0;
    eager.Start({1}, pull);
    if (eager.waiting()) {
      if (i % 2 == 0) {
        f.clock.Advance(absl::Seconds(1));
        REQUIRE(idle.Heartbeat().ok());
        f.model->Tick();
      } else {
        eager.Cancel();
      }
    }
    const Outcome outcome = eager.End();
    if (outcome.status.ok()) continue;
    INFO(outcome.status);
    REQUIRE((outcome.status.code() == absl::StatusCode::kDeadlineExceeded ||
             outcome.status.code() == absl::StatusCode::kCancelled));
  }
  // A plain commit may be one window ahead before its answer waits; an elastic one waits itself.
  CHECK(f.model->Describe().version() == static_cast<int64_t>(algorithm == "downpour" ? bound + 1 : bound));
  CHECK(DescribeWorker(*f.model, "eager").commits() == static_cast<uint64_t>(f.model->Describe().version()));
}

TEST_CASE("A worker that loses its lease at the door, or joins again, gets no window for free") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  Fixture f(algorithm, "bounded:0");
  ModelWorker idle(f.model.get(), "idle");
  auto eager = std::make_unique<ModelWorker>(f.model.get(), "eager");
  for (int i = 0; i < 10; ++i) {
    eager->Start({1});
    REQUIRE(eager->waiting());
    f.clock.Advance(absl::Seconds(31));
    REQUIRE(idle.Heartbeat().ok());
    f.model->Tick();
    REQUIRE(eager->waiting());
    eager->Cancel();
    eager->End();
    if (i % 3 == 2) eager = std::make_unique<ModelWorker>(f.model.get(), "eager");
  }
  CHECK(f.model->Describe().version() == (algorithm == "downpour" ? 1 : 0));
}

TEST_CASE("A worker that comes back far behind the others starts beside the slowest and holds nobody up") {
  Fixture f("downpour", "bounded:1");
  ModelWorker away(f.model.get(), "away");
  ModelWorker a(f.model.get(), "a");
  f.clock.Advance(absl::Seconds(31));
  REQUIRE(a.Heartbeat().ok());
  f.model->Tick();
  for (int i = 0; i < 9; ++i) REQUIRE(a.Exchange({1}).status.ok());
  REQUIRE(away.Heartbeat().ok());
  CHECK(f.ClockOf("away") == 9);
  CHECK(a.Exchange({1}).status.ok());
}

TEST_CASE("Workers that come back when all others have begun anew wait for no more than a window") {
  Fixture f("downpour", "bounded:1");
  ModelWorker a(f.model.get(), "a");
  for (int i = 0; i < 9; ++i) REQUIRE(a.Exchange({1}).status.ok());
  f.clock.Advance(absl::Seconds(31));
  f.model->Tick();
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  REQUIRE(a.waiting());
  CHECK(b.Exchange({1}).status.ok());
  CHECK(b.Exchange({1}).status.ok());
  CHECK_FALSE(a.waiting());
}

TEST_CASE("Commits that are refused are no windows") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  CAPTURE(algorithm);
  Fixture f(algorithm, "bounded:1");
  ModelWorker slow(f.model.get(), "slow");
  ModelWorker fast(f.model.get(), "fast");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 5; ++i) CHECK_FALSE(slow.Exchange({nan}).status.ok());
  CHECK(f.ClockOf("slow") == 0);
  CHECK(DescribeWorker(*f.model, "slow").commits() == 0);
  CHECK(fast.Exchange({1}).status.ok());
  fast.Start({1});
  if (!fast.waiting()) {
    CHECK(fast.End().status.ok());
    fast.Start({1});
  }
  // Two windows ahead, whichever door it waits at.
  REQUIRE(fast.waiting());
  CHECK(f.model->Describe().version() == 2);
  CHECK(slow.Exchange({1}).status.ok());
  CHECK(f.ClockOf("slow") == 1);
  slow.Start({1});
  CHECK(fast.End().status.ok());
  CHECK(slow.End().status.ok());
}

}  // namespace
}  // namespace paramd::testing
