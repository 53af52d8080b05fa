#include "client/train.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "algorithms/algorithm.h"
#include "catch2/catch.hpp"
#include "client/exchanger.h"
#include "client/trainable.h"
#include "sync/mutex.h"

namespace paramd {
namespace {

using Losses = absl::StatusOr<std::vector<double>>;

// Closed until somebody opens it; stays open.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    MutexLock lock(&mutex_);
    while (!open_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// Minibatch i of epoch e has the features {e, i} and 10 rows, the last one of an epoch 3.
class CountingSource : public BatchSource {
 public:
  explicit CountingSource(int64_t batches) : batches_(batches) {}

  absl::StatusOr<bool> Next(Batch* batch) override {
    if (before_next) {
      if (absl::Status status = before_next(epoch_, next_); !status.ok()) return status;
    }
    if (next_ == batches_) return false;
    memory.insert(batch);
    batch->features = {static_cast<float>(epoch_), static_cast<float>(next_)};
    batch->rows = ++next_ == batches_ ? 3 : 10;
    ++filled;
    return true;
  }

  absl::Status Rewind(int64_t epoch) override {
    if (on_rewind) on_rewind(epoch);
    rewinds.push_back(epoch);
    epoch_ = epoch;
    next_ = 0;
    return absl::OkStatus();
  }

  int64_t batches_per_epoch() const override {
    if (on_hint) on_hint();
    return hint;
  }

  void Cancel() override {
    ++cancels;
    if (on_cancel) on_cancel();
  }

  int64_t hint = 0;
  std::function<void()> on_hint;
  std::function<absl::Status(int64_t epoch, int64_t next)> before_next;
  std::function<void(int64_t epoch)> on_rewind;
  std::function<void()> on_cancel;
  std::vector<int64_t> rewinds;
  std::set<const Batch*> memory;
  std::atomic<int64_t> filled = 0;
  std::atomic<int> cancels = 0;

 private:
  const int64_t batches_;
  int64_t epoch_ = -1;
  int64_t next_ = 0;
};

// By default every step adds 1 to every parameter, and its loss is 1.
class TestModel : public Trainable {
 public:
  explicit TestModel(size_t size) : values(size, -1) {}

  absl::Span<float> parameters() override {
    if (on_parameters) on_parameters();
    return placed.empty() ? absl::MakeSpan(values) : placed;
  }

  Losses TrainOnBatch(const Batch& batch) override {
    seen.emplace_back(static_cast<int64_t>(batch.features[0]), static_cast<int64_t>(batch.features[1]));
    const int64_t n = ++steps;
    for (float& value : parameters()) value = step ? step(value) : value + 1;
    if (on_step) return on_step(n);
    return std::vector<double>{1};
  }

  double learning_rate() const override { return rate; }
  void set_learning_rate(double learning_rate) override {
    if (on_rate) on_rate();
    rate = learning_rate;
    steps_at_rate = steps;
  }

  std::vector<float> values;
  absl::Span<float> placed;  // the parameters in memory of another's, if not empty
  std::function<float(float)> step;
  std::function<Losses(int64_t step)> on_step;  // on the training thread, after the parameters have moved
  std::function<void()> on_parameters;
  std::function<void()> on_rate;
  std::vector<std::pair<int64_t, int64_t>> seen;
  std::atomic<int64_t> steps = 0;
  double rate = 7;
  int64_t steps_at_rate = -1;
};

// A server of one center in memory. Between two exchanges the others add `others` to the center.
class TestServer : public Exchanger {
 public:
  explicit TestServer(std::vector<float> initial) : center(std::move(initial)) {}

  absl::StatusOr<Exchanged> Pull(absl::Span<float> out, absl::Duration timeout) override {
    if (on_pull) {
      if (absl::Status status = on_pull(); !status.ok()) return status;
    }
    timeouts.push_back(timeout);
    std::copy(center.begin(), center.end(), out.begin());
    return Exchanged{.version = version};
  }

  absl::StatusOr<Exchanged> Commit(absl::Span<const float>, absl::Duration) override {
    return absl::UnimplementedError("the loop never commits alone");
  }

  absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> out,
                                     absl::Duration timeout) override {
    most_under_way = std::max<int>(most_under_way, ++under_way);
    absl::StatusOr<Exchanged> exchanged = Apply(update, out, timeout);
    --under_way;
    return exchanged;
  }

  void Cancel() override {
    ++cancels;
    cancelled.Open();
  }

  absl::Status ended() const override { return end; }
  absl::Span<float> commit_buffer() override { return absl::MakeSpan(lent_commit); }
  absl::Span<float> center_buffer() override { return absl::MakeSpan(lent_center); }
  void LendBuffers() {
    lent_commit.assign(center.size(), 0);
    lent_center.assign(center.size(), 0);
  }

  std::vector<float> center;
  std::vector<float> lent_commit;
  std::vector<float> lent_center;
  float others = 0;
  double alpha = 0;  // not 0: elastic
  int64_t staleness = 2;
  std::function<absl::Status()> on_pull;
  std::function<absl::Status(int64_t exchange)> on_exchange;  // counted from 1
  std::vector<absl::Duration> timeouts;
  std::vector<std::vector<float>> commits;
  const float* last_commit_memory = nullptr;
  const float* last_center_memory = nullptr;
  int64_t version = 0;
  absl::Status end;
  std::atomic<int> under_way = 0;
  std::atomic<int> most_under_way = 0;
  std::atomic<int> cancels = 0;
  Gate cancelled;

 private:
  absl::StatusOr<Exchanged> Apply(absl::Span<const float> update, absl::Span<float> out, absl::Duration timeout) {
    if (update.size() != center.size() || out.size() != center.size()) {
      return absl::InvalidArgumentError("wrong length");
    }
    if (on_exchange) {
      if (absl::Status status = on_exchange(static_cast<int64_t>(commits.size()) + 1); !status.ok()) return status;
    }
    timeouts.push_back(timeout);
    commits.emplace_back(update.begin(), update.end());
    last_commit_memory = update.data();
    last_center_memory = out.data();
    for (size_t i = 0; i < center.size(); ++i) {
      if (alpha != 0) {
        out[i] = center[i];
        center[i] += static_cast<float>(alpha * (update[i] - center[i])) + others;
      } else {
        center[i] += update[i] + others;
        out[i] = center[i];
      }
    }
    return Exchanged{.version = ++version, .staleness = staleness};
  }
};

// δ = W − W₁, or that over λ.
class DeltaHalf : public WorkerHalf {
 public:
  explicit DeltaHalf(bool normalize = false, std::vector<int64_t>* lambdas = nullptr)
      : normalize_(normalize), lambdas_(lambdas) {}

  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    if (lambdas_ != nullptr) lambdas_->push_back(minibatches);
    const float divisor = normalize_ ? static_cast<float>(minibatches) : 1;
    for (size_t i = 0; i < commit.size(); ++i) commit[i] = (parameters[i] - pulled[i]) / divisor;
  }
  void Absorb(absl::Span<const float> center, absl::Span<float> parameters) override {
    std::copy(center.begin(), center.end(), parameters.begin());
  }

