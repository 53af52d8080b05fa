// Workers of very different speeds that join, leave, crash, lose their lease and repeat themselves, in random order but
// deterministically: whatever happens, `bounded` keeps its bound and nobody waits for ever.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);
constexpr int kSteps = 400;

class Simulation {
 public:
  // `bound`: S of consistency bounded:S; none: sync.
  Simulation(const std::string& algorithm, std::optional<uint64_t> bound, uint64_t seed)
      : elastic_(algorithm == "aeasgd"),
        bound_(bound),
        random_(seed),
        model_(MakeModel(MakeSpec(algorithm, 1, bound.has_value() ? absl::StrCat("bounded:", *bound) : "sync"),
                         {.clock = &clock_, .lease = kLease})) {
    Initialize(model_.get(), {0});
    for (int i = 0; i < 4; ++i) AddWorker(absl::StrCat("w", i));
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      INFO("step " << step);
      Disturb();
      Move(Choose());
      Check();
    }
    Finish();
    CHECK(model_->Describe().version() == commits_);
  }

 private:
  struct Sim {
    std::unique_ptr<ModelWorker> worker;
    double speed = 1;
    bool training = false;   // else it has an exchange that is under way or that it must repeat
    bool pulls = false;      // the exchange has no commit
    bool repeats = false;    // the exchange failed
    bool expired = false;    // its lease
    bool applied = false;    // its commit
    bool counted = false;    // the window of its commit
    uint64_t completed = 0;  // windows, counted by the test
  };

  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  void AddWorker(const std::string& name) {
    Sim sim;
    const auto slowest = Slowest();
    sim.worker = std::make_unique<ModelWorker>(model_.get(), name);
    sim.speed = std::exp(std::uniform_real_distribution<double>(0, 5)(random_));
    if (slowest.has_value()) sim.completed = *slowest;
    StartPull(&sim);
    sims_.push_back(std::move(sim));
    ++joined_;
  }

  // The fewest windows that a live worker has completed; a window whose commit has come in is complete.
  std::optional<uint64_t> Slowest() const {
    std::optional<uint64_t> slowest;
    for (const Sim& sim : sims_) {
      if (!sim.expired) slowest = std::min(slowest.value_or(UINT64_MAX), sim.completed);
    }
    return slowest;
  }

  size_t LiveCount() const {
    return std::count_if(sims_.begin(), sims_.end(), [](const Sim& sim) { return !sim.expired; });
  }

  static bool CanMove(const Sim& sim) { return !sim.worker->waiting(); }

  // One that can move, a fast one more often than a slow one. Also says that there is one: no deadlock.
  Sim* Choose() {
    std::vector<double> weights;
    bool live_can_move = false;
    for (const Sim& sim : sims_) {
      weights.push_back(CanMove(sim) ? (sim.expired ? 0.2 : sim.speed) : 0);
      live_can_move = live_can_move || (CanMove(sim) && !sim.expired);
    }
    REQUIRE(live_can_move);
    return &sims_[std::discrete_distribution<size_t>(weights.begin(), weights.end())(random_)];
  }

  void Move(Sim* sim) {
    INFO("worker " << sim->worker->name());
    if (sim->expired) Revive(sim);
    if (sim->worker->may_send()) {
      sim->worker->SendBytes();
      ++commits_;
      sim->applied = true;
      Complete(sim);
      return;
    }
    if (sim->training) {
      sim->training = false;
      sim->pulls = sim->counted = sim->applied = false;
      sim->worker->StartSlowly({1}, /*pull=*/Chance(0.8));
      // Elastic commits wait before their bytes are read, so that their window is complete when they begin.
      if (elastic_) Complete(sim);
      return;
    }
    if (sim->repeats) {
      sim->repeats = false;
      sim->worker->StartRetry();
      if (elastic_) Complete(sim);
      return;
    }
    EndExchange(sim);
  }

  static void StartPull(Sim* sim) {
    sim->pulls = true;
    sim->worker->StartPull();
  }

  void EndExchange(Sim* sim) {
    const Outcome outcome = sim->worker->End();
    if (!outcome.status.ok()) {
      INFO(outcome.status);
      // Its lease ran out while it waited.
      REQUIRE(outcome.status.code() == absl::StatusCode::kFailedPrecondition);
      // An elastic answer is not kept beyond a lease: if the commit is in, the worker can only pull.
      if (sim->pulls || (elastic_ && outcome.committed)) {
        StartPull(sim);
      } else {
        sim->repeats = true;
      }
      return;
    }
    if (!sim->pulls && Chance(0.1)) {
      // The reply was lost.
      sim->repeats = true;
      return;
    }
    BeginWindow(sim);
  }

  void BeginWindow(Sim* sim) {
    sim->training = true;
    if (!bound_.has_value()) return;
    const uint64_t slowest = *Slowest();
    INFO("completed " << sim->completed << ", the slowest " << slowest);
    CHECK(sim->completed - std::min(slowest, sim->completed) <= *bound_);
  }

  void Complete(Sim* sim) {
    if (!sim->counted) ++sim->completed;
    sim->counted = true;
  }

  // Nobody waits for one that was away: it goes on beside the slowest, if it was behind.
  void Revive(Sim* sim) {
    const uint64_t slowest = Slowest().value_or(0);
    if (sim->completed <= slowest) {
      sim->completed = slowest;
      sim->counted = sim->applied;
    }
    sim->expired = false;
    REQUIRE(sim->worker->Heartbeat().ok());
  }

  void Disturb() {
    if (Chance(0.02) && sims_.size() < 8) AddWorker(absl::StrCat("w", joined_));
    if (LiveCount() < 2) return;
    const size_t i = std::uniform_int_distribution<size_t>(0, sims_.size() - 1)(random_);
    Sim& sim = sims_[i];
    if (sim.expired) return;
    INFO("disturbs " << sim.worker->name());
    if (Chance(0.01) && sim.training) {
      REQUIRE(sim.worker->Leave().ok());
      sims_.erase(sims_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (Chance(0.01)) {
      // A crash at any point of an exchange, and a restart under the same name.
      const std::string name = sim.worker->name();
      Sim crashed = std::move(sim);
      sims_.erase(sims_.begin() + static_cast<std::ptrdiff_t>(i));
      AddWorker(name);
    } else if (Chance(0.02)) {
      clock_.Advance(kLease + absl::Seconds(1));
      for (const Sim& other : sims_) {
        if (!other.expired && &other != &sim) REQUIRE(other.worker->Heartbeat().ok());
      }
      model_->Tick();
      sim.expired = true;
    }
  }

  void Check() {
    if (!bound_.has_value() || elastic_) return;
    const v1::ModelInfo info = model_->Describe();
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (const v1::WorkerInfo& worker : info.workers()) {
      if (worker.state() != v1::WorkerInfo::LIVE) continue;
      least = std::min(least, worker.clock());
      most = std::max(most, worker.clock());
    }
    CHECK(most - std::min(least, most) <= *bound_);
  }

  // Everyone ends its exchange and leaves. Who is expired never comes back.
  void Finish() {
    while (LiveCount() > 0) {
      const auto it = std::find_if(sims_.begin(), sims_.end(), [](const Sim& s) { return !s.expired && CanMove(s); });
      REQUIRE(it != sims_.end());
      if (it->training) {
        REQUIRE(it->worker->Leave().ok());
        sims_.erase(it);
      } else {
        Move(&*it);
      }
    }
  }

  const bool elastic_;
  const std::optional<uint64_t> bound_;
  std::mt19937_64 random_;
  FakeClock clock_;
  std::unique_ptr<Model> model_;
  std::vector<Sim> sims_;
  int joined_ = 0;
  int64_t commits_ = 0;
};

TEST_CASE("bounded:S is never exceeded and never deadlocks, whatever the speeds and whoever comes and goes") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  const uint64_t bound = GENERATE(0, 1, 2, 5);
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    INFO(algorithm << ", bounded:" << bound << ", PARAMD_SEED=" << seed);
    Simulation(algorithm, bound, seed).Run();
  }
}

TEST_CASE("sync never deadlocks, whatever the speeds and whoever comes and goes") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    INFO(algorithm << ", PARAMD_SEED=" << seed);
    Simulation(algorithm, std::nullopt, seed).Run();
  }
}

}  // namespace
}  // namespace paramd::testing
