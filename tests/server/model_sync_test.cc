// Consistency `sync`: rounds of one commit of every live worker.
#include <algorithm>
#include <catch2/catch.hpp>
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

using Vector = std::vector<float>;

struct Fixture {
  Fixture(const std::string& algorithm, Vector center, const Hyperparameters& hyperparameters = {})
      : model(MakeModel(MakeSpec(algorithm, center.size(), "sync", hyperparameters),
                        {.clock = &clock, .lease = absl::Seconds(30)})) {
    Initialize(model.get(), std::move(center));
  }

  Vector Center() const { return Floats(*TakeSnapshot(model.get())); }
  int64_t Version() const { return model->Describe().version(); }

  FakeClock clock;
  std::unique_ptr<Model> model;
};

TEST_CASE("downpour in rounds adds all of a round's updates at its end") {
  Fixture f("downpour", {10, 20});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1, 2});
  REQUIRE(a.waiting());
  // Nothing shows before the round ends.
  CHECK(f.Version() == 0);
  CHECK(f.Center() == Vector{10, 20});
  b.Start({4, 8});
  REQUIRE_FALSE(a.waiting());
  REQUIRE_FALSE(b.waiting());
  const Outcome outcome_a = a.End();
  const Outcome outcome_b = b.End();
  CHECK(f.Version() == 2);
  CHECK(Floats(*outcome_a.center) == Vector{15, 30});
  CHECK(outcome_a.version == 2);
  CHECK(outcome_b.center == outcome_a.center);
  CHECK(DescribeWorker(*f.model, "a").clock() == 1);
}

TEST_CASE("easgd moves the center by the sum of α(Wᵢ − θ), and every worker receives the θ before it") {
  Fixture f("easgd", {1, 0}, {{"rho", 2.5}, {"learning_rate", 0.1}});  // α = 0.25
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({5, 4});
  b.Start({-3, 8});
  CHECK(Floats(*a.End().center) == Vector{1, 0});
  CHECK(Floats(*b.End().center) == Vector{1, 0});
  CHECK(f.Center() == Vector{1, 3});  // 1 + (4 − 4)/4, 0 + (4 + 8)/4
}

TEST_CASE("averaging makes the center the mean of the round's parameters") {
  Fixture f("averaging", {100, 100});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  ModelWorker c(f.model.get(), "c");
  a.Start({1, 0});
  b.Start({2, 3});
  c.Start({6, -9});
  for (ModelWorker* worker : {&a, &b, &c}) {
    const Outcome outcome = worker->End();
    CHECK(Floats(*outcome.center) == Vector{3, -2});
    CHECK(outcome.version == 3);
  }
}

TEST_CASE("Every commit of a round is as stale as its base is old, whatever its place in the round") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Pull();
  b.Pull();
  a.Start({1});
  b.Start({1});
  CHECK(a.End().staleness == 0);
  CHECK(b.End().staleness == 0);
}

TEST_CASE("The version that a commit is answered with is that of the center after its round") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1}, /*pull=*/false);
  REQUIRE(a.waiting());
  b.Start({1}, /*pull=*/false);
  CHECK(a.End().version == 2);
  CHECK(b.End().version == 2);
  CHECK(a.Retry().version == 2);
}

TEST_CASE("Rounds with uneven numbers of batches finish: who is done leaves and is no longer waited for") {
  Fixture f("downpour", {0});
  std::vector<std::unique_ptr<ModelWorker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(std::make_unique<ModelWorker>(f.model.get(), absl::StrCat("w", i)));
  // Worker i has i + 1 windows.
  for (int round = 0; round < 4; ++round) {
    for (int i = round; i < 4; ++i) workers[i]->Start({1});
    for (int i = round; i < 4; ++i) {
      INFO("round " << round << ", worker " << i);
      REQUIRE_FALSE(workers[i]->waiting());
      CHECK(workers[i]->End().status.ok());
    }
    REQUIRE(workers[round]->Leave().ok());
  }
  CHECK(f.Version() == 1 + 2 + 3 + 4);
  CHECK(f.Center() == Vector{10});
}

TEST_CASE("A worker that leaves, fails or loses its lease in the middle of a round releases it") {
  Fixture f("averaging", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  ModelWorker gone(f.model.get(), "gone");
  a.Start({2});
  b.Start({4});
  REQUIRE(a.waiting());
  SECTION("leaves") { REQUIRE(gone.Leave().ok()); }
  SECTION("fails") { REQUIRE(gone.Leave("stuck").ok()); }
  SECTION("loses its lease") {
    f.clock.Advance(absl::Seconds(31));
    REQUIRE(a.Heartbeat().ok());
    REQUIRE(b.Heartbeat().ok());
    f.model->Tick();
  }
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().version == 2);
  CHECK(b.End().version == 2);
  CHECK(f.Center() == Vector{3});
}

