// The numbers of the whole product: {overlap or not} x {every way that floats travel} x {every algorithm} x {async,
// bounded, sync} x {1, 2, 4 workers}, through a real server.
//
// The problem has a known answer: whatever its parameters and batch, a step of a worker adds the same small integers,
// which every encoding represents exactly. What all must end with, a Replay works out: the algorithm's halves, called
// one after the other in one thread, which takes nothing from the real run but the order of its exchanges.
#include <Eigen/Core>
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "tests/integration/fixtures.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

using Vector = std::vector<float>;

constexpr int64_t kEpochs = 3;
constexpr int64_t kBatches = 3;
constexpr int64_t kWindow = 2;  // so the last one is partial
constexpr int kBound = 1;

// Parameters and steps repeat with this period, so that floats at a wrong place are wrong floats.
constexpr size_t kPeriod = 35;

float Start(size_t i) { return static_cast<float>(i % 5); }

// What worker `w` adds to parameter `i` in a step.
float Step(size_t w, size_t i) { return static_cast<float>((i + 2 * w) % 7) - 3; }

const Hyperparameters kHyperparameters = {
    {"communication_window", kWindow}, {"learning_rate", 1}, {"rho", 0.25}, {"momentum", 0.5}, {"eta", 16}};

// Of what is not rounded on the wire; steps are whole numbers.
constexpr double kTolerance = 1e-3;

// What a sanitizer looks for is in a part of the product, too; numbers are not what it checks.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// How the floats of exchanges get from the workers to the server and back.
struct Way {
  const char* name;
  Transport transport;
  Wire wire;
  bool in_place;     // in the exchanger's own buffers
  double tolerance;  // of what was rounded on the wire: two roundings of the largest values
};

constexpr Way kWays[] = {
    {"f32/grpc", Transport::kGrpc, Wire::kFloat32, false, kTolerance},
    {"f16/grpc", Transport::kGrpc, Wire::kFloat16, false, 1.0 / 16},
    {"bf16/grpc", Transport::kGrpc, Wire::kBfloat16, false, 1.0 / 2},
    {"f32/shm", Transport::kShm, Wire::kFloat32, false, kTolerance},
    {"f32/shm in place", Transport::kShm, Wire::kFloat32, true, kTolerance},
};

float Round(Wire wire, float value) {
  switch (wire) {
    case Wire::kFloat32:
      return value;
    case Wire::kFloat16:
      return static_cast<float>(Eigen::half(value));
    case Wire::kBfloat16:
      return static_cast<float>(Eigen::bfloat16(value));
  }
  return value;
}

Vector Round(Wire wire, Vector values) {
  for (float& value : values) value = Round(wire, value);
  return values;
}

struct Combination {
  const Way* way;
  const Algorithm* algorithm;
  std::string consistency;
  size_t workers;
  bool overlap;
  size_t floats;

  std::string Name() const {
    return absl::StrCat(way->name, ", ", algorithm->name, ", ", consistency, ", ", workers, " workers, ",
                        overlap ? "overlap, " : "", floats, " floats");
  }
};

// When one worker's exchanges happened, in versions of the center.
struct Trace {
  struct Exchange {
    int64_t base;       // that its commit is based on
    int64_t staleness;  // of its commit
    int64_t version;    // of the center it brought
    int64_t merged_into() const { return base + staleness; }
  };

  int64_t first_pull = -1;
  std::vector<Exchange> exchanges;
};

// Writes down a worker's exchanges. Hides the worker's buffers unless they are to be used.
class Recorder : public Exchanger {
 public:
  Recorder(Worker* worker, bool in_place) : worker_(worker), in_place_(in_place) {}

  const Trace& trace() const { return trace_; }

  absl::StatusOr<Exchanged> Pull(absl::Span<float> center, absl::Duration timeout) override {
    auto pulled = worker_->Pull(center, timeout);
    if (pulled.ok()) base_ = trace_.first_pull = pulled->version;
    return pulled;
  }

