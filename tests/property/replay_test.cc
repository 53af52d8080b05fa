// Random schedules of joins, pulls, commits, retries and leaves, replayed against a sequential reference in double
// precision that is written from the mathematics in docs/algorithms.md, not from the algorithms' halves.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "server/models.h"
#include "tests/support/model_worker.h"
#include "tests/support/seed.h"

namespace paramd::testing {
namespace {

using Doubles = std::vector<double>;

constexpr int kSchedules = 12;  // of each algorithm and consistency
constexpr int kSteps = 80;

// What one commit adds to its round's sum, for one parameter.
struct Contribution {
  double w = 0;          // what was committed: δ or W
  double center = 0;     // θ
  double base = 0;       // θ at the worker's last pull
  double staleness = 0;  // τ
};

struct Rule {
  std::function<double(const Contribution&, const Hyperparameters&)> contribution;
  bool mean = false;     // θ becomes the mean of the contributions; else their sum is added to it
  bool elastic = false;  // answers with θ as it was before the commit
  bool own_centers = false;
};

double Plain(const Contribution& c, const Hyperparameters&) { return c.w; }

double Elastic(const Contribution& c, const Hyperparameters& h) {
  return h.at("rho") * h.at("learning_rate") * (c.w - c.center);
}

double Damped(const Contribution& c, const Hyperparameters&) { return c.w / (c.staleness + 1); }

double Adaptive(const Contribution& c, const Hyperparameters& h) {
  const double moved = c.center - c.base;
  return c.w / (1 + moved * moved / h.at("eta"));
}

const std::map<std::string, Rule>& Rules() {
  static const std::map<std::string, Rule> rules = {
      {"adag", {Plain}},
      {"adaptive_adag", {Adaptive}},
      {"aeasgd", {Elastic, /*mean=*/false, /*elastic=*/true}},
      {"averaging", {Plain, /*mean=*/true}},
      {"downpour", {Plain}},
      {"dynsgd", {Damped}},
      {"eamsgd", {Elastic, /*mean=*/false, /*elastic=*/true}},
      {"easgd", {Elastic, /*mean=*/false, /*elastic=*/true}},
      {"ensemble", {Plain, /*mean=*/false, /*elastic=*/false, /*own_centers=*/true}},
  };
  return rules;
}

// The sequential reference of one center. Remembers every version.
class Reference {
 public:
  Reference(const Rule& rule, const Hyperparameters& hyperparameters, bool sync, Doubles initial)
      : rule_(rule), hyperparameters_(hyperparameters), sync_(sync), center_(std::move(initial)) {
    versions_[0] = center_;
  }

  void Join(const std::string& worker) { live_.insert(worker); }

  void Leave(const std::string& worker) {
    live_.erase(worker);
    FinishRound();
  }

  // Returns the commit's staleness.
  int64_t Commit(const std::string& worker, const std::vector<float>& commit, int64_t base_version) {
    const int64_t staleness = version_ - base_version;
    const Doubles& base = versions_.at(base_version);
    round_.emplace_back(commit.size());
    for (size_t i = 0; i < commit.size(); ++i) {
      round_.back()[i] = rule_.contribution(
          {.w = commit[i], .center = center_[i], .base = base[i], .staleness = static_cast<double>(staleness)},
          hyperparameters_);
    }
    committed_.insert(worker);
    FinishRound();
    return staleness;
  }

  int64_t version() const { return version_; }
  const Doubles& center() const { return center_; }
  // Null if the center never had this version.
  const Doubles* At(int64_t version) const {
    const auto it = versions_.find(version);
    return it == versions_.end() ? nullptr : &it->second;
  }

