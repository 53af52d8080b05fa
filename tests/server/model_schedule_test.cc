// Workers of very different speeds that join, leave, crash, lose their lease, time out, cancel, ask again and repeat
// themselves, in random order but deterministically. Whatever happens: `bounded` keeps its bound at every moment, every
// accepted commit is in the center once and no other, and nobody waits for ever.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"
#include "tests/support/seed.h"

namespace paramd::testing {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);
constexpr int kSteps = 400;
constexpr int kRuns = 25;

// What a worker knows of its commits, as a client does.
struct Sim {
  std::unique_ptr<ModelWorker> worker;
  double speed = 1;
  std::optional<float> pending;  // a commit whose fate it does not know
  bool asked = false;            // what became of that
  std::vector<float> applied;    // what it was told, all incarnations of its name
  std::vector<float> unknown;    // whose answer its former incarnations did not live to see
  bool expired = false;
};

class Simulation {
 public:
  // `bound`: S of consistency bounded:S, if it is that.
  Simulation(const std::string& algorithm, const std::string& consistency, std::optional<uint64_t> bound, uint64_t seed)
      : elastic_(algorithm == "aeasgd"),
        bound_(bound),
        sync_(consistency == "sync"),
        random_(seed),
        model_(MakeModel(MakeSpec(algorithm, 1, consistency), {.clock = &clock_, .lease = kLease})) {
    Initialize(model_.get(), {0});
    for (int i = 0; i < 4; ++i) Join(absl::StrCat("w", i), {});
    CheckBound();
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      INFO("step " << step);
      Disturb();
      CheckBound();
      Move(Choose());
      CheckBound();
    }
    Finish();
    CheckSum();
  }

 private:
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  void Join(const std::string& name, Sim sim) {
    sim.worker = std::make_unique<ModelWorker>(model_.get(), name);
    sim.speed = std::exp(std::uniform_real_distribution<double>(0, 5)(random_));
    sim.worker->StartPull();
    sims_.push_back(std::move(sim));
  }

  bool CanMove(const Sim& sim) const { return !sim.worker->waiting(); }

  size_t LiveCount() const {
    return std::count_if(sims_.begin(), sims_.end(), [](const Sim& sim) { return !sim.expired; });
  }

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
    ModelWorker* const worker = sim->worker.get();
    INFO("worker " << worker->name());
    if (sim->expired && Chance(0.5)) {
      REQUIRE(worker->Heartbeat().ok());
      sim->expired = false;
    }
    if (worker->may_send()) {
      worker->SendBytes();
      sim->expired = false;
      return;
    }
    if (worker->training()) return Begin(sim);
    End(sim, worker->End());
  }

  void Begin(Sim* sim) {
    ModelWorker* const worker = sim->worker.get();
    worker->set_wait(Chance(0.5) ? absl::InfiniteDuration() : absl::Seconds(1));
    sim->expired = false;
    sim->asked = false;
    if (sim->pending.has_value()) {
      // Only a worker that knows what became of its last commit sends another one.
      if (Chance(0.5)) {
        sim->asked = true;
        return worker->StartAskAgain();
      }
      return worker->StartRetry();
    }
    if (Chance(0.1)) return worker->StartPull();
    sim->pending = 1;
    worker->StartSlowly({1}, /*pull=*/Chance(0.8));
  }

  void End(Sim* sim, const Outcome& outcome) {
    if (!sim->pending.has_value()) return;
    INFO(outcome.status);
    if (outcome.committed) {
      // Known to be in, though the answer may be lost: then it is asked for again, or not.
      if (outcome.status.ok() ? Chance(0.9) : Chance(0.5)) Settle(sim, true);
      return;
    }
    if (outcome.status.ok()) {
      REQUIRE(sim->asked);
      Settle(sim, false);
    }
  }

  static void Settle(Sim* sim, bool applied) {
    if (applied) sim->applied.push_back(*sim->pending);
    sim->pending.reset();
  }

  void Disturb() {
    if (Chance(0.02) && sims_.size() < 8) Join(absl::StrCat("w", ++joined_ + 10), {});
    CheckBound();
    const size_t i = std::uniform_int_distribution<size_t>(0, sims_.size() - 1)(random_);
    Sim& sim = sims_[i];
    INFO("disturbs " << sim.worker->name());
    if (Chance(0.05)) sim.worker->Cancel();
    if (Chance(0.05)) {
      clock_.Advance(absl::Seconds(1));
      model_->Tick();
      CheckBound();
    }
    if (sim.expired || LiveCount() < 2) return;
    if (Chance(0.01) && sim.worker->training() && !sim.pending.has_value()) {
      REQUIRE(sim.worker->Leave().ok());
      left_.push_back(std::move(sim));
      sims_.erase(sims_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (Chance(0.01)) {
      // A crash at any point of an exchange, and a restart under the same name.
      const std::string name = sim.worker->name();
      Sim crashed = std::move(sim);
      sims_.erase(sims_.begin() + static_cast<std::ptrdiff_t>(i));
      Sim again;
      again.applied = crashed.applied;
      again.unknown = crashed.unknown;
      if (crashed.pending.has_value()) again.unknown.push_back(*crashed.pending);
      Join(name, std::move(again));
    } else if (Chance(0.02)) {
      clock_.Advance(kLease + absl::Seconds(1));
      for (const Sim& other : sims_) {
        if (!other.expired && &other != &sim) REQUIRE(other.worker->Heartbeat().ok());
        CheckBound();
      }
      model_->Tick();
      sim.expired = true;
    }
  }

  // Counts windows from outside, by what is in the center: nobody may have more than S + 1 more than the slowest who
  // is live, whatever happened before.
  void CheckBound() {
    if (!bound_.has_value()) return;
    const v1::ModelInfo info = model_->Describe();
    const auto slowest_but = [&](const std::string& name) {
      std::optional<uint64_t> slowest;
      for (const auto& [other, seen] : seen_) {
        if (other != name && seen.live) slowest = std::min(slowest.value_or(seen.windows), seen.windows);
      }
      return slowest;
    };
    for (const v1::WorkerInfo& worker : info.workers()) {
      Seen& seen = seen_[worker.worker()];
      const bool live = worker.state() == v1::WorkerInfo::LIVE;
      const bool again = live && (!seen.live || seen.incarnation != worker.incarnation());
      const uint64_t commits = worker.commits() - seen.commits;
      if (const auto slowest = slowest_but(worker.worker()); again && slowest.has_value()) {
        // Late joiners begin beside the slowest, and so does who was away and fell behind. In what the slowest has may
        // be a window that is at the door, which only the model knows.
        seen.windows = elastic_ ? worker.clock() - commits : std::clamp(seen.windows, *slowest, *slowest + *bound_ + 1);
      }
      seen.live = live;
      seen.incarnation = worker.incarnation();
      seen.windows += commits;
      seen.commits = worker.commits();
    }
    for (const auto& [name, seen] : seen_) {
      if (!seen.live) continue;
      INFO(name << " has " << seen.windows << " windows");
      CHECK(seen.windows <= slowest_but(name).value_or(seen.windows) + *bound_ + 1);
    }
  }

  // Everyone ends what it is doing and leaves. Who is expired comes back first.
  void Finish() {
    while (!sims_.empty()) {
      for (Sim& sim : sims_) {
        if (!sim.expired) continue;
        REQUIRE(sim.worker->Heartbeat().ok());
        sim.expired = false;
      }
      clock_.Advance(absl::Seconds(1));
      model_->Tick();
      const auto it = std::find_if(sims_.begin(), sims_.end(), [&](const Sim& sim) { return CanMove(sim); });
      REQUIRE(it != sims_.end());
      if (it->worker->training() && (!it->pending.has_value() || sync_)) {
        if (it->pending.has_value()) it->unknown.push_back(*it->pending);
        REQUIRE(it->worker->Leave().ok());
        left_.push_back(std::move(*it));
        sims_.erase(it);
      } else {
        Move(&*it);
      }
    }
  }

  void CheckSum() {
    int64_t applied = 0;
    int64_t unknown = 0;
    for (const Sim& sim : left_) {
      applied += static_cast<int64_t>(sim.applied.size());
      unknown += static_cast<int64_t>(sim.unknown.size());
    }
    const v1::ModelInfo info = model_->Describe();
    CHECK(info.version() >= applied);
    CHECK(info.version() <= applied + unknown);
    CHECK(static_cast<int64_t>(info.commits()) == info.version());
    if (!elastic_) CHECK(Floats(*TakeSnapshot(model_.get())) == std::vector<float>{static_cast<float>(info.version())});
  }

  const bool elastic_;
  const std::optional<uint64_t> bound_;
  const bool sync_;
  std::mt19937_64 random_;
  FakeClock clock_;
  std::unique_ptr<Model> model_;
  std::vector<Sim> sims_;
  std::vector<Sim> left_;
  struct Seen {
    bool live = false;
    uint64_t incarnation = 0;
    uint64_t windows = 0;
    uint64_t commits = 0;
  };
  std::map<std::string, Seen> seen_;
  int joined_ = 0;
};

TEST_CASE("bounded:S is never exceeded, nothing is lost or counted twice, and nobody waits for ever") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  const uint64_t bound = GENERATE(0, 1, 2, 5);
  for (const uint64_t seed : Seeds(kRuns)) {
    INFO(algorithm << ", bounded:" << bound << ", PARAMD_SEED=" << seed);
    Simulation(algorithm, absl::StrCat("bounded:", bound), bound, seed).Run();
  }
}

TEST_CASE("In sync and async nothing is lost or counted twice, and nobody waits for ever") {
  const std::string algorithm = GENERATE("downpour", "aeasgd");
  const std::string consistency = GENERATE("sync", "async");
  for (const uint64_t seed : Seeds(kRuns)) {
    INFO(algorithm << ", " << consistency << ", PARAMD_SEED=" << seed);
    Simulation(algorithm, consistency, std::nullopt, seed).Run();
  }
}

}  // namespace
}  // namespace paramd::testing