  absl::StatusOr<Exchanged> Commit(absl::Span<const float> update, absl::Duration timeout) override {
    return worker_->Commit(update, timeout);
  }

  absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> center,
                                     absl::Duration timeout) override {
    auto exchanged = worker_->Exchange(update, center, timeout);
    if (exchanged.ok()) {
      trace_.exchanges.push_back({base_, exchanged->staleness, exchanged->version});
      base_ = exchanged->version;
    }
    return exchanged;
  }

  CommitState last_commit() const override { return worker_->last_commit(); }

  absl::Span<float> commit_buffer() override { return in_place_ ? worker_->commit_buffer() : absl::Span<float>(); }
  absl::Span<float> center_buffer() override { return in_place_ ? worker_->center_buffer() : absl::Span<float>(); }

  void Cancel() override { worker_->Cancel(); }

 private:
  Worker* const worker_;
  const bool in_place_;
  int64_t base_ = 0;
  Trace trace_;
};

// Steps by constants, in its own memory or in somebody else's.
class ConstantSteps : public Trainable {
 public:
  ConstantSteps(size_t worker, size_t floats, absl::Span<float> memory) : worker_(worker), parameters_(memory) {
    for (size_t i = 0; i < kPeriod; ++i) step_.push_back(Step(worker, i));
    if (!parameters_.empty()) return;
    own_.resize(floats);
    parameters_ = absl::MakeSpan(own_);
  }

  absl::Span<float> parameters() override { return parameters_; }

  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& /*batch*/) override {
    float* const parameters = parameters_.data();
    for (size_t row = 0; row < parameters_.size(); row += kPeriod) {
      const size_t n = std::min(kPeriod, parameters_.size() - row);
      for (size_t i = 0; i < n; ++i) parameters[row + i] += step_[i];
    }
    // So that overlapped exchanges end in every place.
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(++steps_ * (worker_ + 3) % 5 * 40);
    while (std::chrono::steady_clock::now() < end) {
    }
    return std::vector<double>{1};
  }

  double learning_rate() const override { return 1; }
  void set_learning_rate(double /*learning_rate*/) override {}

 private:
  const size_t worker_;
  Vector step_;
  Vector own_;
  absl::Span<float> parameters_;
  int64_t steps_ = 0;
};

// What the parameters of all workers of one center, and the center, end as: the algorithm's halves, one call after the
// other, on one period of the parameters.
class Replay {
 public:
  Replay(const Combination& combination, std::vector<std::pair<size_t, const Trace*>> workers,
         const Hyperparameters& hyperparameters)
      : wire_(combination.way->wire), server_(combination.algorithm->make_server(hyperparameters)) {
    Vector start;
    for (size_t i = 0; i < kPeriod; ++i) start.push_back(Start(i));
    centers_[0] = start;
    state_.assign(server_->state_vectors(), Vector(kPeriod, 0));
    for (const auto& [index, trace] : workers) {
      replicas_.push_back(
          {.index = index, .trace = trace, .half = combination.algorithm->make_worker(hyperparameters)});
    }
  }

  // False if the exchanges were in no order: a commit was lost, applied twice or into another version than it was said.
  bool Run() {
    std::multimap<int64_t, Replica*> commits;  // by the version that each was merged into
    for (Replica& replica : replicas_) {
      for (const Trace::Exchange& exchange : replica.trace->exchanges)
        commits.emplace(exchange.merged_into(), &replica);
    }
    int64_t version = 0;
    for (auto commit = commits.begin(); commit != commits.end();) {
      if (commit->first != version) return false;
      // More than one in a round of `sync`.
      const auto end = commits.upper_bound(version);
      Vector sum(kPeriod, 0);
      const int64_t merged = std::distance(commit, end);
      for (; commit != end; ++commit) Merge(commit->second, version, &sum);
      Finish(version, merged, &sum);
      version += merged;
      ++rounds_;
    }
    for (Replica& replica : replicas_) Adopt(&replica);
    return true;
  }