TEST_CASE("A worker that has committed and then leaves in the same round still counts in it") {
  Fixture f("averaging", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({2});
  REQUIRE(a.Leave().ok());
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.Version() == 0);
  CHECK(b.Exchange({4}).version == 2);
  CHECK(f.Center() == Vector{3});
}

TEST_CASE("When the last live worker leaves, what was committed in its round is applied") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({2});
  REQUIRE(a.Leave().ok());
  REQUIRE(b.Leave().ok());
  CHECK(f.Version() == 1);
  CHECK(f.Center() == Vector{2});
}

TEST_CASE("A late joiner is waited for in the round that is under way") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  ModelWorker late(f.model.get(), "late");
  // Its first pull has nothing to wait for.
  CHECK(late.Pull().version == 0);
  b.Start({1});
  REQUIRE(a.waiting());
  REQUIRE(b.waiting());
  CHECK(late.Exchange({1}).version == 3);
  CHECK(a.End().version == 3);
  CHECK(b.End().version == 3);
}

TEST_CASE("A pull of a worker that has committed waits for the end of the round; that of a reader does not") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.set_wait(absl::Seconds(1));
  a.Start({1}, /*pull=*/false);
  f.clock.Advance(absl::Seconds(1));
  f.model->Tick();
  CHECK(a.End().status.code() == absl::StatusCode::kDeadlineExceeded);
  a.set_wait(absl::InfiniteDuration());
  a.StartPull();
  CHECK(a.waiting());
  bool answered = false;
  f.model->BeginPull({}, [&](const ExchangeAnswer& answer) { answered = answer.status.ok(); });
  CHECK(answered);
  b.Start({1});
  CHECK(a.End().version == 2);
}

TEST_CASE("A second commit in the same round waits for the next one before its bytes are asked for") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.set_wait(absl::Seconds(1));
  a.Start({1}, /*pull=*/false);
  f.clock.Advance(absl::Seconds(1));
  f.model->Tick();
  REQUIRE(a.End().committed);

  a.set_wait(absl::InfiniteDuration());
  a.StartSlowly({10});
  REQUIRE(a.waiting());
  REQUIRE_FALSE(a.may_send());
  b.Start({2});
  CHECK(f.Center() == Vector{3});
  REQUIRE(a.may_send());
  a.SendBytes();
  REQUIRE(a.waiting());
  CHECK(b.End().version == 2);
  b.Start({20});
  CHECK(a.End().version == 4);
  CHECK(f.Center() == Vector{33});
}

TEST_CASE("Bytes of a second commit in the same round, if they come nevertheless, are refused") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  const ExchangeAnswer answer =
      ExchangeAtOnce(f.model.get(), {.caller = a.caller(), .sequence = 2, .floats = 1}, MakeBuffer({1}));
  CHECK(answer.status.code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(answer.committed);
  CHECK(b.Exchange({1}).version == 2);
}

TEST_CASE("A retry within a round is folded once, and waits as the first attempt did") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  a.Cancel();
  REQUIRE(a.End().committed);
  a.StartRetry();
  REQUIRE(a.waiting());
  b.Start({1});
  CHECK(a.End().version == 2);
  CHECK(f.Center() == Vector{2});
}

TEST_CASE("A refused commit leaves the round open for its worker's next one") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  CHECK(b.Exchange({std::numeric_limits<float>::infinity()}).status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(a.waiting());
  CHECK(b.Exchange({2}).version == 2);
  CHECK(f.Center() == Vector{3});
}

TEST_CASE("A wait for a round names who has not committed") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  ModelWorker c(f.model.get(), "c");
  a.set_wait(absl::Seconds(1));
  a.Start({1});
  b.Start({1});
  f.clock.Advance(absl::Seconds(1));
  f.model->Tick();
  const Outcome outcome = a.End();
  CHECK(outcome.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(outcome.status.message()),
             Contains("waits for 'c' (clock 0)") && !Contains("'b'") && Contains("sync"));
}

TEST_CASE("A restarted worker whose old incarnation has committed in the round waits for its end") {
  Fixture f("downpour", {0});
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  ModelWorker again(f.model.get(), "a");
  CHECK(a.End().status.code() == absl::StatusCode::kAborted);
  again.StartPull();
  REQUIRE(again.waiting());
  b.Start({1});
  CHECK(b.End().version == 2);
  CHECK(again.End().version == 2);
}

TEST_CASE("500 workers wait in one round and are all released by the last commit") {
  Fixture f("downpour", {0});
  std::vector<std::unique_ptr<ModelWorker>> workers;
  for (int i = 0; i < 500; ++i) workers.push_back(std::make_unique<ModelWorker>(f.model.get(), absl::StrCat("w", i)));
  for (const auto& worker : workers) worker->Start({1});
  CHECK(std::none_of(workers.begin(), workers.end(), [](const auto& worker) { return worker->waiting(); }));
  CHECK(f.Version() == 500);
  CHECK(f.Center() == Vector{500});
}

}  // namespace
}  // namespace paramd::testing
