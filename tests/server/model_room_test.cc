// What a model holds for its workers is in the budget, and goes back with whoever held it.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/models.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

constexpr size_t kFloats = 100;
constexpr uint64_t kBytes = kFloats * sizeof(float);

struct Fixture {
  explicit Fixture(const std::string& algorithm, const std::string& consistency = "async")
      : models({.model = {.clock = &clock, .lease = absl::Seconds(30), .max_workers = 100},
                .budget = {.clock = &clock, .stall_timeout = absl::Seconds(10)}}) {
    REQUIRE(models.Create(MakeSpec(algorithm, kFloats, consistency)).ok());
    model = *models.Find("m");
    Initialize(model.get(), std::vector<float>(kFloats, 0));
  }

  uint64_t Used(BudgetKind kind) { return models.budget()->used_bytes(kind); }

  // An exchange of the worker, with the room that the model asks for.
  ExchangeAnswer Exchange(const ModelWorker& worker, uint64_t sequence) {
    ExchangeAnswer answer;
    Reservation room = models.budget()->TryReserve(model->RoomToReceive(sizeof(float), /*shared=*/true, /*pull=*/true));
    model->Exchange({.caller = worker.caller(), .sequence = sequence, .floats = kFloats, .pull = true},
                    MakeBuffer(std::vector<float>(kFloats, 1)), std::move(room),
                    [&](ExchangeAnswer got) { answer = std::move(got); });
    return answer;
  }

  FakeClock clock;
  Models models;
  std::shared_ptr<Model> model;
};

TEST_CASE("A kept answer keeps its room until it is acknowledged, replaced, or its worker is gone") {
  const std::string consistency = GENERATE("async", "bounded:9");
  Fixture f("aeasgd", consistency);
  ModelWorker a(f.model.get(), "a");
  REQUIRE(f.model->RoomToReceive(sizeof(float), /*shared=*/true, /*pull=*/true) == kBytes);
  {
    const ExchangeAnswer answer = f.Exchange(a, 1);
    REQUIRE(answer.status.ok());
    CHECK(answer.acknowledge);
    CHECK(answer.center->snapshot->version == 0);
    CHECK(answer.version == 0);
    CHECK(f.Used(BudgetKind::kInFlight) == kBytes);
  }
  CHECK(f.Used(BudgetKind::kInFlight) == kBytes);
  SECTION("acknowledged") { f.model->Acknowledge(a.caller(), 1); }
  SECTION("leaves") { REQUIRE(a.Leave().ok()); }
  SECTION("expires") {
    f.clock.Advance(absl::Seconds(31));
    f.model->Tick();
  }
  SECTION("fenced") { ModelWorker again(f.model.get(), "a"); }
  SECTION("deleted") { REQUIRE(f.models.Delete("m").ok()); }
  SECTION("stalled") {
    f.clock.Advance(absl::Seconds(11));
    REQUIRE(a.Heartbeat().ok());
    f.models.Tick();
  }
  SECTION("its worker begins the next commit") {
    f.model->BeginCommit({.caller = a.caller(), .sequence = 2, .floats = kFloats}, [](const ExchangeAnswer&) {});
  }
  SECTION("replaced by one that pulls nothing") {
    ExchangeAnswer answer;
    f.model->Exchange({.caller = a.caller(), .sequence = 2, .floats = kFloats},
                      MakeBuffer(std::vector<float>(kFloats, 1)), Reservation(),
                      [&](ExchangeAnswer got) { answer = std::move(got); });
    CHECK(answer.status.ok());
  }
  CHECK(f.Used(BudgetKind::kInFlight) == 0);
}

TEST_CASE("Who still sends an answer that the model gave up holds its room until it is done") {
  Fixture f("aeasgd");
  ModelWorker a(f.model.get(), "a");
  ExchangeAnswer answer = f.Exchange(a, 1);
  f.model->Acknowledge(a.caller(), 1);
  CHECK(f.Used(BudgetKind::kInFlight) == kBytes);
  answer.center.reset();
  CHECK(f.Used(BudgetKind::kInFlight) == 0);
}

