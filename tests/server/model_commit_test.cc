#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

using Vector = std::vector<float>;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

Vector Center(Model* model) { return Floats(*TakeSnapshot(model)); }

// A model of two floats, at 0.
std::unique_ptr<Model> MakeInitialized(const std::string& algorithm, const std::string& consistency = "async",
                                       const Hyperparameters& hyperparameters = {}) {
  auto model = MakeModel(MakeSpec(algorithm, 2, consistency, hyperparameters));
  Initialize(model.get(), {0, 0});
  return model;
}

// α = 0.25
std::unique_ptr<Model> MakeElastic(const std::string& consistency = "async") {
  return MakeInitialized("aeasgd", consistency, {{"rho", 2.5}, {"learning_rate", 0.1}});
}

TEST_CASE("A commit is applied once and moves the version by one") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  const Outcome outcome = a.Commit({1, 2});
  CHECK(outcome.status.ok());
  CHECK(outcome.committed);
  CHECK(outcome.version == 1);
  CHECK(outcome.center == nullptr);
  CHECK(Center(model.get()) == Vector{1, 2});
  CHECK(model->Describe().version() == 1);
  CHECK(DescribeWorker(*model, "a").commits() == 1);
  CHECK(DescribeWorker(*model, "a").clock() == 1);
}

TEST_CASE("An exchange answers with the center after its commit, and moves the worker's base version there") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  CHECK(DescribeWorker(*model, "a").base_version() == -1);
  const Outcome outcome = a.Exchange({1, 2});
  REQUIRE(outcome.status.ok());
  CHECK(outcome.version == 1);
  REQUIRE(outcome.center != nullptr);
  CHECK(Floats(*outcome.center) == Vector{1, 2});
  CHECK(DescribeWorker(*model, "a").base_version() == 1);
  CHECK(DescribeWorker(*model, "a").pulls() == 1);
}

TEST_CASE("A retried commit is applied once and answered with the first answer") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.Pull();
  b.Commit({10, 10});
  const Outcome first = a.Commit({1, 2});
  REQUIRE(first.status.ok());
  REQUIRE(first.staleness == 1);
  b.Commit({10, 10});
  for (int i = 0; i < 2; ++i) {
    const Outcome again = a.Retry();
    CHECK(again.status.ok());
    CHECK(again.committed);
    CHECK(again.version == first.version);
    CHECK(again.staleness == first.staleness);
    // Also one that comes whole.
    const ExchangeAnswer whole =
        ExchangeAtOnce(model.get(), {.caller = a.caller(), .sequence = a.sequence(), .floats = 2}, MakeBuffer({1, 2}));
    CHECK(whole.committed);
    CHECK(whole.version == first.version);
    CHECK(whole.staleness == first.staleness);
  }
  CHECK(model->Describe().version() == 3);
  CHECK(Center(model.get()) == Vector{21, 22});
  CHECK(DescribeWorker(*model, "a").commits() == 1);
}

TEST_CASE("A retry whose bytes arrive after all does not apply them again") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Commit({1, 2}).status.ok());
  const ExchangeAnswer answer = ExchangeAtOnce(
      model.get(), {.caller = a.caller(), .sequence = 1, .base_version = 0, .floats = 2}, MakeBuffer({1, 2}));
  CHECK(answer.status.ok());
  CHECK(answer.committed);
  CHECK(answer.version == 1);
  CHECK(Center(model.get()) == Vector{1, 2});
}

TEST_CASE("A commit older than the last one is refused") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Commit({1, 1}).status.ok());
  REQUIRE(a.Commit({1, 1}).status.ok());
  ExchangeAnswer answer;
  model->BeginCommit({.caller = a.caller(), .sequence = 1, .floats = 2},
                     [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(answer.status), Contains("commit 1") && Contains("commit 2") && Contains("'a'"));
  CHECK(model->Describe().version() == 2);
}

TEST_CASE("Sequences may have gaps, but count from 1") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  const auto commit = [&](uint64_t sequence) {
    return ExchangeAtOnce(model.get(), {.caller = a.caller(), .sequence = sequence, .floats = 2}, MakeBuffer({1, 1}))
        .status;
  };
  CHECK(commit(0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(commit(5).ok());
  CHECK(commit(100).ok());
  CHECK(model->Describe().version() == 2);
}

TEST_CASE("A worker may ask again for the answer to its last commit, without sending it, and for no earlier one") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({1, 2}).status.ok());
  a.StartAskAgain();
  const Outcome again = a.End();
  CHECK(again.status.ok());
  CHECK(again.committed);
  CHECK(again.version == 1);
  CHECK(model->Describe().version() == 1);

  REQUIRE(a.Exchange({1, 2}).status.ok());
  ExchangeAnswer answer;
  model->Await({.caller = a.caller(), .sequence = 1, .pull = true},
               [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(answer.status), Contains("commit 1") && Contains("last commit is 2"));
}