 private:
  void FinishRound() {
    if (round_.empty()) return;
    if (sync_ && !std::includes(committed_.begin(), committed_.end(), live_.begin(), live_.end())) return;
    for (size_t i = 0; i < center_.size(); ++i) {
      double sum = 0;
      for (const Doubles& contribution : round_) sum += contribution[i];
      center_[i] = rule_.mean ? sum / static_cast<double>(round_.size()) : center_[i] + sum;
    }
    version_ += static_cast<int64_t>(round_.size());
    versions_[version_] = center_;
    round_.clear();
    committed_.clear();
  }

  const Rule rule_;
  const Hyperparameters hyperparameters_;
  const bool sync_;
  Doubles center_;
  int64_t version_ = 0;
  std::map<int64_t, Doubles> versions_;
  std::set<std::string> live_;
  std::vector<Doubles> round_;  // contributions
  std::set<std::string> committed_;
};

bool Near(const std::vector<float>& actual, const Doubles& expected) {
  return std::equal(actual.begin(), actual.end(), expected.begin(), expected.end(),
                    [](float a, double e) { return std::abs(a - e) <= 1e-4 * (1 + std::abs(e)); });
}

class Schedule {
 public:
  Schedule(const std::string& algorithm, const std::string& consistency, uint64_t seed)
      : rule_(Rules().at(algorithm)), sync_(consistency == "sync"), random_(seed) {
    hyperparameters_["learning_rate"] = Uniform(0.05, 0.3);
    if (rule_.elastic) hyperparameters_["rho"] = Uniform(0.1, 3);
    if (algorithm == "adaptive_adag") hyperparameters_["eta"] = Uniform(0.01, 1);
    initial_ = RandomFloats(std::uniform_int_distribution<size_t>(1, 40)(random_));
    const auto created = models_.Create(MakeSpec(algorithm, initial_.size(), consistency, hyperparameters_));
    INFO(created.status());
    REQUIRE(created.ok());
    Initialize(models_.Find("m")->get(), initial_);
    AddWorker();
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      INFO("step " << step);
      Step();
      for (const auto& [name, replica] : replicas_) {
        INFO("center of " << name);
        const auto snapshot = TakeSnapshot(replica->model.get());
        REQUIRE(snapshot->version == replica->reference.version());
        REQUIRE(Near(Floats(*snapshot), replica->reference.center()));
      }
    }
  }

 private:
  // A center on both sides.
  struct Replica {
    std::shared_ptr<Model> model;
    Reference reference;
  };

  struct Worker {
    std::unique_ptr<ModelWorker> worker;
    Replica* replica = nullptr;
    bool exchanging = false;
    bool commits = false;  // the exchange has a commit
    bool pulls = false;
    std::vector<float> commit;
    int64_t version_before = 0;  // of the center, when the commit was applied
    int64_t staleness = 0;
  };

  double Uniform(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  std::vector<float> RandomFloats(size_t n) {
    std::vector<float> floats(n);
    for (float& f : floats) f = static_cast<float>(Uniform(-1, 1));
    return floats;
  }

  void AddWorker() {
    const std::string name = absl::StrCat("w", joined_++);
    v1::JoinRequest request;
    request.set_model("m");
    request.set_nonce(++nonces_);
    request.set_worker(name);
    const auto reply = models_.Join(request);
    INFO(reply.status());
    REQUIRE(reply.ok());
    const std::string& center = reply->model().spec().name();
    REQUIRE((center != "m") == rule_.own_centers);
    std::unique_ptr<Replica>& replica = replicas_[center];
    if (replica == nullptr) {
      replica = std::make_unique<Replica>(Replica{
          *models_.Find(center), Reference(rule_, hyperparameters_, sync_, Doubles(initial_.begin(), initial_.end()))});
    }
    replica->reference.Join(name);
    Worker added;
    added.worker = std::make_unique<ModelWorker>(replica->model.get(), name, reply->incarnation());
    added.replica = replica.get();
    workers_.push_back(std::move(added));
    // Every worker begins from the center.
    StartPull(&workers_.back());
  }

  void Step() {
    if (Chance(0.05) && workers_.size() < 5) return AddWorker();
    std::vector<size_t> free;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i].worker->waiting()) free.push_back(i);
    }
    REQUIRE_FALSE(free.empty());
    const size_t i = free[std::uniform_int_distribution<size_t>(0, free.size() - 1)(random_)];
    Worker& worker = workers_[i];
    INFO("worker " << worker.worker->name());
    if (worker.worker->may_send()) return Send(&worker);
    if (worker.exchanging) return End(&worker);
    if (Chance(0.03) && workers_.size() > 1) {
      REQUIRE(worker.worker->Leave().ok());
      worker.replica->reference.Leave(worker.worker->name());
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    Chance(0.2) ? StartPull(&worker) : StartCommit(&worker);
  }