TEST_CASE("The answer of a plain commit comes with the room of its commit") {
  Fixture f("downpour");
  ModelWorker a(f.model.get(), "a");
  CHECK(f.model->RoomToReceive(sizeof(float), /*shared=*/true, /*pull=*/false) == kBytes);
  CHECK(f.model->RoomToReceive(2, /*shared=*/false, /*pull=*/true) == kBytes);
  CHECK(f.model->RoomToReceive(2, /*shared=*/false, /*pull=*/false) == kBytes / 2);
  ExchangeAnswer answer;
  f.model->Exchange({.caller = a.caller(), .sequence = 1, .floats = kFloats, .pull = true},
                    MakeBuffer(std::vector<float>(kFloats, 1)), f.models.budget()->TryReserve(kBytes),
                    [&](ExchangeAnswer got) { answer = std::move(got); });
  REQUIRE(answer.status.ok());
  REQUIRE(answer.center != nullptr);
  CHECK(answer.center->snapshot->version == 1);
  CHECK_FALSE(answer.acknowledge);
  CHECK(f.Used(BudgetKind::kInFlight) == kBytes);
  answer.center.reset();
  CHECK(f.Used(BudgetKind::kInFlight) == 0);
}

TEST_CASE("Who has to wait for others keeps no room that they need for their commits") {
  Fixture f("downpour", GENERATE("bounded:0", "sync"));
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  ExchangeAnswer answer{.status = absl::UnknownError("")};
  f.model->Exchange({.caller = a.caller(), .sequence = 1, .floats = kFloats, .pull = true},
                    MakeBuffer(std::vector<float>(kFloats, 1)), f.models.budget()->TryReserve(kBytes),
                    [&](ExchangeAnswer got) { answer = std::move(got); });
  REQUIRE(answer.status.code() == absl::StatusCode::kUnknown);
  CHECK(f.Used(BudgetKind::kInFlight) == 0);
  REQUIRE(b.Exchange(std::vector<float>(kFloats, 1)).status.ok());
  CHECK(answer.status.ok());
  CHECK(answer.center == nullptr);
}

TEST_CASE("All answers of an elastic round share one center, however many workers there are") {
  Fixture f("easgd", "sync");
  std::vector<std::unique_ptr<ModelWorker>> workers;
  for (int i = 0; i < 16; ++i) workers.push_back(std::make_unique<ModelWorker>(f.model.get(), absl::StrCat("w", i)));
  for (int round = 0; round < 3; ++round) {
    for (const auto& worker : workers) worker->Start(std::vector<float>(kFloats, 1));
    std::shared_ptr<const Snapshot> shared;
    for (const auto& worker : workers) {
      const Outcome outcome = worker->End();
      REQUIRE(outcome.status.ok());
      if (shared == nullptr) shared = outcome.center;
      CHECK(outcome.center == shared);
    }
    // The round's sum, and that center until it is acknowledged.
    CHECK(f.Used(BudgetKind::kRounds) == 2 * kBytes);
    CHECK(f.model->Describe().pinned_bytes() == kBytes);
  }
  for (const auto& worker : workers) worker->Acknowledge();
  CHECK(f.Used(BudgetKind::kRounds) == kBytes);
}

TEST_CASE(
    "Bases are counted, and a pull that gets its room after its worker left or expired is refused and pins none") {
  Fixture f("adaptive_adag");
  ModelWorker a(f.model.get(), "a");
  ModelWorker b(f.model.get(), "b");
  REQUIRE(a.Pull().status.ok());
  REQUIRE(b.Pull().status.ok());
  CHECK(f.Used(BudgetKind::kBases) == 2 * kBytes);
  REQUIRE(a.Leave().ok());
  CHECK(f.Used(BudgetKind::kBases) == kBytes);
  f.clock.Advance(absl::Seconds(31));
  f.model->Tick();
  CHECK(f.Used(BudgetKind::kBases) == 0);

  std::vector<absl::Status> pulled;
  for (const ModelWorker* worker : {&a, &b}) {
    f.model->Pull({.caller = worker->caller(), .pull = true}, f.models.budget()->TryReserve(kBytes),
                  [&](const ExchangeAnswer& answer) { pulled.push_back(answer.status); });
  }
  CHECK(pulled[0].code() == absl::StatusCode::kFailedPrecondition);
  CHECK(pulled[1].code() == absl::StatusCode::kUnavailable);
  CHECK(f.Used(BudgetKind::kBases) == 0);
  CHECK(f.Used(BudgetKind::kInFlight) == 0);
}

}  // namespace
}  // namespace paramd::testing