TEST_CASE("A commit that was not applied is said not to be, once and for all: it may come later and is refused then") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Commit({1, 2}).status.ok());
  a.StartSlowly({1, 2});
  REQUIRE(a.may_send());
  ExchangeAnswer answer{.status = absl::UnknownError(""), .committed = true};
  model->Await({.caller = a.caller(), .sequence = 2, .pull = true},
               [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.ok());
  CHECK_FALSE(answer.committed);
  CHECK(answer.center == nullptr);

  a.SendBytes();
  const Outcome late = a.End();
  CHECK(late.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(late.committed);
  CHECK_THAT(Text(late.status), Contains("commit 2") && Contains("told that it had not been applied"));
  CHECK(model->Describe().version() == 1);
  CHECK(a.Commit({1, 2}).version == 2);
}

TEST_CASE("Staleness is the version when the commit is applied, not when it begins, minus the base version") {
  const auto model = MakeInitialized("dynsgd");
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  REQUIRE(a.Pull().version == 0);
  a.StartSlowly({12, 12});
  REQUIRE(a.may_send());
  for (int i = 0; i < 2; ++i) REQUIRE(b.Exchange({0, 0}).staleness == 0);
  a.SendBytes();
  const Outcome outcome = a.End();
  CHECK(outcome.staleness == 2);
  CHECK(Floats(*outcome.center) == Vector{4, 4});  // 12/(2 + 1)

  const v1::ModelInfo info = model->Describe();
  REQUIRE(info.staleness_histogram_size() == 3);
  CHECK(info.staleness_histogram(0) == 2);
  CHECK(info.staleness_histogram(1) == 0);
  CHECK(info.staleness_histogram(2) == 1);
  CHECK(info.mean_staleness() == Approx(2.0 / 3));
  CHECK(DescribeWorker(*model, "a").mean_staleness() == 2);
  CHECK(DescribeWorker(*model, "b").mean_staleness() == 0);
}

TEST_CASE("The last entry of the staleness histogram holds all larger ones too") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  a.Pull();
  for (int i = 0; i < 70; ++i) REQUIRE(a.Commit({0, 0}).staleness == i);
  const v1::ModelInfo info = model->Describe();
  REQUIRE(info.staleness_histogram_size() == 64);
  CHECK(info.staleness_histogram(62) == 1);
  CHECK(info.staleness_histogram(63) == 7);
}

TEST_CASE("A commit that is not based on a pull counts as made from the first center") {
  const auto model = MakeInitialized("dynsgd");
  ModelWorker a(model.get(), "a");
  CHECK(a.Commit({1, 1}).staleness == 0);
  CHECK(a.Commit({1, 1}).staleness == 1);
  for (const int64_t absent : {int64_t{0}, int64_t{-7}, std::numeric_limits<int64_t>::min()}) {
    const auto other = MakeInitialized("dynsgd");
    ModelWorker b(other.get(), "b");
    REQUIRE(b.Exchange({0, 0}).status.ok());
    b.set_base_version(absent);
    CHECK(b.Commit({1, 1}).staleness == 1);
    CHECK(Center(other.get()) == Vector{0.5, 0.5});
  }
}

TEST_CASE("A base version that the center has not reached is refused") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  a.set_base_version(1);
  const absl::Status status = a.Commit({1, 1}).status;
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Text(status), Contains("base version 1") && Contains("only at version 0"));
  CHECK(model->Describe().version() == 0);
}

TEST_CASE("A commit with a NaN or an infinity is refused: the center stays bit-identical, and both counters move") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity());
  const std::string algorithm = GENERATE("downpour", "aeasgd", "averaging");
  INFO(algorithm << " " << bad);
  const auto model = MakeInitialized(algorithm);
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.set_wait(absl::ZeroDuration());
  a.Start({0.1f, -0.7f});
  if (algorithm == "averaging") REQUIRE(b.Commit({1, 1}).status.ok());
  REQUIRE(a.End().status.ok());
  const auto before = TakeSnapshot(model.get());
  const int64_t version = model->Describe().version();

  const Outcome outcome = b.Exchange({1, bad});
  CHECK(outcome.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(outcome.committed);
  CHECK_THAT(Text(outcome.status), Contains("'b'") && Contains("'m'") && Contains("tensor 'w' at [1]") &&
                                       Contains("diverged") && Contains("learning rate"));
  // The very same snapshot: nothing was even begun.
  CHECK(TakeSnapshot(model.get()) == before);
  CHECK(model->Describe().version() == version);
  CHECK(model->Describe().rejected() == 1);
  CHECK(DescribeWorker(*model, "b").rejected() == 1);
  CHECK(DescribeWorker(*model, "a").rejected() == 0);
}