  static void StartPull(Worker* worker) {
    worker->exchanging = worker->pulls = true;
    worker->commits = false;
    worker->worker->StartPull();
  }

  void StartCommit(Worker* worker) {
    worker->exchanging = worker->commits = true;
    worker->pulls = Chance(0.75);
    worker->commit = RandomFloats(initial_.size());
    worker->worker->StartSlowly(worker->commit, worker->pulls);
  }

  static void Send(Worker* worker) {
    Reference& reference = worker->replica->reference;
    worker->version_before = reference.version();
    worker->staleness = reference.Commit(worker->worker->name(), worker->commit, worker->worker->base_version());
    worker->worker->SendBytes();
  }

  void End(Worker* worker) {
    const Outcome outcome = worker->worker->End();
    INFO(outcome.status);
    REQUIRE(outcome.status.ok());
    worker->exchanging = false;
    const Reference& reference = worker->replica->reference;
    if (worker->pulls) {
      REQUIRE(outcome.center != nullptr);
      REQUIRE(outcome.center->version == outcome.version);
      const Doubles* const expected = reference.At(outcome.version);
      REQUIRE(expected != nullptr);
      REQUIRE(Near(Floats(*outcome.center), *expected));
    }
    if (!worker->commits) return;
    REQUIRE(outcome.committed);
    REQUIRE(outcome.staleness == worker->staleness);
    if (worker->pulls && rule_.elastic) {
      REQUIRE(outcome.version == worker->version_before);
    } else {
      REQUIRE(outcome.version > worker->version_before);
      REQUIRE(reference.At(outcome.version) != nullptr);
    }
    if (Chance(0.3)) {
      // The reply was lost. The commit must not be applied again.
      worker->exchanging = true;
      worker->worker->StartRetry();
      REQUIRE_FALSE(worker->worker->may_send());
    } else if (Chance(0.5)) {
      worker->worker->Acknowledge();
    }
  }

  const Rule rule_;
  const bool sync_;
  std::mt19937_64 random_;
  Hyperparameters hyperparameters_;
  std::vector<float> initial_;
  Models models_{ModelsOptions{}};
  uint64_t nonces_ = 0;
  std::map<std::string, std::unique_ptr<Replica>> replicas_;  // by the model's name
  std::vector<Worker> workers_;
  int joined_ = 0;
};

TEST_CASE("Random schedules leave the center where the mathematics says, in every algorithm and consistency") {
  for (const auto& [algorithm, rule] : Rules()) {
    for (const char* consistency : {"async", "bounded:0", "bounded:2", "sync"}) {
      for (const uint64_t seed : Seeds(kSchedules)) {
        INFO(algorithm << ", " << consistency << ", PARAMD_SEED=" << seed);
        Schedule(algorithm, consistency, seed).Run();
      }
    }
  }
}

TEST_CASE("The reference knows every algorithm that has a server half") {
  for (const Algorithm* algorithm : ListAlgorithms()) {
    if (algorithm->make_server == nullptr) continue;
    if (Rules().count(algorithm->name) == 0) WARN("no reference for " << algorithm->name << ": it is not replayed");
  }
  for (const auto& [name, rule] : Rules()) CHECK(FindAlgorithm(name).ok());
}

}  // namespace
}  // namespace paramd::testing