  int64_t version() const { return centers_.rbegin()->first; }
  const Vector& center() const { return centers_.rbegin()->second; }
  const Vector& parameters(size_t worker) const {
    return std::find_if(replicas_.begin(), replicas_.end(), [worker](const Replica& r) { return r.index == worker; })
        ->parameters;
  }

 private:
  struct Replica {
    size_t index;
    const Trace* trace;
    std::unique_ptr<WorkerHalf> half;
    size_t exchanged = 0;
    bool outstanding = false;  // an exchange whose answer was not adopted
    Vector parameters = {};
    Vector pulled = {};
  };

  // What the last exchange brought, or the first pull.
  void Adopt(Replica* r) {
    if (r->exchanged == 0) {
      r->parameters = Round(wire_, centers_.at(r->trace->first_pull));
    } else {
      const Vector center = Round(wire_, centers_.at(r->trace->exchanges[r->exchanged - 1].version));
      r->half->Absorb(center, absl::MakeSpan(r->parameters));
    }
    r->pulled = r->parameters;
  }

  void Train(Replica* r, int64_t steps) {
    const absl::Span<float> parameters = absl::MakeSpan(r->parameters);
    for (int64_t step = 0; step < steps; ++step) {
      r->half->BeforeStep({&parameters, 1});
      for (size_t i = 0; i < kPeriod; ++i) parameters[i] += Step(r->index, i);
      r->half->AfterStep({&parameters, 1});
    }
  }

  void Merge(Replica* r, int64_t version, Vector* sum) {
    Adopt(r);
    const Trace::Exchange& exchange = r->trace->exchanges[r->exchanged];
    const int64_t minibatches =
        r->half->exchange_point() == ExchangePoint::kEpoch
            ? kBatches
            : std::min(kWindow, kEpochs * kBatches - static_cast<int64_t>(r->exchanged) * kWindow);
    Train(r, minibatches);
    Vector commit(kPeriod);
    r->half->MakeCommit(minibatches, r->parameters, r->pulled, absl::MakeSpan(commit));
    commit = Round(wire_, commit);
    const Vector no_base;
    const Vector& base = server_->needs_base() ? centers_.at(exchange.base) : no_base;
    server_->Merge({.version = version, .base_version = exchange.base, .staleness = exchange.staleness},
                   {.commit = commit, .center = centers_.at(version), .base = base, .sum = absl::MakeSpan(*sum)});
    ++r->exchanged;
  }

  void Finish(int64_t version, int64_t merged, Vector* sum) {
    Vector next(kPeriod);
    std::vector<absl::Span<float>> state;
    for (Vector& vector : state_) state.push_back(absl::MakeSpan(vector));
    server_->Finish({.commits = merged, .before = rounds_},
                    {.center = centers_.at(version), .sum = *sum, .next = absl::MakeSpan(next), .state = state});
    centers_[version + merged] = std::move(next);
  }

  const Wire wire_;
  const std::unique_ptr<ServerHalf> server_;
  std::map<int64_t, Vector> centers_;  // by version
  std::vector<Vector> state_;
  int64_t rounds_ = 0;
  std::vector<Replica> replicas_;
};

// By how much `values` differ from `period`, repeated.
double Distance(absl::Span<const float> values, const Vector& period) {
  double distance = 0;
  for (size_t row = 0; row < values.size(); row += kPeriod) {
    const size_t n = std::min(kPeriod, values.size() - row);
    for (size_t i = 0; i < n; ++i) {
      const double difference = std::abs(static_cast<double>(values[row + i]) - period[i]);
      // NaN is no distance.
      if (!(difference <= distance)) distance = std::isfinite(difference) ? difference : INFINITY;
    }
  }
  return distance;
}

// One worker of a run.
struct Participant {
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<ConstantSteps> model;
  EmptyBatches batches{kBatches};
  std::unique_ptr<TrainLoop> loop;
  absl::StatusOr<TrainSummary> summary;
};