 private:
  const bool normalize_;
  std::vector<int64_t>* const lambdas_;
};

class ElasticHalf : public WorkerHalf {
 public:
  explicit ElasticHalf(float alpha) : alpha_(alpha) {}

  bool commits_parameters() const override { return true; }
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {
    throw std::logic_error("MakeCommit was called");
  }
  void Absorb(absl::Span<const float> center, absl::Span<float> parameters) override {
    for (size_t i = 0; i < center.size(); ++i) parameters[i] -= alpha_ * (parameters[i] - center[i]);
  }

 private:
  const float alpha_;
};

class EpochHalf : public DeltaHalf {
 public:
  using DeltaHalf::DeltaHalf;
  ExchangePoint exchange_point() const override { return ExchangePoint::kEpoch; }
};

class LocalHalf : public DeltaHalf {
 public:
  ExchangePoint exchange_point() const override { return ExchangePoint::kNever; }
};

class ThrowingHalf : public DeltaHalf {
 public:
  explicit ThrowingHalf(std::string method) : method_(std::move(method)) {}

  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    Throw("MakeCommit");
    DeltaHalf::MakeCommit(minibatches, parameters, pulled, commit);
  }
  void Absorb(absl::Span<const float> center, absl::Span<float> parameters) override {
    Throw("Absorb");
    DeltaHalf::Absorb(center, parameters);
  }
  void BeforeStep(absl::Span<const absl::Span<float>>) override { Throw("BeforeStep"); }
  void AfterStep(absl::Span<const absl::Span<float>>) override { Throw("AfterStep"); }
  ExchangePoint exchange_point() const override {
    Throw("exchange_point");
    return ExchangePoint::kWindow;
  }

 private:
  void Throw(const std::string& method) const {
    if (method == method_) throw std::runtime_error("out of magic");
  }
  const std::string method_;
};

Hyperparameters Model(double window, double learning_rate = 0.25) {
  return {{"communication_window", window}, {"learning_rate", learning_rate}};
}

absl::StatusOr<TrainSummary> Train(TestModel* model, BatchSource* source, Exchanger* server,
                                   std::unique_ptr<WorkerHalf> half, const Hyperparameters& hyperparameters,
                                   TrainOptions options = {}) {
  TrainLoop loop(model, source, server, std::move(half), hyperparameters, std::move(options));
  return loop.Run();
}

void CheckError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
  CHECK(status.code() == code);
  for (const std::string& part : parts) CHECK_THAT(std::string(status.message()), Catch::Contains(part));
}

TEST_CASE("training begins with the center and the model's learning rate") {
  TestModel model(2);
  CountingSource source(1);
  TestServer server({5, 6});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(10));
  REQUIRE(summary.ok());
  CHECK(server.commits == std::vector<std::vector<float>>{{1, 1}});
  CHECK(model.values == std::vector<float>{6, 7});
  CHECK(model.rate == 0.25);
  CHECK(model.steps_at_rate == 0);
  CHECK(server.timeouts == std::vector<absl::Duration>(2, absl::InfiniteDuration()));
}

TEST_CASE("the options' learning rate, window and timeout go before the model's") {
  TestModel model(1);
  CountingSource source(4);
  TestServer server({0});
  const TrainOptions options{.communication_window = 2, .learning_rate = 0.5, .exchange_timeout = absl::Seconds(9)};
  REQUIRE(Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(3), options).ok());
  CHECK(model.rate == 0.5);
  CHECK(server.commits == std::vector<std::vector<float>>{{2}, {2}});
  CHECK(server.timeouts == std::vector<absl::Duration>(3, absl::Seconds(9)));
}

TEST_CASE("a commit is made of the minibatches since the last exchange, the last partial window's too") {
  // Windows of 3, 3 and 1 over two epochs of 3 and a half windows; the others add 100 before each answer.
  TestModel model(1);
  model.step = [](float w) { return w + 6; };
  CountingSource source(7);
  TestServer server({0});
  server.others = 100;
  std::vector<int64_t> lambdas;
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(true, &lambdas), Model(3));
  REQUIRE(summary.ok());
  CHECK(lambdas == std::vector<int64_t>{3, 3, 1});
  CHECK(server.commits == std::vector<std::vector<float>>{{6}, {6}, {6}});
  CHECK(model.values == std::vector<float>{318});
  CHECK(server.center == model.values);
}

TEST_CASE("the exchanger's buffers are used where it has some, with the same result") {
  const bool overlap = GENERATE(false, true);
  const bool elastic = GENERATE(false, true);
  const auto train = [&](bool lend) {
    auto server = std::make_unique<TestServer>(std::vector<float>{64, 8});
    server->others = 3;
    if (elastic) server->alpha = 0.25;
    if (lend) server->LendBuffers();
    TestModel model(2);
    CountingSource source(9);
    std::unique_ptr<WorkerHalf> half;
    if (elastic) {
      half = std::make_unique<ElasticHalf>(0.25f);
    } else {
      half = std::make_unique<DeltaHalf>();
    }
    REQUIRE(Train(&model, &source, server.get(), std::move(half), Model(3), {.overlap = overlap}).ok());
    return server;
  };
  const auto without = train(false);
  const auto with = train(true);
  CHECK(with->commits.size() == 3);
  if (!overlap) CHECK(with->commits == without->commits);
  CHECK(with->last_center_memory == with->lent_center.data());
  // Elastic parameters are the model's own, unless a copy must be kept. With overlap a delta changes places with W.
  const bool in_place = overlap || !elastic;
  CHECK((with->last_commit_memory == with->lent_commit.data()) == in_place);
}

