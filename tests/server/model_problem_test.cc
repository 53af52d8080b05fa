// What can go wrong in the center itself: finite commits that make it infinite, algorithms that throw.
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "server/models.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

using Vector = std::vector<float>;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class Listener : public EventSink {
 public:
  bool Wants(ModelEvent::Kind kind) const override { return kind == ModelEvent::Kind::kDiverged; }
  void Tell(const ModelEvent& event) override { events.push_back(event); }

  std::vector<ModelEvent> events;
};

TEST_CASE("Finite commits that make the center infinite are noticed: status, event and workers say so; readers pull") {
  const std::string consistency = GENERATE("async", "bounded:1", "sync");
  Listener listener;
  const auto model = MakeModel(MakeSpec("downpour", 3, consistency), {.events = &listener});
  Initialize(model.get(), {0, 0, 0});
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({1, 1, 3e38f}).status.ok());
  CHECK(model->Describe().problem().empty());

  const Outcome outcome = a.Exchange({1, 1, 3e38f});
  CHECK(outcome.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(outcome.committed);
  CHECK_THAT(Text(outcome.status), Contains("'m'") && Contains("since version 2") && Contains("tensor 'w' at [2]") &&
                                       Contains("learning rate"));
  CHECK(model->Describe().problem() == Text(outcome.status));
  REQUIRE(listener.events.size() == 1);
  CHECK(listener.events[0].version == 2);

  CHECK(a.Commit({1, 1, 1}).status == outcome.status);
  CHECK(a.Pull().status == outcome.status);
  ModelWorker late(model.get(), "late");
  CHECK(late.Pull().status == outcome.status);
  CHECK(model->Describe().version() == 2);
  CHECK(Floats(*TakeSnapshot(model.get())) == Vector{2, 2, std::numeric_limits<float>::infinity()});
  CHECK(listener.events.size() == 1);
}

TEST_CASE("Whoever waits in a model whose center becomes infinite is told at once") {
  const auto model = MakeModel(MakeSpec("downpour", 1, "bounded:0"));
  Initialize(model.get(), {3e38f});
  ModelWorker idle(model.get(), "idle");
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.Start({0});
  REQUIRE(a.waiting());
  b.Start({3e38f});
  CHECK(a.End().status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(b.End().status.code() == absl::StatusCode::kFailedPrecondition);
}

// Throws when a commit, or its first float, is `value`.
class ThrowingHalf : public ServerHalf {
 public:
  explicit ThrowingHalf(bool vectors_throw) : vectors_throw_(vectors_throw) {}

  int state_vectors() const override {
    if (vectors_throw_) throw std::runtime_error("not today");
    return 0;
  }
  void Merge(const CommitInfo& info, const MergePiece& piece) const override {
    if (piece.commit[0] == 13) throw std::runtime_error("no thirteen");
    if (piece.commit[0] == 14) throw 14;
    ServerHalf::Merge(info, piece);
  }

 private:
  const bool vectors_throw_;
};

class NoWorkerHalf : public WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

std::unique_ptr<WorkerHalf> MakeNoWorker(const Hyperparameters&) { return std::make_unique<NoWorkerHalf>(); }

REGISTER_ALGORITHM({.name = "throws_at_thirteen",
                    .description = "throws",
                    .hyperparameters = {{.name = "at_once", .max = 2}},
                    .make_server = [](const Hyperparameters& h) -> std::unique_ptr<ServerHalf> {
                      if (h.at("at_once") == 1) throw std::runtime_error("not today");
                      return std::make_unique<ThrowingHalf>(h.at("at_once") == 2);
                    },
                    .make_worker = MakeNoWorker});

TEST_CASE("An algorithm that throws fails its model alone, and says what it threw") {
  const size_t floats = GENERATE(size_t{2}, 5 * kBlockFloats);
  const std::string consistency = GENERATE("async", "sync");
  ModelsOptions options;
  options.model.apply_pool = std::make_shared<ApplyPool>(3);
  Models models(options);
  REQUIRE(models.Create(MakeSpec("throws_at_thirteen", floats, consistency)).ok());
  const auto model = *models.Find("m");
  Initialize(model.get(), Vector(floats, 0));
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange(Vector(floats, 1)).status.ok());
  const bool standard = GENERATE(true, false);
  const Outcome outcome = a.Exchange(Vector(floats, standard ? 13 : 14));
  CHECK(outcome.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(outcome.status), Contains("'m'") && Contains("'throws_at_thirteen'") &&
                                       Contains(standard ? "no thirteen" : "no std::exception"));
  CHECK_FALSE(model->Describe().problem().empty());
  CHECK(a.Commit(Vector(floats, 1)).status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(model->Describe().version() == 1);

  REQUIRE(models.Delete("m").ok());
  CHECK(models.Create(MakeSpec("throws_at_thirteen", floats)).ok());
}

TEST_CASE("An algorithm that can't be made creates no model") {
  Models models({});
  const absl::Status status =
      models.Create(MakeSpec("throws_at_thirteen", 1, "", {{"at_once", GENERATE(1, 2)}})).status();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(Text(status), Contains("'throws_at_thirteen'") && Contains("'m'") && Contains("not today"));
  CHECK(models.List().empty());
}

}  // namespace
}  // namespace paramd::testing