std::vector<Participant> JoinAll(const std::string& server, const Combination& c, const std::string& model,
                                 const Hyperparameters& hyperparameters) {
  std::vector<Participant> participants(c.workers);
  for (size_t w = 0; w < c.workers; ++w) {
    Participant& p = participants[w];
    p.worker = Join({.server = server,
                     .model = model,
                     .worker = std::to_string(w),
                     .transport = c.way->transport,
                     .wire = c.way->wire});
    CHECK(p.worker->transport() == c.way->transport);
    CHECK(p.worker->wire() == c.way->wire);
    std::unique_ptr<WorkerHalf> half = c.algorithm->make_worker(hyperparameters);
    // What is committed can lie in the buffer all the time.
    const bool in_buffer = c.way->in_place && half->commits_parameters() && !c.overlap;
    p.recorder = std::make_unique<Recorder>(p.worker.get(), c.way->in_place);
    p.model = std::make_unique<ConstantSteps>(w, c.floats, in_buffer ? p.worker->commit_buffer() : absl::Span<float>());
    p.loop = std::make_unique<TrainLoop>(
        p.model.get(), &p.batches, p.recorder.get(), std::move(half), hyperparameters,
        TrainOptions{.epochs = kEpochs, .overlap = c.overlap, .exchange_timeout = kCallTimeout});
  }
  return participants;
}

// Nobody gets more than the bound, and the one commit that is counted when it is applied, ahead of the slowest.
void CheckBound(const std::vector<Participant>& participants) {
  std::map<int64_t, size_t> order;  // who committed, by version
  for (size_t w = 0; w < participants.size(); ++w) {
    for (const Trace::Exchange& e : participants[w].recorder->trace().exchanges) order[e.merged_into()] = w;
  }
  std::vector<int> windows(participants.size());
  for (const auto& [version, worker] : order) {
    ++windows[worker];
    CHECK(windows[worker] <= *std::min_element(windows.begin(), windows.end()) + kBound + 1);
  }
}

void CheckCenter(const std::string& server, const std::string& model, const Replay& replay, double tolerance) {
  const auto [center, version] = ReadCenter(server, model);
  CHECK(version == replay.version());
  CHECK(Distance(center, replay.center()) <= tolerance);
}

void TrainAndCheck(const std::string& server, const Combination& c) {
  INFO(c.Name());
  Hyperparameters given;
  for (const HyperparameterSpec& spec : HyperparameterSpecs(*c.algorithm)) {
    if (kHyperparameters.count(spec.name) > 0) given[spec.name] = kHyperparameters.at(spec.name);
  }
  const auto hyperparameters = CompleteHyperparameters(*c.algorithm, given);
  REQUIRE(hyperparameters.ok());

  Vector start(c.floats);
  for (size_t i = 0; i < c.floats; ++i) start[i] = Start(i % kPeriod);
  const bool own_centers = c.algorithm->make_server(*hyperparameters)->own_centers();
  const auto admin = Connect(server);
  REQUIRE(admin->CreateModel(Spec("m", c.algorithm->name, c.floats, c.consistency, given)).ok());
  std::vector<Participant> participants = JoinAll(server, c, "m", *hyperparameters);
  for (size_t w = 0; w < (own_centers ? c.workers : 1); ++w) {
    REQUIRE(participants[w].worker->Initialize(start, kCallTimeout).ok());
  }
  {
    std::vector<Thread> threads;
    for (Participant& p : participants) {
      threads.emplace_back([&p] {
        p.summary = p.loop->Run();
        // Its commits are in; nobody shall wait for it.
        p.worker->Leave().IgnoreError();
      });
    }
  }

  std::vector<std::pair<size_t, const Trace*>> traces;
  for (size_t w = 0; w < c.workers; ++w) {
    INFO("worker " << w << ": " << participants[w].summary.status());
    REQUIRE(participants[w].summary.ok());
    const Trace& trace = participants[w].recorder->trace();
    CHECK(participants[w].summary->steps == kEpochs * kBatches);
    CHECK(participants[w].summary->exchanges == static_cast<int64_t>(trace.exchanges.size()));
    traces.emplace_back(w, &trace);
  }
  if (c.consistency != "async" && c.consistency != "sync" && !own_centers) CheckBound(participants);
  for (size_t w = 0; w < (own_centers ? c.workers : 1); ++w) {
    Replay replay(c, own_centers ? std::vector{traces[w]} : traces, *hyperparameters);
    if (!replay.Run()) {
      FAIL_CHECK("a commit was lost or applied twice");
      continue;
    }
    const std::string model = participants[w].worker->model().spec().name();
    // A step is not rounded on the wire; parameters, which some algorithms commit, are.
    const bool rounded = c.algorithm->make_worker(*hyperparameters)->commits_parameters();
    CheckCenter(server, model, replay, rounded ? c.way->tolerance : kTolerance);
    for (const auto& [index, trace] : own_centers ? std::vector{traces[w]} : traces) {
      INFO("parameters of worker " << index);
      CHECK(Distance(participants[index].model->parameters(), replay.parameters(index)) <= c.way->tolerance);
    }
    // What was on the wire is let go once its last write has ended.
    CHECK(Await([&] { return admin->GetModel(model)->pinned_bytes() == 0; }));
  }
  REQUIRE(admin->DeleteModel("m").ok());
}