TEST_CASE("a model may keep the parameters that it commits in the exchanger's commit buffer, and nowhere else") {
  TestModel model(0);
  CountingSource source(2);
  TestServer server({64});
  server.alpha = 0.5;
  server.LendBuffers();
  const auto train = [&](std::unique_ptr<WorkerHalf> half, bool overlap) {
    return Train(&model, &source, &server, std::move(half), Model(1), {.overlap = overlap}).status();
  };
  model.placed = server.commit_buffer();
  CHECK(train(std::make_unique<ElasticHalf>(0.5f), false).ok());
  CHECK(server.commits == std::vector<std::vector<float>>{{65}, {65.5}});
  CHECK(server.last_commit_memory == server.lent_commit.data());
  const std::vector<std::string> why = {"in a buffer of the exchanger's", "overwritten"};
  CheckError(train(std::make_unique<ElasticHalf>(0.5f), true), absl::StatusCode::kInvalidArgument, why);
  CheckError(train(std::make_unique<DeltaHalf>(), false), absl::StatusCode::kInvalidArgument, why);
  model.placed = server.center_buffer();
  CheckError(train(std::make_unique<ElasticHalf>(0.5f), false), absl::StatusCode::kInvalidArgument, why);
  CHECK(server.commits.size() == 2);
}

TEST_CASE("an elastic worker's parameters are sent from where they are and keep what Absorb leaves") {
  TestModel model(1);
  model.step = [](float w) { return w / 2; };
  CountingSource source(3);
  TestServer server({64});
  server.alpha = 0.5;
  server.others = 100;
  REQUIRE(Train(&model, &source, &server, std::make_unique<ElasticHalf>(0.5f), Model(2)).ok());
  // 64, 32, 16 meets 64: both go to 40, the center on to 140. 20 meets 140: both go to 80.
  CHECK(server.commits == std::vector<std::vector<float>>{{16}, {20}});
  CHECK(model.values == std::vector<float>{80});
  CHECK(server.center == std::vector<float>{180});
  CHECK(server.last_commit_memory == model.values.data());
}

