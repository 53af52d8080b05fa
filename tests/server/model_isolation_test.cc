// An algorithm that is slow on purpose: while it applies a commit, no call but those that need its center waits.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "server/models.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

// Closed, it holds every merge and every finish of the algorithm below.
class Gate {
 public:
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  void Open() {
    MutexLock lock(&mutex_);
    closed_ = false;
    changed_.SignalAll();
  }
  void Pass() {
    MutexLock lock(&mutex_);
    ++inside_;
    changed_.SignalAll();
    while (closed_) changed_.Wait(&mutex_);
    --inside_;
  }
  void AwaitInside() {
    MutexLock lock(&mutex_);
    while (inside_ == 0) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

Gate& TheGate() {
  static Gate gate;
  return gate;
}

// Answers before the commit or after.
template <bool kBefore>
class SlowHalf : public ServerHalf {
 public:
  bool answers_before_commit() const override { return kBefore; }
  void Finish(const RoundInfo& round, const FinishPiece& piece) const override {
    TheGate().Pass();
    ServerHalf::Finish(round, piece);
  }
};

class NoWorkerHalf : public WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

template <bool kBefore>
Algorithm Slow() {
  return {.name = kBefore ? "slow_elastic" : "slow_on_purpose",
          .description = "holds every commit until the test lets it go",
          .make_server = [](const Hyperparameters&) { return std::make_unique<SlowHalf<kBefore>>(); },
          .make_worker = [](const Hyperparameters&) { return std::make_unique<NoWorkerHalf>(); }};
}

const registry_internal::Registration kSlow(kAlgorithmInterfaceVersion, Slow<false>);
const registry_internal::Registration kSlowElastic(kAlgorithmInterfaceVersion, Slow<true>);

// Fails the test if `call` has not returned within a minute; opens the gate then, so that the test can end.
void MustNotWait(const std::string& what, const std::function<void()>& call) {
  INFO(what);
  std::future<void> done = std::async(std::launch::async, call);
  const bool returned = done.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  if (!returned) TheGate().Open();
  done.get();
  REQUIRE(returned);
}

struct Fixture {
  explicit Fixture(const std::string& consistency, ModelsOptions options = {},
                   const std::string& algorithm = "slow_on_purpose")
      : models(std::move(options)) {
    slow = Make("slow", MakeSpec(algorithm, 1, consistency));
    other = Make("other", MakeSpec("downpour", 1));
  }
  ~Fixture() {
    TheGate().Open();
    if (applying.joinable()) applying.join();
  }

  std::shared_ptr<Model> Make(const std::string& name, v1::ModelSpec spec) {
    spec.set_name(name);
    const auto created = models.Create(spec);
    INFO(created.status());
    REQUIRE(created.ok());
    const auto model = *models.Find(name);
    Initialize(model.get(), {0});
    return model;
  }

  // Begins a commit, which the algorithm then holds.
  void HoldCommit(ModelWorker* worker) {
    TheGate().Close();
    applying = std::thread([worker] { worker->Start({1}); });
    TheGate().AwaitInside();
  }

  Models models;
  std::shared_ptr<Model> slow;
  std::shared_ptr<Model> other;
  std::thread applying;
};

TEST_CASE("No call to another model, and no quick call to the same one, waits for an apply, however long it takes") {
  const std::string consistency = GENERATE("async", "bounded:5", "sync");
  Fixture f(consistency);
  ModelWorker a(f.slow.get(), "a");
  ModelWorker elsewhere(f.other.get(), "elsewhere");
  f.HoldCommit(&a);

  MustNotWait("an exchange with another model", [&] { CHECK(elsewhere.Exchange({1}).version == 1); });
  MustNotWait("a heartbeat", [&] { CHECK(a.Heartbeat().ok()); });
  MustNotWait("an acknowledgement", [&] { a.Acknowledge(); });
  MustNotWait("a description", [&] {
    CHECK(f.slow->Describe().version() == 0);
    CHECK(f.models.Describe("slow")->workers_size() == 1);
    CHECK(f.models.DescribeAll(true).size() == 2);
  });
  std::unique_ptr<ModelWorker> b;
  MustNotWait("a join", [&] { b = std::make_unique<ModelWorker>(f.slow.get(), "b"); });
  MustNotWait("a lease", [&] { CHECK(f.slow->FindLease(b->caller()) != nullptr); });
  MustNotWait("a report", [&] {
    v1::ReportHistoryRequest report;
    report.mutable_participant()->set_worker("b");
    report.mutable_participant()->set_incarnation(b->caller().incarnation);
    report.mutable_participant()->set_nonce(b->caller().nonce);
    CHECK(f.slow->Report(report).ok());
  });
  MustNotWait("a tick", [&] { f.models.Tick(); });
  MustNotWait("the beginning of a commit, which goes on when the other one is applied", [&] { b->Start({1}); });
  CHECK(b->waiting());
  MustNotWait("the creation of a model", [&] { f.Make("third", MakeSpec("downpour", 1)); });

  TheGate().Open();
  f.applying.join();
  CHECK(a.End().status.ok());
  if (consistency == "sync") CHECK(a.Leave().ok());
  CHECK(b->End().status.ok());
  CHECK(f.slow->Describe().version() == 2);
}

TEST_CASE("A leave, and the deletion, do not wait for an apply either; the commit is told what became of its model") {
  Fixture f("async");
  ModelWorker a(f.slow.get(), "a");
  ModelWorker b(f.slow.get(), "b");
  f.HoldCommit(&a);
  MustNotWait("a leave", [&] { CHECK(b.Leave().ok()); });
  MustNotWait("a new incarnation", [&] { ModelWorker again(f.slow.get(), "a"); });
  MustNotWait("the deletion", [&] { CHECK(f.models.Delete("slow").ok()); });
  TheGate().Open();
  f.applying.join();
  const Outcome outcome = a.End();
  CHECK(outcome.status.code() == absl::StatusCode::kNotFound);
  CHECK(outcome.committed);
  CHECK_FALSE(f.slow->Describe().initialized());
}

TEST_CASE("A commit whose worker is fenced while it is applied is in the center once, and its worker is told both") {
  Fixture f("async");
  ModelWorker old(f.slow.get(), "a");
  f.HoldCommit(&old);
  ModelWorker fresh(f.slow.get(), "a");
  TheGate().Open();
  f.applying.join();
  const Outcome outcome = old.End();
  CHECK(outcome.status.code() == absl::StatusCode::kAborted);
  CHECK(outcome.committed);
  CHECK(f.slow->Describe().version() == 1);
  // The new one counts its own commits from 1.
  CHECK(fresh.Exchange({1}).version == 2);
}

TEST_CASE("A model that is deleted while it applies an elastic commit keeps no answer") {
  Fixture f("async", {}, "slow_elastic");
  ModelWorker a(f.slow.get(), "a");
  TheGate().Close();
  f.applying = std::thread([&] {
    f.slow->Exchange({.caller = a.caller(), .sequence = 1, .floats = 1, .pull = true}, MakeBuffer({1}),
                     f.models.budget()->TryReserve(sizeof(float)), [](const ExchangeAnswer&) {});
  });
  TheGate().AwaitInside();
  REQUIRE(f.models.Delete("slow").ok());
  TheGate().Open();
  f.applying.join();
  CHECK(f.models.budget()->used_bytes(BudgetKind::kInFlight) == 0);
}

TEST_CASE("Asking what became of a commit that is being applied waits for it, and does not say that it was not") {
  Fixture f("async");
  ModelWorker a(f.slow.get(), "a");
  f.HoldCommit(&a);
  std::atomic<int> committed{-1};
  MustNotWait("the question", [&] {
    f.slow->Await({.caller = a.caller(), .sequence = 1},
                  [&](const ExchangeAnswer& answer) { committed = answer.status.ok() && answer.committed ? 1 : 0; });
  });
  CHECK(committed == -1);
  TheGate().Open();
  f.applying.join();
  CHECK(committed == 1);
}

TEST_CASE("A commit that a leave or a tick lets in is applied by a task of its own") {
  const std::string how = GENERATE(as<std::string>(), "leave", "tick");
  INFO(how);
  FakeClock clock;
  std::vector<std::function<void()>> tasks;
  ModelsOptions options;
  options.model.clock = &clock;
  options.model.lease = absl::Seconds(30);
  bool later = true;
  options.model.post = [&](std::function<void()> task) { later ? tasks.push_back(std::move(task)) : task(); };
  TheGate().Open();
  Fixture f("bounded:0", options);
  auto slowest = std::make_unique<ModelWorker>(f.slow.get(), "slowest");
  ModelWorker fast(f.slow.get(), "fast");
  fast.set_wait(absl::Seconds(1));
  fast.Start({1});
  clock.Advance(absl::Seconds(2));
  f.slow->Tick();
  REQUIRE(fast.End().committed);
  fast.set_wait(absl::InfiniteDuration());
  fast.Start({1});
  REQUIRE(fast.waiting());
  TheGate().Close();
  MustNotWait(how, [&] {
    if (how == "leave") CHECK(slowest->Leave().ok());
    if (how == "tick") {
      clock.Advance(absl::Seconds(29));
      CHECK(fast.Heartbeat().ok());
      f.slow->Tick();
    }
  });
  REQUIRE_FALSE(tasks.empty());
  TheGate().Open();
  later = false;
  for (const auto& task : std::exchange(tasks, {})) task();
  CHECK(fast.End().status.ok());
  CHECK(f.slow->Describe().version() == 2);
}

TEST_CASE("A round that a leave or a tick makes due is finished by a task of its own, not by the leave or the tick") {
  FakeClock clock;
  std::vector<std::function<void()>> tasks;
  ModelsOptions options;
  options.model.clock = &clock;
  options.model.lease = absl::Seconds(30);
  bool later = true;
  options.model.post = [&](std::function<void()> task) { later ? tasks.push_back(std::move(task)) : task(); };
  Fixture f("sync", options);
  ModelWorker a(f.slow.get(), "a");
  ModelWorker gone(f.slow.get(), "gone");
  a.Start({1});
  REQUIRE(a.waiting());
  TheGate().Close();
  const bool leaves = GENERATE(false, true);
  MustNotWait("what makes the round due", [&] {
    if (leaves) {
      CHECK(gone.Leave().ok());
    } else {
      clock.Advance(absl::Seconds(31));
      CHECK(a.Heartbeat().ok());
      f.models.Tick();
    }
  });
  REQUIRE(a.waiting());
  REQUIRE(tasks.size() == 1);
  TheGate().Open();
  tasks[0]();
  tasks.clear();
  later = false;
  CHECK(a.End().version == 1);
}

TEST_CASE("Who applies a commit steps aside if that may take long: at first, and as long as it does") {
  int aside = 0;
  FakeClock clock;
  ModelsOptions options;
  options.model.clock = &clock;
  options.model.step_aside = [&] { ++aside; };
  Fixture f("async", options);
  ModelWorker a(f.other.get(), "a");
  aside = 0;
  REQUIRE(a.Commit({1}).status.ok());
  CHECK(aside == 1);
  REQUIRE(a.Commit({1}).status.ok());
  CHECK(aside == 1);
}

}  // namespace
}  // namespace paramd::testing