void TrainEach(const Way& way, const std::vector<size_t>& worker_counts, size_t floats) {
  const auto server = StartServer();
  int trained = 0;
  for (const Algorithm* algorithm : ListAlgorithms()) {
    if (algorithm->make_server == nullptr) continue;
    for (const std::string& consistency :
         {std::string("async"), absl::StrCat("bounded:", kBound), std::string("sync")}) {
      for (const size_t workers : worker_counts) {
        for (const bool overlap : {false, true}) {
          TrainAndCheck(server->address(), {&way, algorithm, consistency, workers, overlap, floats});
          ++trained;
        }
      }
    }
  }
  CHECK(trained >= 9 * 3 * 2);
}

// Its last piece of the merge, 1,024 floats, is a part.
TEST_CASE("center and workers end where the algorithm says, whatever the combination") {
  const Way& way = GENERATE(from_range(std::begin(kWays), std::end(kWays)));
  DYNAMIC_SECTION(way.name) {
    TrainEach(way, kSanitized ? std::vector<size_t>{2} : std::vector<size_t>{1, 2, 4}, 2500);
  }
}

// Four blocks, which several threads apply; the last one is a part.
TEST_CASE("so they do with a large model") {
  const Way& way = GENERATE(from_range(std::begin(kWays), std::end(kWays)));
  // Either half precision takes the same way.
  if (way.wire == Wire::kBfloat16 || (kSanitized && way.wire == Wire::kFloat16)) return;
  DYNAMIC_SECTION(way.name) { TrainEach(way, {2}, 811'435); }
}

TEST_CASE("training without a server steps and does nothing else, with and without overlap") {
  const Algorithm* const single = *FindAlgorithm("single");
  const auto hyperparameters = CompleteHyperparameters(*single, {});
  REQUIRE(hyperparameters.ok());
  for (const bool overlap : {false, true}) {
    ConstantSteps model(0, 2500, {});
    EmptyBatches batches(kBatches);
    TrainLoop loop(&model, &batches, nullptr, single->make_worker(*hyperparameters), *hyperparameters,
                   {.epochs = kEpochs, .overlap = overlap});
    const auto summary = loop.Run();
    INFO(summary.status());
    REQUIRE(summary.ok());
    Vector end(kPeriod);
    for (size_t i = 0; i < kPeriod; ++i) end[i] = kEpochs * kBatches * Step(0, i);
    CHECK(Distance(model.parameters(), end) == 0);
  }
}

}  // namespace
}  // namespace paramd