TEST_CASE("every minibatch is trained exactly once an epoch and committed, whatever the window") {
  for (const bool overlap : {false, true}) {
    for (int64_t batches = 1; batches <= 5; ++batches) {
      for (int64_t window = 1; window <= 7; ++window) {
        for (int64_t epochs = 1; epochs <= 3; ++epochs) {
          for (const int prefetch : {1, 3, 100}) {
            CAPTURE(overlap, batches, window, epochs, prefetch);
            TestModel model(3);
            CountingSource source(batches);
            TestServer server({10, 20, 30});
            std::vector<int64_t> lambdas;
            int64_t reported = 0;
            bool in_order = true;
            TrainOptions options{.epochs = epochs, .max_prefetch = prefetch, .overlap = overlap};
            options.on_window = [&](const std::vector<StepResult>& results) {
              in_order = in_order && !results.empty();
              for (const StepResult& result : results) in_order = in_order && result.step == ++reported;
              return absl::OkStatus();
            };
            const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(false, &lambdas),
                                       Model(static_cast<double>(window)), options);
            REQUIRE(summary.ok());

            std::vector<std::pair<int64_t, int64_t>> expected;
            std::vector<int64_t> rewinds;
            for (int64_t e = 0; e < epochs; ++e) {
              rewinds.push_back(e);
              for (int64_t i = 0; i < batches; ++i) expected.emplace_back(e, i);
            }
            const int64_t steps = epochs * batches;
            CHECK(model.seen == expected);
            CHECK(source.rewinds == rewinds);
            std::vector<int64_t> expected_lambdas(static_cast<size_t>(steps / window), window);
            if (steps % window > 0) expected_lambdas.push_back(steps % window);
            CHECK(lambdas == expected_lambdas);
            const float moved = static_cast<float>(steps);
            CHECK(server.center == std::vector<float>{10 + moved, 20 + moved, 30 + moved});
            CHECK(model.values == server.center);
            CHECK(reported == steps);
            CHECK(in_order);
            CHECK(summary->steps == steps);
            CHECK(summary->samples == epochs * ((batches - 1) * 10 + 3));
            CHECK(summary->epochs == epochs);
            CHECK(summary->exchanges == static_cast<int64_t>(expected_lambdas.size()));
            CHECK(server.most_under_way == 1);
            CHECK(source.cancels == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("an algorithm that exchanges by the epoch does so at each epoch's end, whatever the window") {
  const bool overlap = GENERATE(false, true);
  TestModel model(1);
  CountingSource source(5);
  TestServer server({0});
  std::vector<int64_t> lambdas;
  const auto summary = Train(&model, &source, &server, std::make_unique<EpochHalf>(false, &lambdas), Model(2),
                             {.epochs = 3, .overlap = overlap});
  REQUIRE(summary.ok());
  CHECK(lambdas == std::vector<int64_t>{5, 5, 5});
  CHECK(server.center == std::vector<float>{15});
  CHECK(model.values == server.center);
}

TEST_CASE("without exchanges the model trains where it stands and reports each window") {
  const bool has_half = GENERATE(false, true);
  TestModel model(1);
  CountingSource source(5);
  std::vector<size_t> windows;
  TrainOptions options{.epochs = 2, .overlap = true};
  options.on_window = [&](const std::vector<StepResult>& results) {
    windows.push_back(results.size());
    return absl::OkStatus();
  };
  const auto summary =
      Train(&model, &source, nullptr, has_half ? std::make_unique<LocalHalf>() : nullptr, Model(4), options);
  REQUIRE(summary.ok());
  CHECK(model.values == std::vector<float>{9});
  CHECK(windows == std::vector<size_t>{4, 4, 2});
  CHECK(summary->exchanges == 0);
  CHECK(summary->mean_staleness == 0);
  CHECK(summary->exchanging == absl::ZeroDuration());
}

TEST_CASE("the algorithm's hooks surround every step") {
  class HookHalf : public DeltaHalf {
   public:
    void BeforeStep(absl::Span<const absl::Span<float>> parameters) override { parameters[0][0] += 10; }
    void AfterStep(absl::Span<const absl::Span<float>> parameters) override { parameters[0][0] *= 2; }
  };
  TestModel model(1);
  CountingSource source(2);
  TestServer server({0});
  REQUIRE(Train(&model, &source, &server, std::make_unique<HookHalf>(), Model(2)).ok());
  CHECK(model.values == std::vector<float>{66});  // ((0 + 10 + 1) · 2 + 10 + 1) · 2
}

TEST_CASE("a loss that is not finite fails the worker before anything of its window is committed") {
  const double loss = GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const bool overlap = GENERATE(false, true);
  TestModel model(1);
  model.on_step = [loss](int64_t step) -> Losses { return std::vector<double>{step == 6 ? loss : 1}; };
  CountingSource source(10);
  TestServer server({0});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.overlap = overlap});
  CheckError(summary.status(), absl::StatusCode::kInvalidArgument,
             {"step 6", std::isnan(loss) ? "nan" : "inf", "learning rate (0.25)", "lower it"});
  CHECK(server.commits.size() == 2);
}

TEST_CASE("a loss that is not finite in the first step is not blamed on the learning rate") {
  TestModel model(1);
  model.on_step = [](int64_t) -> Losses { return std::vector<double>{std::nan("")}; };
  CountingSource source(10);
  TestServer server({0});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
  CheckError(summary.status(), absl::StatusCode::kInvalidArgument, {"step 1", "nan", "the data"});
  CHECK_THAT(std::string(summary.status().message()), !Catch::Contains("learning rate"));
}

TEST_CASE("training stops at the target loss, after its window is exchanged") {
  const bool overlap = GENERATE(false, true);
  TestModel model(1);
  model.on_step = [](int64_t step) -> Losses { return std::vector<double>{10.0 - static_cast<double>(step)}; };
  CountingSource source(100);
  TestServer server({0});
  // The windows' means are 8.5, 6.5, 4.5, ...
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2),
                             {.epochs = 5, .target_loss = 6.5, .overlap = overlap});
  REQUIRE(summary.ok());
  CHECK(summary->reached_target_loss);
  CHECK(summary->steps == 4);
  CHECK(summary->epochs == 0);
  CHECK(summary->last_loss == 6.5);
  CHECK(server.center == std::vector<float>{4});
  CHECK(model.values == server.center);
}

TEST_CASE("a negative target loss never stops training") {
  TestModel model(1);
  model.on_step = [](int64_t) -> Losses { return std::vector<double>{-5}; };
  CountingSource source(6);
  TestServer server({0});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
  REQUIRE(summary.ok());
  CHECK(summary->steps == 6);
  CHECK_FALSE(summary->reached_target_loss);
}

TEST_CASE("the summary and the steps' results tell what happened") {
  TestModel model(1);
  model.on_step = [](int64_t step) -> Losses { return std::vector<double>{static_cast<double>(step), 0.5, 0.25}; };
  CountingSource source(4);
  TestServer server({0});
  std::vector<StepResult> all;
  TrainOptions options{.epochs = 2};
  options.on_window = [&](const std::vector<StepResult>& results) {
    all.insert(all.end(), results.begin(), results.end());
    return absl::OkStatus();
  };
  SECTION("with a source that knows its length") { source.hint = 4; }
  SECTION("with one that does not") {}
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(3), options);
  REQUIRE(summary.ok());
  CHECK(summary->exchanges == 3);
  CHECK(summary->mean_staleness == 2);
  CHECK(summary->last_loss == 7.5);
  CHECK(summary->wall > absl::ZeroDuration());
  CHECK(summary->exchanging > absl::ZeroDuration());
  CHECK(summary->exchanging < summary->wall);
  REQUIRE(all.size() == 8);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].step == static_cast<int64_t>(i) + 1);
    CHECK(all[i].loss == static_cast<double>(i) + 1);
    CHECK(all[i].metrics == std::vector<double>{0.5, 0.25});
    CHECK(all[i].time_s >= (i > 0 ? all[i - 1].time_s : 0));
    const double known = static_cast<double>(i + 1) / 4;
    CHECK(all[i].epoch == (source.hint > 0 || i >= 4 ? known : 0));
  }
}

TEST_CASE("the time that training stood still is that of the exchange, unless it overlaps") {
  const bool overlap = GENERATE(false, true);
  constexpr absl::Duration kExchange = absl::Milliseconds(200);
  TestModel model(1);
  CountingSource source(2);
  TestServer server({0});
  // The first exchange lasts 200 ms, or with overlap until the next step has taken as long.
  std::atomic<bool> stepped = false;
  model.on_step = [&](int64_t step) -> Losses {
    if (step == 2 && overlap) {
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(kExchange));
      stepped = true;
    }
    return std::vector<double>{1};
  };
  server.on_exchange = [&](int64_t exchange) {
    if (exchange > 1) return absl::OkStatus();
    if (!overlap) std::this_thread::sleep_for(absl::ToChronoMilliseconds(kExchange));
    while (overlap && !stepped) std::this_thread::yield();
    return absl::OkStatus();
  };
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(1), {.overlap = overlap});
  REQUIRE(summary.ok());
  if (overlap) {
    CHECK(summary->exchanging <= summary->wall - kExchange);
  } else {
    CHECK(summary->exchanging >= kExchange);
  }
}

// Lets the first exchange answer only while the last step of the second window trains, so that the loop adopts it at
// that window's end.
struct LateAnswer {
  LateAnswer(TestModel* model, TestServer* server, int64_t last_step) {
    model->on_step = [this, last_step](int64_t step) -> Losses {
      if (step == last_step) gate.Open();
      return std::vector<double>{1};
    };
    server->on_exchange = [this](int64_t) {
      gate.Wait();
      return absl::OkStatus();
    };
  }
  Gate gate;
};

