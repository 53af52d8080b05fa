#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

constexpr absl::Duration kLease = absl::Seconds(30);

// A model of one float, at 0, whose time the test moves.
struct Fixture {
  explicit Fixture(const std::string& algorithm = "downpour", const std::string& consistency = "async",
                   size_t max_workers = 100)
      : model(MakeModel(MakeSpec(algorithm, 1, consistency),
                        {.clock = &clock, .lease = kLease, .max_workers = max_workers, .histories = histories})) {
    Initialize(model.get(), {0});
  }

  v1::WorkerInfo::State StateOf(const std::string& worker) const { return DescribeWorker(*model, worker).state(); }

  FakeClock clock;
  const std::shared_ptr<Histories> histories = std::make_shared<Histories>();
  std::unique_ptr<Model> model;
};

v1::ReportHistoryRequest ReportOf(const Caller& caller) {
  v1::ReportHistoryRequest request;
  request.mutable_participant()->set_worker(caller.worker);
  request.mutable_participant()->set_incarnation(caller.incarnation);
  request.mutable_participant()->set_nonce(caller.nonce);
  return request;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("The model assigns incarnations from 1 upwards, for each name apart") {
  Fixture f;
  CHECK(*f.model->Join("a", 0, 1) == 1);
  CHECK(*f.model->Join("a", 0, 2) == 2);
  CHECK(*f.model->Join("b", 0, 3) == 1);
}

TEST_CASE("A join repeated with its nonce changes nothing") {
  Fixture f;
  CHECK(*f.model->Join("a", 0, 77) == 1);
  CHECK(*f.model->Join("a", 0, 77) == 1);
  CHECK(*f.model->Join("a", 0, 78) == 2);
  CHECK(f.model->Describe().workers_size() == 1);
}

TEST_CASE("A join that comes again when another has taken its place is refused, and fences nobody") {
  const uint64_t incarnation = GENERATE(as<uint64_t>(), 0, 7);
  Fixture f;
  REQUIRE(f.model->Join("a", incarnation, 77).ok());
  const auto second = f.model->Join("a", incarnation, 78);
  REQUIRE(second.ok());
  CHECK(f.model->Join("a", incarnation, 77).status().code() == absl::StatusCode::kAborted);
  CHECK(f.model->Heartbeat({.worker = "a", .incarnation = *second, .nonce = 78}).ok());
  CHECK(*f.model->Join("a", incarnation, 78) == *second);
}

TEST_CASE("A worker may bring its incarnation, and the next one assigned follows it") {
  Fixture f;
  CHECK(*f.model->Join("a", 7, 1) == 7);
  CHECK(*f.model->Join("a", 9, 2) == 9);
  CHECK(*f.model->Join("a", 0, 3) == 10);
}

TEST_CASE("A lower incarnation than the last is refused with ABORTED") {
  Fixture f;
  REQUIRE(f.model->Join("a", 7, 1).ok());
  const absl::Status status = f.model->Join("a", 6, 2).status();
  CHECK(status.code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(status), Contains("'a'") && Contains("'m'") && Contains("6") && Contains("7"));
  CHECK(f.model->Heartbeat({.worker = "a", .incarnation = 7, .nonce = 1}).ok());
}

TEST_CASE("A worker's name has 1 to 256 characters") {
  Fixture f;
  CHECK(f.model->Join("", 0, 1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.model->Join(std::string(257, 'x'), 0, 1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.model->Join(std::string(256, 'x'), 0, 1).ok());
}

TEST_CASE("A new incarnation fences the commits, pulls and heartbeats of the old one") {
  Fixture f;
  ModelWorker old(f.model.get(), "a");
  REQUIRE(old.Exchange({1}).status.ok());
  ModelWorker fresh(f.model.get(), "a");

  const absl::Status refused = old.Commit({1}).status;
  CHECK(refused.code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(refused), Contains("incarnation 1") && Contains("incarnation 2"));
  CHECK(old.Pull().status.code() == absl::StatusCode::kAborted);
  CHECK(old.Heartbeat().code() == absl::StatusCode::kAborted);
  CHECK(old.Leave().code() == absl::StatusCode::kAborted);
  CHECK(f.model->Report(ReportOf(old.caller())).code() == absl::StatusCode::kAborted);
  CHECK(f.model->FindLease(old.caller()) == nullptr);
  CHECK(f.model->Describe().version() == 1);
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);

  // The new one counts its commits from 1.
  const Outcome outcome = fresh.Exchange({1});
  CHECK(outcome.status.ok());
  CHECK(outcome.version == 2);
}

TEST_CASE("A commit whose bytes were still on their way when a new incarnation joined is refused and changes nothing") {
  Fixture f;
  ModelWorker old(f.model.get(), "a");
  old.StartSlowly({1});
  REQUIRE(old.may_send());
  ModelWorker fresh(f.model.get(), "a");
  old.SendBytes();
  CHECK(old.End().status.code() == absl::StatusCode::kAborted);
  CHECK(f.model->Describe().version() == 0);
  CHECK(Floats(*TakeSnapshot(f.model.get())) == std::vector<float>{0});
}

TEST_CASE("An exchange that waits is told ABORTED when a new incarnation of its worker joins") {
  Fixture f("downpour", "sync");
  ModelWorker other(f.model.get(), "b");
  ModelWorker old(f.model.get(), "a");
  old.Start({1});
  REQUIRE(old.waiting());
  ModelWorker fresh(f.model.get(), "a");
  REQUIRE_FALSE(old.waiting());
  const Outcome outcome = old.End();
  CHECK(outcome.status.code() == absl::StatusCode::kAborted);
  CHECK(outcome.committed);
}

TEST_CASE("A commit that waits for its turn is told ABORTED when a new incarnation of its worker joins") {
  Fixture f("aeasgd", "bounded:0");
  ModelWorker other(f.model.get(), "b");
  ModelWorker old(f.model.get(), "a");
  old.Start({1});
  REQUIRE(old.waiting());
  ModelWorker fresh(f.model.get(), "a");
  REQUIRE_FALSE(old.waiting());
  const Outcome outcome = old.End();
  CHECK(outcome.status.code() == absl::StatusCode::kAborted);
  CHECK_FALSE(outcome.committed);
  CHECK(f.model->Describe().version() == 0);
}

TEST_CASE("Another process that brings the same incarnation counts its commits from 1") {
  Fixture f;
  REQUIRE(*f.model->Join("a", 3, /*nonce=*/1) == 3);
  ExchangeCall call{
      .caller = {.worker = "a", .incarnation = 3, .nonce = 1}, .sequence = 1, .base_version = 0, .floats = 1};
  const auto commit = [&] { return ExchangeAtOnce(f.model.get(), call, MakeBuffer({1})); };
  CHECK(commit().version == 1);
  REQUIRE(*f.model->Join("a", 3, /*nonce=*/2) == 3);
  call.caller.nonce = 2;
  const ExchangeAnswer answer = commit();
  CHECK(answer.status.ok());
  CHECK(answer.version == 2);
  CHECK(f.model->Describe().version() == 2);
}

TEST_CASE("Another process that brings the same incarnation takes over: the old one is fenced, also its retries") {
  Fixture f;
  REQUIRE(*f.model->Join("a", 3, /*nonce=*/1) == 3);
  const Caller old{.worker = "a", .incarnation = 3, .nonce = 1};
  const ExchangeCall call{.caller = old, .sequence = 1, .floats = 1};
  REQUIRE(ExchangeAtOnce(f.model.get(), call, MakeBuffer({1})).status.ok());
  REQUIRE(*f.model->Join("a", 3, /*nonce=*/2) == 3);
  const ExchangeAnswer retry = ExchangeAtOnce(f.model.get(), call, MakeBuffer({1}));
  CHECK(retry.status.code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(retry.status), Contains("fenced by another process") && Contains("incarnation 3"));
  CHECK(f.model->Heartbeat(old).code() == absl::StatusCode::kAborted);
  CHECK(f.model->Describe().version() == 1);
}

TEST_CASE("An incarnation that never joined is not said to be fenced by a lower one") {
  Fixture f;
  REQUIRE(f.model->Join("a", 3, 1).ok());
  const absl::Status status = f.model->Heartbeat({.worker = "a", .incarnation = 9, .nonce = 1});
  CHECK(status.code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(status), Contains("incarnation 9") && Contains("has never joined") && !Contains("fenced"));
}

TEST_CASE("Incarnations do not wrap") {
  Fixture f;
  constexpr uint64_t kHighest = std::numeric_limits<int64_t>::max();
  CHECK(f.model->Join("a", std::numeric_limits<uint64_t>::max(), 1).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.model->Join("a", kHighest + 1, 1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(*f.model->Join("a", kHighest, 1) == kHighest);
  CHECK(f.model->Join("a", 0, 2).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(f.model->Heartbeat({.worker = "a", .incarnation = kHighest, .nonce = 1}).ok());
}

TEST_CASE("A join needs a nonce") {
  Fixture f;
  CHECK(f.model->Join("a", 0, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.model->Describe().workers_size() == 0);
}

TEST_CASE("Whoever is gone longest is forgotten first, and an old process of a forgotten name stays fenced") {
  Fixture f("downpour", "async", /*max_workers=*/2);
  auto z = std::make_unique<ModelWorker>(f.model.get(), "z");
  ModelWorker a(f.model.get(), "a");
  REQUIRE(f.model->Join("z", 5, 50).ok());
  const Caller old{.worker = "z", .incarnation = 5, .nonce = 50};
  REQUIRE(ExchangeAtOnce(f.model.get(), {.caller = old, .sequence = 1, .floats = 1}, MakeBuffer({1})).status.ok());
  REQUIRE(f.model->Leave(old, "").ok());
  REQUIRE(a.Leave().ok());
  REQUIRE(f.model->Join("c", 0, 1).ok());
  const v1::ModelInfo info = f.model->Describe();
  CHECK(info.workers(0).worker() == "a");
  CHECK(info.workers(1).worker() == "c");

  // Unknown names begin above whatever was forgotten, so that no old process can pass for a new one.
  CHECK(f.model->Join("z", 5, 50).status().code() == absl::StatusCode::kAborted);
  CHECK(f.model->Join("z", 4, 51).status().code() == absl::StatusCode::kAborted);
  const auto again = f.model->Join("z", 0, 52);
  REQUIRE(again.ok());
  CHECK(*again == 6);
  CHECK(f.model->Heartbeat(old).code() == absl::StatusCode::kAborted);
  const ExchangeCall first{.caller = {.worker = "z", .incarnation = 6, .nonce = 52}, .sequence = 1, .floats = 1};
  CHECK(ExchangeAtOnce(f.model.get(), first, MakeBuffer({1})).version == 2);
}

TEST_CASE("Whoever waits and is forgotten meanwhile is told so") {
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", 1), {.clock = &clock, .lease = kLease, .max_workers = 1});
  ModelWorker a(model.get(), "a");
  a.StartPull();
  REQUIRE(a.waiting());
  clock.Advance(kLease + absl::Seconds(1));
  model->Tick();
  REQUIRE(a.waiting());
  REQUIRE(model->Join("b", 0, 1).ok());
  REQUIRE_FALSE(a.waiting());
  const absl::Status status = a.End().status;
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Text(status), Contains("forgotten"));
}

TEST_CASE("What forgotten names had counts for those names alone") {
  Fixture f("downpour", "async", /*max_workers=*/1);
  constexpr uint64_t kHighest = std::numeric_limits<int64_t>::max();
  REQUIRE(f.model->Join("a", kHighest, 1).ok());
  REQUIRE(f.model->Leave({.worker = "a", .incarnation = kHighest, .nonce = 1}, "").ok());
  REQUIRE(*f.model->Join("b", 0, 2) == 1);
  REQUIRE(f.model->Leave({.worker = "b", .incarnation = 1, .nonce = 2}, "").ok());
  // Both forgotten by now: a task that brings its own low number under a new name, and one of a forgotten name.
  REQUIRE(*f.model->Join("c", 1, 3) == 1);
  REQUIRE(f.model->Leave({.worker = "c", .incarnation = 1, .nonce = 3}, "").ok());
  CHECK(f.model->Join("a", 0, 4).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(f.model->Join("b", 1, 5).status().code() == absl::StatusCode::kAborted);
  CHECK(*f.model->Join("b", 0, 6) == 2);
}

TEST_CASE("Who has committed in a round under way is not forgotten, so that nobody counts twice in it") {
  Fixture f("averaging", "sync", /*max_workers=*/3);
  ModelWorker b(f.model.get(), "b");
  ModelWorker c(f.model.get(), "c");
  ModelWorker a(f.model.get(), "a");
  a.Start({10});
  REQUIRE(a.Leave().ok());
  CHECK(f.model->Join("d", 0, 1).status().code() == absl::StatusCode::kResourceExhausted);
  b.Start({1});
  c.Start({1});
  CHECK(Floats(*TakeSnapshot(f.model.get())) == std::vector<float>{4});
  CHECK(f.model->Join("d", 0, 1).ok());
}

TEST_CASE("A report that comes as its model is closed leaves no history behind") {
  // Closes the model between the two halves of the report.
  class Closer : public EventSink {
   public:
    bool Wants(ModelEvent::Kind kind) const override { return kind == ModelEvent::Kind::kReturned; }
    void Tell(const ModelEvent&) override { model->Close(absl::NotFoundError("deleted")); }
    Model* model = nullptr;
  };
  FakeClock clock;
  Closer closer;
  Budget budget;
  const auto histories = std::make_shared<Histories>(HistoriesOptions{.budget = &budget});
  const auto model =
      MakeModel(MakeSpec("downpour", 1), {.clock = &clock, .lease = kLease, .histories = histories, .events = &closer});
  closer.model = model.get();
  ModelWorker a(model.get(), "a");
  clock.Advance(2 * kLease);
  model->Tick();
  v1::ReportHistoryRequest report = ReportOf(a.caller());
  report.add_records();
  model->Report(report).IgnoreError();
  CHECK(budget.used_bytes(BudgetKind::kHistories) == 0);
}

TEST_CASE("A report of more records than anybody needs to send at once is refused") {
  const auto model = MakeModel(MakeSpec("downpour", 1));
  ModelWorker a(model.get(), "a");
  v1::ReportHistoryRequest report;
  report.mutable_participant()->set_worker("a");
  report.mutable_participant()->set_incarnation(a.caller().incarnation);
  report.mutable_participant()->set_nonce(a.caller().nonce);
  for (int i = 0; i < 10'000; ++i) report.add_records();
  CHECK(model->Report(report).ok());
  report.add_records();
  CHECK(model->Report(report).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("A tick of a closed model expires nobody") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  f.model->Close(absl::NotFoundError("deleted"));
  f.clock.Advance(2 * kLease);
  f.model->Tick();
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
}

TEST_CASE("What the daemon has overslept counts against nobody's lease") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  f.clock.Advance(kLease / 2);
  // Suspended for two leases.
  f.clock.Advance(2 * kLease);
  f.model->Tick(2 * kLease);
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
  CHECK(DescribeWorker(*f.model, "a").lease_remaining_s() == Approx(15));
  f.clock.Advance(kLease / 2 + absl::Milliseconds(1));
  f.model->Tick();
  CHECK(f.StateOf("a") == v1::WorkerInfo::EXPIRED);
}

// Told when its worker is gone.
class Receiver : public ExchangeOwner {
 public:
  void OnGone(const absl::Status& why) override { gone.push_back(why); }

  std::vector<absl::Status> gone;
};

TEST_CASE("Whoever receives a commit is told when its worker leaves, expires or is fenced, or its model is deleted") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  const auto receiver = std::make_shared<Receiver>();
  const ExchangeCall call{.caller = a.caller(), .sequence = 1, .floats = 1, .owner = receiver};
  bool begun = false;
  f.model->BeginCommit(call, [&](const ExchangeAnswer& answer) { begun = answer.status.ok(); });
  REQUIRE(begun);
  REQUIRE(receiver->gone.empty());
  SECTION("leaves") {
    REQUIRE(a.Leave().ok());
    REQUIRE(receiver->gone.size() == 1);
    CHECK(receiver->gone[0].code() == absl::StatusCode::kFailedPrecondition);
  }
  SECTION("expires") {
    f.clock.Advance(2 * kLease);
    f.model->Tick();
    REQUIRE(receiver->gone.size() == 1);
    CHECK(receiver->gone[0].code() == absl::StatusCode::kUnavailable);
  }
  SECTION("is fenced") {
    ModelWorker again(f.model.get(), "a");
    REQUIRE(receiver->gone.size() == 1);
    CHECK(receiver->gone[0].code() == absl::StatusCode::kAborted);
  }
  SECTION("the model is deleted") {
    f.model->Close(absl::NotFoundError("deleted"));
    REQUIRE(receiver->gone.size() == 1);
    CHECK(receiver->gone[0].code() == absl::StatusCode::kNotFound);
  }
  SECTION("not when the bytes have come") {
    REQUIRE(ExchangeAtOnce(f.model.get(), call, MakeBuffer({1})).status.ok());
    REQUIRE(a.Leave().ok());
    CHECK(receiver->gone.empty());
  }
}

TEST_CASE("A description has no workers unless they are asked for, but says how many there are") {
  Fixture f("downpour", "sync");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  ModelWorker c(f.model.get(), "c");
  REQUIRE(c.Leave().ok());
  a.Start({1});
  const v1::ModelInfo info = f.model->Describe(/*workers=*/false);
  CHECK(info.workers_size() == 0);
  CHECK(info.known_workers() == 3);
  CHECK(info.live_workers() == 2);
  CHECK(info.waiting_workers() == 1);
  CHECK(info.commits() == 1);
  CHECK(info.id() == f.model->id());
}

TEST_CASE("More workers than are described in one go are all described, in order") {
  Fixture f("downpour", "async", /*max_workers=*/1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(f.model->Join(absl::StrCat("w", 1000 + i), 0, 1).ok());
  const v1::ModelInfo info = f.model->Describe();
  REQUIRE(info.workers_size() == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(info.workers(i).worker() == absl::StrCat("w", 1000 + i));
}

TEST_CASE("Calls of a worker that never joined are NOT_FOUND") {
  Fixture f;
  const Caller caller{.worker = "a", .incarnation = 1, .nonce = 1};
  CHECK(f.model->Heartbeat(caller).code() == absl::StatusCode::kNotFound);
  CHECK(f.model->Leave(caller, "").code() == absl::StatusCode::kNotFound);
  CHECK(f.model->FindLease(caller) == nullptr);
  ExchangeAnswer answer;
  f.model->BeginCommit({.caller = caller, .sequence = 1, .floats = 1},
                       [&](ExchangeAnswer a) { answer = std::move(a); });
  CHECK(answer.status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Text(answer.status), Contains("'a'") && Contains("join first"));
}

TEST_CASE("A worker that leaves is shown as left, and as failed with its error") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  REQUIRE(a.Leave().ok());
  REQUIRE(b.Leave("its data has 27 columns, not 28").ok());
  CHECK(f.StateOf("a") == v1::WorkerInfo::LEFT);
  CHECK(f.StateOf("b") == v1::WorkerInfo::FAILED);
  CHECK(DescribeWorker(*f.model, "b").message() == "its data has 27 columns, not 28");
  CHECK(DescribeWorker(*f.model, "b").lease_remaining_s() == 0);
}

TEST_CASE("A long error is shortened between two characters") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  std::string error = "x";
  while (error.size() < 10'000) error += "θ";
  REQUIRE(a.Leave(error).ok());
  const std::string message = DescribeWorker(*f.model, "a").message();
  CHECK(message.size() > 1018);
  CHECK(message.size() <= 1024);
  CHECK(IsUtf8(message));
  CHECK_THAT(message, Catch::Matchers::StartsWith("xθ") && Catch::Matchers::Contains("θ ... θ"));
}

TEST_CASE("A worker whose lease ran out and then leaves has left, and the first reason stays") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  f.clock.Advance(2 * kLease);
  f.model->Tick();
  REQUIRE(f.StateOf("a") == v1::WorkerInfo::EXPIRED);
  REQUIRE(a.Leave("no data").ok());
  REQUIRE(a.Leave().ok());
  CHECK(f.StateOf("a") == v1::WorkerInfo::FAILED);
  CHECK(DescribeWorker(*f.model, "a").message() == "no data");
}

TEST_CASE("A worker that left may leave again, but must join before anything else") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  REQUIRE(a.Leave().ok());
  CHECK(a.Leave().ok());
  const absl::Status status = a.Commit({1}).status;
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(status), Contains("has left") && Contains("join again"));
  CHECK(a.Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.StateOf("a") == v1::WorkerInfo::LEFT);

  ModelWorker again(f.model.get(), "a");
  CHECK(again.Commit({1}).status.ok());
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
}

TEST_CASE("A lease runs out once nothing has renewed it for its length") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  f.clock.Advance(kLease);
  f.model->Tick();
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
  CHECK(DescribeWorker(*f.model, "a").lease_remaining_s() == 0);
  REQUIRE(b.Heartbeat().ok());
  f.clock.Advance(absl::Milliseconds(1));
  f.model->Tick();
  CHECK(f.StateOf("a") == v1::WorkerInfo::EXPIRED);
  CHECK_THAT(DescribeWorker(*f.model, "a").message(), Contains("30s"));
  CHECK(f.StateOf("b") == v1::WorkerInfo::LIVE);
  CHECK(DescribeWorker(*f.model, "b").lease_remaining_s() == Approx(29.999));
}

TEST_CASE("Every call of a worker renews its lease") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  const auto check = [&](const char* what, auto call) {
    INFO(what);
    f.clock.Advance(kLease);
    call();
    f.clock.Advance(kLease);
    f.model->Tick();
    CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
  };
  check("heartbeat", [&] { CHECK(a.Heartbeat().ok()); });
  check("pull", [&] { CHECK(a.Pull().status.ok()); });
  check("commit", [&] { CHECK(a.Commit({1}).status.ok()); });
  check("acknowledge", [&] { a.Acknowledge(); });
  check("the beginning of a commit", [&] { a.StartSlowly({1}); });
  check("a chunk of a commit", [&] { f.model->FindLease(a.caller())->Renew(f.clock.Now()); });
  check("report", [&] { CHECK(f.model->Report(ReportOf(a.caller())).ok()); });
}

TEST_CASE("Chunks of a fenced incarnation don't keep the new one alive") {
  Fixture f;
  ModelWorker old(f.model.get(), "a");
  const auto lease = f.model->FindLease(old.caller());
  ModelWorker fresh(f.model.get(), "a");
  f.clock.Advance(kLease + absl::Seconds(1));
  lease->Renew(f.clock.Now());
  f.model->Tick();
  CHECK(f.StateOf("a") == v1::WorkerInfo::EXPIRED);
}

TEST_CASE("A worker whose lease ran out is live again with its next call") {
  Fixture f;
  ModelWorker a(f.model.get(), "a");
  const auto expire = [&] {
    f.clock.Advance(2 * kLease);
    f.model->Tick();
    REQUIRE(f.StateOf("a") == v1::WorkerInfo::EXPIRED);
  };
  expire();
  CHECK(a.Heartbeat().ok());
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
  CHECK(DescribeWorker(*f.model, "a").message().empty());
  expire();
  CHECK(a.Exchange({1}).version == 1);
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
  expire();
  // It still knows the last commit.
  CHECK(a.Retry().version == 1);
  CHECK(f.model->Describe().version() == 1);
  CHECK(f.StateOf("a") == v1::WorkerInfo::LIVE);
}

TEST_CASE(
    "Past max_workers a worker that is no longer live is forgotten, and with all of them live a join is refused") {
  Fixture f("downpour", "async", /*max_workers=*/2);
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  const absl::Status status = f.model->Join("c", 0, 1).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Text(status), Contains("--max_workers") && Contains("2 live workers"));
  v1::ReportHistoryRequest report = ReportOf(a.caller());
  report.add_records();
  REQUIRE(f.model->Report(report).ok());
  REQUIRE(a.Leave().ok());
  CHECK(f.model->Join("c", 0, 1).ok());
  v1::GetHistoryReply history;
  REQUIRE(f.histories->Read({f.model->id()}, {}, &history).ok());
  CHECK(history.workers_size() == 0);
  const v1::ModelInfo info = f.model->Describe();
  REQUIRE(info.workers_size() == 2);
  CHECK(info.workers(0).worker() == "b");
  CHECK(info.workers(1).worker() == "c");
}

TEST_CASE("Closing answers whoever waits, and every later call") {
  Fixture f("downpour", "sync");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  a.Start({1});
  REQUIRE(a.waiting());
  f.model->Close(absl::NotFoundError("model 'm' was deleted"));
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().status == absl::NotFoundError("model 'm' was deleted"));
  f.model->Close(absl::UnavailableError("a second reason"));

  CHECK(b.Exchange({1}).status.code() == absl::StatusCode::kNotFound);
  CHECK(b.Pull().status.code() == absl::StatusCode::kNotFound);
  CHECK(b.Heartbeat().code() == absl::StatusCode::kNotFound);
  CHECK(b.Leave().code() == absl::StatusCode::kNotFound);
  CHECK(f.model->Join("c", 0, 1).status().code() == absl::StatusCode::kNotFound);
  CHECK(TryInitialize(f.model.get(), MakeBuffer({0})).code() == absl::StatusCode::kNotFound);
  ExchangeAnswer answer;
  f.model->BeginPull({}, [&](ExchangeAnswer got) { answer = std::move(got); });
  CHECK(answer.status.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("A model that is destroyed answers whoever waits with UNAVAILABLE") {
  Fixture f("downpour", "sync");
  REQUIRE(f.model->Join("a", 0, 1).ok());
  REQUIRE(f.model->Join("b", 0, 1).ok());
  absl::Status status;
  f.model->Exchange({.caller = {.worker = "a", .incarnation = 1, .nonce = 1}, .sequence = 1, .floats = 1},
                    MakeBuffer({1}), Reservation(), [&](const ExchangeAnswer& answer) { status = answer.status; });
  REQUIRE(status.ok());
  f.model.reset();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("A callback may call back into the model") {
  Fixture f("downpour", "sync");
  ModelWorker a(f.model.get(), "a");
  bool called = false;
  f.model->Exchange({.caller = a.caller(), .sequence = 1, .floats = 1}, MakeBuffer({1}), Reservation(),
                    [&](const ExchangeAnswer&) {
                      called = f.model->Describe().version() == 1 && a.Leave().ok();
                      f.model->Tick();
                    });
  CHECK(called);
}

}  // namespace
}  // namespace paramd::testing