TEST_CASE("A refused commit uses no sequence up: the same one may follow with other values") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  const auto commit = [&](float value) {
    return ExchangeAtOnce(model.get(), {.caller = a.caller(), .sequence = 1, .floats = 2}, MakeBuffer({value, 1}))
        .status;
  };
  CHECK(commit(NAN).code() == absl::StatusCode::kInvalidArgument);
  CHECK(commit(1).ok());
  CHECK(model->Describe().version() == 1);
}

TEST_CASE("A commit of the wrong length is refused before its bytes are received, and counted") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  const size_t length = GENERATE(1, 3);
  const absl::Status status = a.Commit(Vector(length, 1)).status;
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Text(status), Contains("model 'm' has 2") && Contains("another network") && Contains("paramctl show"));
  CHECK(model->Describe().version() == 0);
  CHECK(model->Describe().rejected() == 1);
  CHECK(DescribeWorker(*model, "a").rejected() == 1);
}

TEST_CASE("A commit to a model without a center is refused, and counted") {
  const auto model = MakeModel(MakeSpec("downpour", 2));
  ModelWorker a(model.get(), "a");
  const absl::Status status = a.Commit({1, 1}).status;
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(status), Contains("no center yet") && Contains("initialize"));
  CHECK(model->Describe().rejected() == 1);
  CHECK_FALSE(model->Describe().initialized());
}

TEST_CASE("What the transport refuses is counted with the rest") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  const absl::Status why = absl::InvalidArgumentError("a chunk with a gap before it");
  model->CountRejected(a.caller(), why);
  model->CountRejected({.worker = "nobody", .incarnation = 1, .nonce = 1}, why);
  CHECK(model->Describe().rejected() == 2);
  CHECK(DescribeWorker(*model, "a").rejected() == 1);
}

TEST_CASE("An elastic exchange answers with the center as it was before its own commit") {
  const auto model = MakeElastic();
  ModelWorker a(model.get(), "a");
  const Outcome first = a.Exchange({4, 8});
  CHECK(Floats(*first.center) == Vector{0, 0});
  CHECK(first.version == 0);
  CHECK(Center(model.get()) == Vector{1, 2});  // 0 + (4 - 0)/4
  const Outcome second = a.Exchange({5, 6});
  CHECK(Floats(*second.center) == Vector{1, 2});
  CHECK(Center(model.get()) == Vector{2, 3});
}

TEST_CASE("A retried elastic exchange gets the same center until it is acknowledged, and is refused after that") {
  const auto model = MakeElastic();
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  REQUIRE(a.Exchange({4, 8}).status.ok());
  REQUIRE(b.Exchange({100, 100}).status.ok());
  const Outcome again = a.Retry();
  REQUIRE(again.status.ok());
  CHECK(Floats(*again.center) == Vector{0, 0});
  CHECK(again.version == 0);
  a.StartAskAgain();
  CHECK(Floats(*a.End().center) == Vector{0, 0});
  CHECK(model->Describe().version() == 2);

  a.Acknowledge();
  const Outcome late = a.Retry();
  CHECK(late.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(late.committed);
  CHECK_THAT(Text(late.status), Contains("no longer held") && Contains("pull instead"));
  CHECK(model->Describe().version() == 2);

  const Outcome pulled = a.Pull();
  REQUIRE(pulled.status.ok());
  CHECK(pulled.version == 2);
}

TEST_CASE("An acknowledgement of another commit than the last lets go of nothing") {
  const auto model = MakeElastic();
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({4, 8}).status.ok());
  Caller other = a.caller();
  model->Acknowledge(other, 7);
  other.incarnation = 2;
  model->Acknowledge(other, 1);
  model->Acknowledge({.worker = "b", .incarnation = 1, .nonce = 1}, 1);
  CHECK(a.Retry().status.ok());
}

TEST_CASE("A kept answer is given up when its worker leaves or a new incarnation of it joins") {
  const auto model = MakeElastic();
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({4, 8}).status.ok());
  CHECK(model->Describe().pinned_bytes() == 2 * sizeof(float));
  SECTION("leaves") { REQUIRE(a.Leave().ok()); }
  SECTION("new incarnation") { ModelWorker fresh(model.get(), "a"); }
  CHECK(model->Describe().pinned_bytes() == 0);
}