TEST_CASE("overlap adds to the parameters what the answer changed, and measures the next commit from there") {
  TestModel model(1);
  model.step = [](float w) { return w / 2; };
  CountingSource source(4);
  TestServer server({64});
  server.others = 100;
  LateAnswer late(&model, &server, 4);
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.overlap = true});
  REQUIRE(summary.ok());
  // 64, 32, 16: commits −48, and the center is 116. Meanwhile 8, 4; then W = 4 + 116 − 16 = 104 and W₁ = 116: commits
  // −12, and the center is 204.
  CHECK(server.commits == std::vector<std::vector<float>>{{-48}, {-12}});
  CHECK(model.values == std::vector<float>{204});
  CHECK(server.center == model.values);
}

TEST_CASE("overlap keeps λ of the last partial window and the progress of every step") {
  TestModel model(1);
  CountingSource source(7);
  TestServer server({0});
  server.others = 100;
  std::vector<int64_t> lambdas;
  REQUIRE(
      Train(&model, &source, &server, std::make_unique<DeltaHalf>(false, &lambdas), Model(2), {.overlap = true}).ok());
  CHECK(lambdas == std::vector<int64_t>{2, 2, 2, 1});
  CHECK(server.commits == std::vector<std::vector<float>>{{2}, {2}, {2}, {1}});
  CHECK(server.center == std::vector<float>{407});
  CHECK(model.values == server.center);
}

TEST_CASE("overlap pulls an elastic worker by the parameters it sent") {
  TestModel model(1);
  model.step = [](float w) { return w / 2; };
  CountingSource source(4);
  TestServer server({64});
  server.alpha = 0.5;
  server.others = 100;
  LateAnswer late(&model, &server, 4);
  REQUIRE(Train(&model, &source, &server, std::make_unique<ElasticHalf>(0.5f), Model(2), {.overlap = true}).ok());
  // 64, 32, 16 meets 64: the center goes to 40 and on to 140. Meanwhile 8, 4; then W = 4 + 40 − 16 = 28 meets 140:
  // both go to 84.
  CHECK(server.commits == std::vector<std::vector<float>>{{16}, {28}});
  CHECK(model.values == std::vector<float>{84});
  CHECK(server.center == std::vector<float>{184});
}

// One minibatch in the first epoch; a second epoch without an end until `end`.
class EndlessSource : public BatchSource {
 public:
  explicit EndlessSource(const std::atomic<bool>* end) : end_(end) {}

  absl::StatusOr<bool> Next(Batch* batch) override {
    batch->features = {0, 0};
    return epoch_ == 0 ? read_++ == 0 : !*end_;
  }
  absl::Status Rewind(int64_t epoch) override {
    epoch_ = epoch;
    return absl::OkStatus();
  }

 private:
  const std::atomic<bool>* const end_;
  int64_t epoch_ = 0;
  int64_t read_ = 0;
};

TEST_CASE("overlap adopts the answer between two steps as soon as it is there") {
  TestModel model(1);
  TestServer server({0});
  server.others = 1000;
  std::atomic<bool> adopted = false;
  Gate answer;
  model.on_step = [&](int64_t step) -> Losses {
    if (step == 3) answer.Open();
    if (step > 1 && model.values[0] >= 1000 + static_cast<float>(step)) adopted = true;
    return std::vector<double>{1};
  };
  server.on_exchange = [&](int64_t) {
    answer.Wait();
    return absl::OkStatus();
  };
  EndlessSource source(&adopted);
  const auto summary = Train(&model, &source, &server, std::make_unique<EpochHalf>(), Model(1),
                             {.epochs = 2, .max_prefetch = 1, .overlap = true});
  REQUIRE(summary.ok());
  CHECK(adopted);
  CHECK(summary->steps > 3);
  CHECK(server.commits.size() == 2);
  CHECK(server.center == std::vector<float>{2000 + static_cast<float>(summary->steps)});
  CHECK(model.values == server.center);
}

TEST_CASE("an overlapped exchange that fails ends training with its status") {
  TestModel model(1);
  CountingSource source(100);
  TestServer server({0});
  SECTION("by a status") {
    server.on_exchange = [](int64_t exchange) {
      return exchange < 2 ? absl::OkStatus() : absl::AbortedError("a newer incarnation");
    };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.overlap = true});
    CheckError(summary.status(), absl::StatusCode::kAborted, {"a newer incarnation"});
    CHECK(server.commits.size() == 1);
  }
  SECTION("by an exception") {
    server.on_exchange = [](int64_t) -> absl::Status { throw std::runtime_error("boom"); };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.overlap = true});
    CheckError(summary.status(), absl::StatusCode::kInternal, {"Exchange", "boom"});
  }
}

TEST_CASE("a step that fails while an exchange is out does not lose that exchange's steps") {
  TestModel model(1);
  CountingSource source(100);
  TestServer server({0});
  Gate failed;
  server.on_exchange = [&](int64_t) {
    failed.Wait();
    return absl::OkStatus();
  };
  model.on_step = [&](int64_t step) -> Losses {
    if (step < 5) return std::vector<double>{static_cast<double>(step)};
    failed.Open();
    return absl::DataLossError("bad label");
  };
  std::vector<int64_t> reported;
  TrainOptions options{.communication_window = 4, .overlap = true};
  options.on_window = [&](const std::vector<StepResult>& results) {
    for (const StepResult& result : results) reported.push_back(result.step);
    return absl::OkStatus();
  };
  TrainLoop loop(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), options);
  CheckError(loop.Run().status(), absl::StatusCode::kDataLoss, {"bad label"});
  CHECK(reported == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(server.commits.size() == 1);
  CHECK(loop.summary().exchanges == 1);
  CHECK(loop.summary().steps == 4);
  CHECK(loop.summary().last_loss == 2.5);
}

TEST_CASE("the summary tells how far a training came that failed or was cancelled") {
  const bool cancel = GENERATE(false, true);
  TestModel model(1);
  CountingSource source(4);
  TestServer server({0});
  TrainLoop* running = nullptr;
  model.on_step = [&](int64_t step) -> Losses {
    if (step == 7 && cancel) running->Cancel();
    if (step == 7 && !cancel) return absl::DataLossError("bad label");
    return std::vector<double>{1};
  };
  TrainLoop loop(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(3), {.epochs = 5});
  running = &loop;
  CHECK(loop.Run().status().code() == (cancel ? absl::StatusCode::kCancelled : absl::StatusCode::kDataLoss));
  const TrainSummary& summary = loop.summary();
  CHECK(summary.steps == (cancel ? 7 : 6));
  CHECK(summary.epochs == 1);
  CHECK(summary.exchanges == 2);
  CHECK(summary.mean_staleness == 2);
  CHECK(summary.wall > absl::ZeroDuration());
}

TEST_CASE("an epoch whose last minibatch brings the target loss is complete") {
  const bool overlap = GENERATE(false, true);
  const int64_t epochs = GENERATE(1, 2);
  TestModel model(1);
  model.on_step = [&](int64_t step) -> Losses { return std::vector<double>{step == epochs * 4 ? 0.0 : 1.0}; };
  CountingSource source(4);
  TestServer server({0});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(1),
                             {.epochs = 3, .target_loss = 0, .overlap = overlap});
  REQUIRE(summary.ok());
  CHECK(summary->reached_target_loss);
  CHECK(summary->steps == epochs * 4);
  CHECK(summary->epochs == epochs);
}

TEST_CASE("an exchange or first pull that fails ends training with its status") {
  TestModel model(1);
  CountingSource source(100);
  TestServer server({0});
  SECTION("pull") {
    server.on_pull = [] { return absl::DeadlineExceededError("not initialized"); };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
    CheckError(summary.status(), absl::StatusCode::kDeadlineExceeded, {"not initialized"});
    CHECK(model.steps == 0);
  }
  SECTION("exchange") {
    server.on_exchange = [](int64_t) { return absl::NotFoundError("the model is gone"); };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
    CheckError(summary.status(), absl::StatusCode::kNotFound, {"the model is gone"});
    CHECK(model.steps == 2);
  }
  CHECK(server.cancels == 0);
}

TEST_CASE("prefetch reads up to max_prefetch minibatches ahead into memory that it uses again") {
  const int max_prefetch = GENERATE(1, 2, 5);
  TestModel model(1);
  CountingSource source(50);
  // Before it ends, each step lets the source read as far ahead as it may.
  int64_t most_ahead = 0;
  model.on_step = [&](int64_t step) -> Losses {
    const int64_t allowed = std::min<int64_t>(step + max_prefetch, 100);
    while (source.filled < allowed) std::this_thread::yield();
    if (step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to read too far
    most_ahead = std::max<int64_t>(most_ahead, source.filled - step);
    return std::vector<double>{1};
  };
  const auto summary = Train(&model, &source, nullptr, nullptr, Model(10), {.epochs = 2, .max_prefetch = max_prefetch});
  REQUIRE(summary.ok());
  CHECK(summary->steps == 100);
  CHECK(most_ahead == max_prefetch);
  CHECK(source.memory.size() <= static_cast<size_t>(max_prefetch) + 1);
}

TEST_CASE("training waits for a source that stalls and loses nothing") {
  TestModel model(1);
  CountingSource source(6);
  TestServer server({0});
  source.before_next = [&](int64_t epoch, int64_t next) {
    // Until everything read so far has been trained.
    while (model.steps < epoch * 6 + next) std::this_thread::yield();
    return absl::OkStatus();
  };
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(4), {.epochs = 2});
  REQUIRE(summary.ok());
  CHECK(model.values == std::vector<float>{12});
}

TEST_CASE("an error of the source comes after the minibatches before it, and its window is not committed") {
  TestModel model(1);
  CountingSource source(6);
  TestServer server({0});
  source.before_next = [](int64_t epoch, int64_t next) {
    return epoch == 1 && next == 3 ? absl::DataLossError("bad record") : absl::OkStatus();
  };
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(4), {.epochs = 2});
  CheckError(summary.status(), absl::StatusCode::kDataLoss, {"bad record"});
  CHECK(model.steps == 9);
  CHECK(server.commits == std::vector<std::vector<float>>{{4}, {4}});
}

TEST_CASE("a source that has no more ends training well, with what came before committed") {
  CountingSource source(4);
  source.before_next = [](int64_t epoch, int64_t next) {
    return epoch == 1 && next == 3 ? absl::OutOfRangeError("no more") : absl::OkStatus();
  };
  TestModel model(1);
  TestServer server({0});
  const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(4), {.epochs = 9});
  REQUIRE(summary.ok());
  CHECK(summary->steps == 7);
  CHECK(summary->epochs == 1);
  CHECK(server.commits == std::vector<std::vector<float>>{{4}, {3}});
}

TEST_CASE("an epoch without minibatches is an error") {
  TestModel model(1);
  TestServer server({0});
  SECTION("the first") {
    CountingSource source(0);
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(4), {.epochs = 1000});
    CheckError(summary.status(), absl::StatusCode::kInvalidArgument, {"epoch 0 has no minibatch", "share", "fewer"});
    CHECK(source.rewinds.size() == 1);
  }
  SECTION("a later one, of a source that can't begin again") {
    class OnceSource : public CountingSource {
     public:
      OnceSource() : CountingSource(3) {}
      absl::Status Rewind(int64_t epoch) override {
        return epoch == 0 ? CountingSource::Rewind(epoch) : absl::OkStatus();
      }
    } source;
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(3), {.epochs = 1000});
    CheckError(summary.status(), absl::StatusCode::kInvalidArgument, {"epoch 1 has no minibatch", "Rewind"});
    CHECK(model.steps == 3);
  }
  CHECK(server.commits.size() == static_cast<size_t>(model.steps / 3));
}