TEST_CASE("An elastic commit without a pull keeps no answer") {
  const auto model = MakeElastic();
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({4, 8}).status.ok());
  REQUIRE(a.Commit({4, 8}).status.ok());
  CHECK(model->Describe().pinned_bytes() == 0);
}

TEST_CASE("A pull that comes late, for a commit that others have followed, does not move the worker's base") {
  const auto model = MakeInitialized("adaptive_adag");
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Pull().status.ok());
  REQUIRE(a.Exchange({1, 1}).status.ok());
  REQUIRE(a.Exchange({1, 1}).status.ok());
  absl::Status late;
  model->Pull({.caller = a.caller(), .sequence = 1, .pull = true}, Reservation(),
              [&](const ExchangeAnswer& answer) { late = answer.status; });
  CHECK(late.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(DescribeWorker(*model, "a").base_version() == 2);
}

TEST_CASE("adaptive_adag pins the center that each worker pulled last, and damps by how far it has moved since") {
  const auto model = MakeInitialized("adaptive_adag", "async", {{"eta", 4}});
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  REQUIRE(a.Pull().version == 0);
  REQUIRE(b.Pull().version == 0);
  CHECK(model->Describe().pinned_bytes() == 0);
  REQUIRE(b.Exchange({2, 0}).version == 1);
  CHECK(Center(model.get()) == Vector{2, 0});
  // The center of version 0 is held for a.
  CHECK(model->Describe().pinned_bytes() == 2 * sizeof(float));
  REQUIRE(a.Commit({1, 1}).staleness == 1);
  CHECK(Center(model.get()) == Vector{2.5, 1});  // 2 + 1/(1 + 2²/4), 0 + 1
}

TEST_CASE("adaptive_adag refuses a commit whose base it no longer holds, and goes on after a pull") {
  const auto model = MakeInitialized("adaptive_adag");
  ModelWorker a(model.get(), "a");
  SECTION("it never pulled") {}
  SECTION("it claims another base") {
    a.Exchange({1, 1});
    a.Pull();
    a.Commit({1, 1});
    a.set_base_version(1);
  }
  const int64_t version = model->Describe().version();
  const absl::Status status = a.Commit({1, 1}).status;
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(status), Contains("adaptive_adag") && Contains("pull and train again"));
  CHECK(model->Describe().version() == version);
  REQUIRE(a.Pull().status.ok());
  CHECK(a.Commit({1, 1}).status.ok());
}

TEST_CASE("adaptive_adag lets go of the base of a worker whose lease ran out") {
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("adaptive_adag", 2), {.clock = &clock, .lease = absl::Seconds(30)});
  Initialize(model.get(), {0, 0});
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.Pull();
  b.Pull();
  b.Exchange({1, 1});
  REQUIRE(model->Describe().pinned_bytes() > 0);
  clock.Advance(absl::Seconds(31));
  REQUIRE(b.Heartbeat().ok());
  model->Tick();
  CHECK(model->Describe().pinned_bytes() == 0);
  CHECK(a.Commit({1, 1}).status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A reader pulls without having joined, and moves nothing") {
  const auto model = MakeInitialized("downpour");
  ModelWorker a(model.get(), "a");
  a.Commit({1, 2});
  ExchangeAnswer answer{.status = absl::UnknownError("")};
  model->BeginPull({}, [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.ok());
  CHECK_FALSE(answer.committed);
  model->Pull({}, Reservation(), [&](ExchangeAnswer got) { answer = std::move(got); });
  REQUIRE(answer.status.ok());
  CHECK(answer.version == 1);
  CHECK(Floats(*answer.center->snapshot) == Vector{1, 2});
  CHECK(model->Describe().workers_size() == 1);
}

TEST_CASE("A reader may not commit") {
  const auto model = MakeInitialized("downpour");
  ExchangeAnswer answer;
  model->BeginCommit({.sequence = 1, .floats = 2}, [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.code() == absl::StatusCode::kNotFound);
  answer = ExchangeAtOnce(model.get(), {.sequence = 1, .floats = 2}, MakeBuffer({1, 1}));
  CHECK(answer.status.code() == absl::StatusCode::kNotFound);
  CHECK(model->Describe().version() == 0);
}

TEST_CASE("Training time counts from the first join to the last commit") {
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", 2), {.clock = &clock});
  Initialize(model.get(), {0, 0});
  ModelWorker a(model.get(), "a");
  CHECK(model->Describe().training_time_s() == 0);
  clock.Advance(absl::Seconds(10));
  ModelWorker b(model.get(), "b");
  b.Commit({1, 1});
  clock.Advance(absl::Seconds(5));
  CHECK(model->Describe().training_time_s() == Approx(10));
}

}  // namespace
}  // namespace paramd::testing