TEST_CASE("an exception in user code becomes a status that says where") {
  TestModel model(1);
  CountingSource source(6);
  TestServer server({0});
  std::unique_ptr<WorkerHalf> half = std::make_unique<DeltaHalf>();
  TrainOptions options;
  std::string where;
  std::string what = "out of magic";
  SECTION("TrainOnBatch") {
    model.on_step = [](int64_t step) -> Losses {
      if (step == 5) throw std::runtime_error("out of magic");
      return std::vector<double>{1};
    };
    where = "TrainOnBatch at step 5";
  }
  SECTION("TrainOnBatch, of no standard type") {
    model.on_step = [](int64_t) -> Losses { throw 42; };
    where = "TrainOnBatch at step 1";
    what = "no std::exception";
  }
  SECTION("Next") {
    source.before_next = [](int64_t, int64_t next) -> absl::Status {
      if (next == 5) throw std::runtime_error("out of magic");
      return absl::OkStatus();
    };
    where = "Next for minibatch 5 of epoch 0";
  }
  SECTION("Rewind") {
    source.on_rewind = [](int64_t) { throw std::runtime_error("out of magic"); };
    where = "Rewind before epoch 0";
  }
  SECTION("parameters") {
    model.on_parameters = [] { throw std::runtime_error("out of magic"); };
    where = "parameters";
  }
  SECTION("set_learning_rate") {
    model.on_rate = [] { throw std::runtime_error("out of magic"); };
    where = "set_learning_rate";
  }
  SECTION("batches_per_epoch") {
    source.on_hint = [] { throw std::runtime_error("out of magic"); };
    where = "batches_per_epoch";
  }
  SECTION("on_window") {
    options.on_window = [](const std::vector<StepResult>&) -> absl::Status {
      throw std::runtime_error("out of magic");
    };
    where = "on_window after step 2";
  }
  for (const std::string method : {"BeforeStep", "AfterStep", "MakeCommit", "Absorb", "exchange_point"}) {
    SECTION(method) {
      half = std::make_unique<ThrowingHalf>(method);
      options.overlap = GENERATE(false, true);
      where = method;
    }
  }
  const auto summary = Train(&model, &source, &server, std::move(half), Model(2), options);
  CheckError(summary.status(), absl::StatusCode::kInternal, {where, what});
}

TEST_CASE("an error of the model or of on_window fails the worker") {
  TestModel model(1);
  CountingSource source(6);
  TestServer server({0});
  TrainOptions options;
  SECTION("the model") {
    model.on_step = [](int64_t) -> Losses { return absl::DataLossError("bad label"); };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
    CheckError(summary.status(), absl::StatusCode::kDataLoss, {"bad label"});
  }
  SECTION("a model that returns no loss") {
    model.on_step = [](int64_t) -> Losses { return std::vector<double>{}; };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2));
    CheckError(summary.status(), absl::StatusCode::kInternal, {"no loss at step 1"});
  }
  SECTION("on_window") {
    options.on_window = [](const std::vector<StepResult>&) { return absl::ResourceExhaustedError("disk full"); };
    const auto summary = Train(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), options);
    CheckError(summary.status(), absl::StatusCode::kResourceExhausted, {"disk full"});
    CHECK(model.steps == 2);
  }
}

// Runs the loop on a second thread, cancels it when `blocked` opens, and returns how it ended.
absl::Status CancelWhen(Gate* blocked, TrainLoop* loop) {
  std::future<absl::Status> ended = std::async(std::launch::async, [loop] { return loop->Run().status(); });
  blocked->Wait();
  loop->Cancel();
  return ended.get();
}

TEST_CASE("cancelling ends training wherever it is") {
  TestModel model(1);
  CountingSource source(1000);
  TestServer server({0});
  Gate blocked;
  Gate source_cancelled;
  TrainOptions options{.epochs = 1'000'000};
  const auto block_in_exchange = [&] {
    blocked.Open();
    server.cancelled.Wait();
    return absl::CancelledError("the exchanger");
  };
  source.on_cancel = [&] { source_cancelled.Open(); };
  SECTION("in the source") {
    source.before_next = [&](int64_t, int64_t next) -> absl::Status {
      if (next < 3) return absl::OkStatus();
      blocked.Open();
      source_cancelled.Wait();
      return absl::UnavailableError("the pipe was closed");
    };
  }
  SECTION("in a source that misses the first cancellations") {
    source.on_cancel = [&] {
      if (source.cancels > 4) source_cancelled.Open();
    };
    source.before_next = [&](int64_t, int64_t) -> absl::Status {
      blocked.Open();
      source_cancelled.Wait();
      return absl::UnavailableError("the pipe was closed");
    };
  }
  SECTION("in a source whose Cancel throws") {
    source.on_cancel = [] { throw std::runtime_error("out of magic"); };
    model.on_step = [&](int64_t) -> Losses {
      blocked.Open();
      return std::vector<double>{1};
    };
  }
  SECTION("in the first pull") { server.on_pull = block_in_exchange; }
  SECTION("in an exchange") {
    options.overlap = GENERATE(false, true);
    server.on_exchange = [&](int64_t exchange) { return exchange < 3 ? absl::OkStatus() : block_in_exchange(); };
  }
  SECTION("between steps") {
    options.overlap = GENERATE(false, true);
    model.on_step = [&](int64_t step) -> Losses {
      if (step == 100) blocked.Open();
      return std::vector<double>{1};
    };
  }
  TrainLoop loop(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), options);
  CHECK(CancelWhen(&blocked, &loop).code() == absl::StatusCode::kCancelled);
}

TEST_CASE("no minibatch that was read ahead is trained after a cancellation") {
  TestModel model(1);
  CountingSource source(10);
  TrainLoop* running = nullptr;
  model.on_step = [&](int64_t step) -> Losses {
    while (source.filled < 10) std::this_thread::yield();
    if (step == 4) running->Cancel();
    return std::vector<double>{1};
  };
  TrainLoop loop(&model, &source, nullptr, nullptr, Model(20), {});
  running = &loop;
  CHECK(loop.Run().status().code() == absl::StatusCode::kCancelled);
  CHECK(model.steps == 4);
}

TEST_CASE("a loop cancelled before it runs trains nothing") {
  TestModel model(1);
  CountingSource source(10);
  TrainLoop loop(&model, &source, nullptr, nullptr, Model(2), {});
  loop.Cancel();
  CHECK(loop.Run().status().code() == absl::StatusCode::kCancelled);
  CHECK(model.steps == 0);
  CHECK(source.rewinds.empty());
}

TEST_CASE("cancelling in the last callback still ends training as cancelled, and afterwards does nothing") {
  TestModel model(1);
  CountingSource source(2);
  TestServer server({0});
  TrainLoop* running = nullptr;
  bool cancel = false;
  TrainOptions options;
  options.on_window = [&](const std::vector<StepResult>&) {
    if (cancel) running->Cancel();
    return absl::OkStatus();
  };
  TrainLoop first(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), options);
  CHECK(first.Run().ok());
  first.Cancel();
  CHECK(server.cancels == 0);
  CHECK(source.cancels == 0);

  TrainLoop second(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), options);
  running = &second;
  cancel = true;
  CHECK(second.Run().status().code() == absl::StatusCode::kCancelled);
  CHECK(server.cancels == 1);
}

TEST_CASE("a source that stalls does not keep a worker at its target loss") {
  TestModel model(1);
  CountingSource source(1000);
  Gate source_cancelled;
  source.on_cancel = [&] { source_cancelled.Open(); };
  source.before_next = [&](int64_t, int64_t next) -> absl::Status {
    if (next < 2) return absl::OkStatus();
    source_cancelled.Wait();
    return absl::UnavailableError("the pipe was closed");
  };
  const auto summary = Train(&model, &source, nullptr, nullptr, Model(2), {.target_loss = 1});
  REQUIRE(summary.ok());
  CHECK(summary->reached_target_loss);
  CHECK(summary->steps == 2);
}

TEST_CASE("a loop that never runs can go, and one that ran does not run again") {
  TestModel model(1);
  CountingSource source(2);
  { TrainLoop unused(&model, &source, nullptr, nullptr, Model(2), {}); }
  TrainLoop loop(&model, &source, nullptr, nullptr, Model(2), {});
  CHECK(loop.Run().ok());
  CHECK(loop.Run().status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a loop that is prepared has asked the exchanger for nothing, and runs as any other") {
  TestModel model(1);
  CountingSource source(2);
  TestServer server({5});
  TrainLoop loop(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.learning_rate = 0.25});
  CHECK(loop.Prepare().ok());
  CHECK(loop.Prepare().ok());
  CHECK(server.timeouts.empty());
  CHECK(source.rewinds.empty());
  CHECK(model.rate == 0.25);
  CHECK(loop.Run().ok());
  CHECK(model.steps == 2);

  TrainLoop refused(&model, &source, &server, std::make_unique<DeltaHalf>(), Model(2), {.epochs = 0});
  CheckError(refused.Prepare(), absl::StatusCode::kInvalidArgument, {"epochs is 0"});
  CheckError(refused.Run().status(), absl::StatusCode::kInvalidArgument, {"epochs is 0"});
}

TEST_CASE("training ends at the step after the exchanger has ended, whether it exchanges or not") {
  TestModel model(1);
  CountingSource source(100);
  TestServer server({0});
  model.on_step = [&](int64_t step) -> Losses {
    if (step == 5) server.end = absl::NotFoundError("the model is gone");
    return std::vector<double>{1};
  };
  std::unique_ptr<WorkerHalf> half;  // of an algorithm that never exchanges
  if (GENERATE(false, true)) half = std::make_unique<DeltaHalf>();
  const auto summary = Train(&model, &source, &server, std::move(half), Model(50), {.overlap = GENERATE(false, true)});
  CheckError(summary.status(), absl::StatusCode::kNotFound, {"the model is gone"});
  CHECK(model.steps == 5);
  CHECK(server.commits.empty());
}

TEST_CASE("options that make no sense are refused with their name before anything runs") {
  TestModel model(1);
  CountingSource source(2);
  TestServer server({0});
  const auto refused = [&](Exchanger* exchanger, const Hyperparameters& hyperparameters, const TrainOptions& options,
                           const std::vector<std::string>& parts) {
    const auto summary = Train(&model, &source, exchanger, std::make_unique<DeltaHalf>(), hyperparameters, options);
    CheckError(summary.status(), absl::StatusCode::kInvalidArgument, parts);
  };
  refused(&server, Model(2), {.epochs = 0}, {"epochs is 0"});
  refused(&server, Model(2), {.epochs = -4}, {"epochs is -4"});
  refused(&server, Model(2), {.max_prefetch = 0}, {"max_prefetch is 0"});
  refused(&server, Model(2), {.max_prefetch = -1}, {"max_prefetch is -1"});
  refused(&server, Model(2), {.communication_window = -3}, {"communication_window is -3"});
  refused(&server, Model(2.5), {}, {"communication_window is 2.5", "whole number"});
  refused(&server, Model(0), {}, {"communication_window is 0"});
  refused(&server, {}, {}, {"communication_window"});
  refused(&server, Model(2), {.learning_rate = -0.1}, {"learning_rate is -0.1"});
  refused(&server, Model(2), {.learning_rate = std::nan("")}, {"learning_rate is nan"});
  refused(&server, Model(2), {.learning_rate = 1e6 * 1.001}, {"learning_rate is 1.001e+06", "at most 1e+06"});
  refused(&server, Model(2), {.target_loss = std::nan("")}, {"target_loss is nan"});
  refused(&server, Model(2), {.target_loss = INFINITY}, {"target_loss is inf"});
  refused(&server, Model(2), {.exchange_timeout = absl::ZeroDuration()}, {"exchange_timeout is 0"});
  refused(nullptr, Model(2), {}, {"no exchanger", "single"});
  CheckError(Train(&model, nullptr, nullptr, nullptr, Model(2)).status(), absl::StatusCode::kInvalidArgument,
             {"batch source"});
  TrainLoop no_model(nullptr, &source, nullptr, nullptr, Model(2), {});
  CheckError(no_model.Run().status(), absl::StatusCode::kInvalidArgument, {"no model"});
  CHECK(source.rewinds.empty());
  CHECK(model.steps == 0);
  CHECK(model.rate == 7);
}

}  // namespace
}  // namespace paramd
