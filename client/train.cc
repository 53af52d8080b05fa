#include "client/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/prefetch.h"
#include "sync/mutex.h"

namespace paramd {
namespace {

using SteadyClock = std::chrono::steady_clock;

absl::Duration Since(SteadyClock::time_point start) { return absl::FromChrono(SteadyClock::now() - start); }

// Adds the time of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(absl::Duration* total) : total_(total) {}
  ~Stopwatch() { *total_ += Since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration* const total_;
  const SteadyClock::time_point start_ = SteadyClock::now();
};

// Of a piece that the algorithm gets: what one pass over it leaves in the first-level cache is there for the next.
constexpr size_t kPieceFloats = 2048;

// Calls work(begin, floats) piece by piece, until one fails.
template <typename Work>
absl::Status ForEachPiece(size_t floats, const Work& work) {
  for (size_t begin = 0; begin < floats; begin += kPieceFloats) {
    if (absl::Status status = work(begin, std::min(kPieceFloats, floats - begin)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

class TrainLoop::Impl {
 public:
  Impl(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
       const Hyperparameters& hyperparameters, TrainOptions options)
      : model_(model),
        exchanger_(exchanger),
        algorithm_(std::move(algorithm)),
        hyperparameters_(hyperparameters),
        options_(std::move(options)),
        source_(source),
        prefetcher_(source, options_.epochs, options_.max_prefetch) {}

  absl::StatusOr<TrainSummary> Run();
  void Cancel();

 private:
  bool exchanges() const { return exchange_point_ != ExchangePoint::kNever; }

  absl::Status Train();
  absl::Status CheckOptions();
  absl::Status FindWindow();
  absl::Status Begin();
  // A vector of the center's length: `buffer`, if the exchanger has offered one.
  absl::Span<float> MakeVector(absl::Span<float> buffer = {});
  absl::Status TrainEpochs();
  absl::Status Step(const Batch& batch);

  // The end of a window, partial or not: exchanges it, or begins to.
  absl::Status EndWindow();
  absl::Status Exchange(int64_t minibatches);
  absl::Status StartExchange(int64_t minibatches);
  // Waits for the exchange under way and adopts what it brought.
  absl::Status FinishExchange();
  absl::Status Adopt();
  void Count(const Exchanged& exchanged);
  absl::Status Report();

  // Calls of the algorithm's half.
  absl::Status BeforeStep();
  absl::Status AfterStep();
  absl::Status MakeCommit(int64_t minibatches, size_t begin, size_t floats);
  absl::Status Absorb(size_t begin, absl::Span<float> parameters);
  template <typename Call>
  absl::Status CallAlgorithm(const char* method, const Call& call);

  // Constant after construction.
  Trainable* const model_;
  Exchanger* const exchanger_;
  const std::unique_ptr<WorkerHalf> algorithm_;
  const Hyperparameters hyperparameters_;
  const TrainOptions options_;
  BatchSource* const source_;

  // Of the training thread.
  bool ran_ = false;
  ExchangePoint exchange_point_ = ExchangePoint::kNever;
  bool commits_parameters_ = false;
  int64_t window_ = 0;
  SteadyClock::time_point start_;
  absl::Span<float> parameters_;
  absl::Span<float> pulled_;  // W₁, then the commit, while that is made and sent; empty if commits_parameters_
  absl::Span<float> center_;  // θ arrives here, as it can't overwrite a W that is being sent or that Absorb wants
  absl::Span<float> sent_;    // W at the commit that is under way; empty without overlap
  std::vector<std::unique_ptr<float[]>> own_;  // those of the three that are not the exchanger's
  int64_t batches_per_epoch_ = 0;              // 0: unknown
  int64_t epoch_steps_ = 0;
  int64_t window_steps_ = 0;          // λ so far
  double window_loss_ = 0;            // summed
  double staleness_ = 0;              // summed
  std::vector<StepResult> results_;   // of this window, if on_window wants them
  std::vector<StepResult> finished_;  // of the window that is being exchanged
  TrainSummary summary_;
  std::future<absl::StatusOr<Exchanged>> under_way_;  // valid: an exchange on the second thread, of the vectors above

  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  Prefetcher prefetcher_;  // self-synchronized where it must be
};

absl::StatusOr<TrainSummary> TrainLoop::Impl::Run() {
  if (ran_) return absl::FailedPreconditionError("a TrainLoop trains once: make another one");
  ran_ = true;
  start_ = SteadyClock::now();
  const absl::Status status = CallUserCode([this] { return Train(); }, "the training loop");
  prefetcher_.Stop();
  if (under_way_.valid()) under_way_.wait();
  {
    MutexLock lock(&mutex_);
    done_ = true;
    if (cancelled_) return absl::CancelledError("training was cancelled");
  }
  if (!status.ok()) return status;
  if (summary_.exchanges > 0) summary_.mean_staleness = staleness_ / summary_.exchanges;
  summary_.wall = Since(start_);
  return summary_;
}

void TrainLoop::Impl::Cancel() {
  {
    MutexLock lock(&mutex_);
    if (done_) return;
    cancelled_ = true;
  }
  prefetcher_.Cancel();
  if (exchanger_ != nullptr) exchanger_->Cancel();
}

absl::Status TrainLoop::Impl::Train() {
  if (absl::Status status = CheckOptions(); !status.ok()) return status;
  batches_per_epoch_ = source_->batches_per_epoch();
  prefetcher_.Start();
  if (absl::Status status = Begin(); !status.ok()) return status;
  return TrainEpochs();
}

absl::Status TrainLoop::Impl::CheckOptions() {
  if (model_ == nullptr || source_ == nullptr) {
    return absl::InvalidArgumentError("there is no model or no batch source to train with: both must be given");
  }
  if (options_.epochs <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("epochs is ", options_.epochs, ", but must be at least 1"));
  }
  if (options_.max_prefetch <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_prefetch is ", options_.max_prefetch, ", but must be at least 1 minibatch"));
  }
  if (options_.communication_window < 0) {
    return absl::InvalidArgumentError(absl::StrCat("communication_window is ", options_.communication_window,
                                                   ": give the minibatches between two exchanges, or 0 for the "
                                                   "model's own"));
  }
  if (!(options_.learning_rate >= 0) || std::isinf(options_.learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate is ", options_.learning_rate,
                                                   ": give a positive number, or 0 for the model's own"));
  }
  if (options_.exchange_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "exchange_timeout is ", absl::FormatDuration(options_.exchange_timeout), ", but must be positive"));
  }
  if (algorithm_ != nullptr) {
    exchange_point_ = algorithm_->exchange_point();
    commits_parameters_ = algorithm_->commits_parameters();
  }
  if (exchanges() && exchanger_ == nullptr) {
    return absl::InvalidArgumentError(
        "the algorithm exchanges with a server, but the loop was given no exchanger: pass a Worker that has joined, or "
        "train with the algorithm single");
  }
  return FindWindow();
}

absl::Status TrainLoop::Impl::FindWindow() {
  if (exchange_point_ == ExchangePoint::kEpoch) return absl::OkStatus();
  window_ = options_.communication_window;
  if (window_ > 0) return absl::OkStatus();
  const auto found = hyperparameters_.find("communication_window");
  if (found == hyperparameters_.end()) {
    return absl::InvalidArgumentError(
        "neither the options nor the model's hyperparameters have a communication_window: set one, in minibatches");
  }
  // The bound keeps the conversion defined.
  if (!(found->second >= 1 && found->second <= 1e15) || found->second != std::floor(found->second)) {
    return absl::InvalidArgumentError(absl::StrCat("the model's communication_window is ", found->second,
                                                   ", but must be a whole number of minibatches, at least 1"));
  }
  window_ = static_cast<int64_t>(found->second);
  return absl::OkStatus();
}

absl::Status TrainLoop::Impl::Begin() {
  parameters_ = model_->parameters();
  if (options_.learning_rate > 0) {
    model_->set_learning_rate(options_.learning_rate);
  } else if (const auto found = hyperparameters_.find("learning_rate"); found != hyperparameters_.end()) {
    model_->set_learning_rate(found->second);
  }
  if (!exchanges()) return absl::OkStatus();
  const bool in_commit_buffer = parameters_.data() == exchanger_->commit_buffer().data();
  if ((in_commit_buffer && (!commits_parameters_ || options_.overlap)) ||
      parameters_.data() == exchanger_->center_buffer().data()) {
    return absl::InvalidArgumentError(
        "the model keeps its parameters in a buffer of the exchanger's, which would be overwritten: they can be in the "
        "commit buffer, if the algorithm commits parameters and exchanges do not overlap with training");
  }
  absl::StatusOr<Exchanged> first = exchanger_->Pull(parameters_, options_.exchange_timeout);
  if (!first.ok()) return first.status();
  center_ = MakeVector(exchanger_->center_buffer());
  if (!commits_parameters_) {
    pulled_ = MakeVector(exchanger_->commit_buffer());
    if (options_.overlap) sent_ = MakeVector();
    std::copy(parameters_.begin(), parameters_.end(), pulled_.begin());
  } else if (options_.overlap) {
    sent_ = MakeVector(exchanger_->commit_buffer());
  }
  return absl::OkStatus();
}

absl::Span<float> TrainLoop::Impl::MakeVector(absl::Span<float> buffer) {
  if (buffer.size() == parameters_.size()) return buffer;
  own_.push_back(std::make_unique<float[]>(parameters_.size()));
  return {own_.back().get(), parameters_.size()};
}

absl::Status TrainLoop::Impl::TrainEpochs() {
  while (summary_.epochs < options_.epochs && !summary_.reached_target_loss) {
    absl::StatusOr<const Batch*> batch = prefetcher_.Next();
    if (!batch.ok()) return batch.status();
    bool window_ends = false;
    if (*batch != nullptr) {
      if (absl::Status status = Step(**batch); !status.ok()) return status;
      window_ends = exchange_point_ != ExchangePoint::kEpoch && window_steps_ == window_;
    } else {
      ++summary_.epochs;
      batches_per_epoch_ = std::exchange(epoch_steps_, 0);
      window_ends = exchange_point_ == ExchangePoint::kEpoch;
    }
    if (window_ends) {
      if (absl::Status status = EndWindow(); !status.ok()) return status;
    }
  }
  if (window_steps_ > 0) {
    if (absl::Status status = EndWindow(); !status.ok()) return status;
  }
  return under_way_.valid() ? FinishExchange() : absl::OkStatus();
}

absl::Status TrainLoop::Impl::Step(const Batch& batch) {
  if (under_way_.valid() && under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    if (absl::Status status = FinishExchange(); !status.ok()) return status;
  }
  const int64_t step = summary_.steps + 1;
  if (absl::Status status = BeforeStep(); !status.ok()) return status;
  absl::StatusOr<std::vector<double>> values =
      CallUserCode([&] { return model_->TrainOnBatch(batch); }, "Trainable::TrainOnBatch at step ", step);
  if (!values.ok()) return values.status();
  if (values->empty()) {
    return absl::InternalError(absl::StrCat("Trainable::TrainOnBatch returned no loss at step ", step,
                                            ": it must return the loss, then the metrics"));
  }
  const double loss = values->front();
  if (!std::isfinite(loss)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the loss of step %d is %g, so training has diverged, most likely because the learning rate (%g) is too large: "
        "lower it, or look for bad values in the data. Nothing of this window was committed",
        step, loss, model_->learning_rate()));
  }
  if (absl::Status status = AfterStep(); !status.ok()) return status;

  summary_.steps = step;
  summary_.samples += batch.rows;
  ++epoch_steps_;
  ++window_steps_;
  window_loss_ += loss;
  if (options_.on_window) {
    const double part = batches_per_epoch_ > 0 ? static_cast<double>(epoch_steps_) / batches_per_epoch_ : 0;
    values->erase(values->begin());
    results_.push_back({.step = step,
                        .epoch = summary_.epochs + std::min(part, 1.0),
                        .time_s = absl::ToDoubleSeconds(Since(start_)),
                        .loss = loss,
                        .metrics = *std::move(values)});
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::Impl::EndWindow() {
  if (under_way_.valid()) {
    if (absl::Status status = FinishExchange(); !status.ok()) return status;
  }
  const int64_t minibatches = std::exchange(window_steps_, 0);
  summary_.last_loss = std::exchange(window_loss_, 0) / minibatches;
  if (options_.target_loss >= 0 && summary_.last_loss <= options_.target_loss) summary_.reached_target_loss = true;
  std::swap(finished_, results_);
  if (exchanges()) {
    if (options_.overlap) return StartExchange(minibatches);
    if (absl::Status status = Exchange(minibatches); !status.ok()) return status;
  }
  return Report();
}

absl::Status TrainLoop::Impl::Exchange(int64_t minibatches) {
  Stopwatch stopwatch(&summary_.exchanging);
  absl::Span<const float> commit = parameters_;
  if (!commits_parameters_) {
    absl::Status made =
        ForEachPiece(pulled_.size(), [&](size_t begin, size_t n) { return MakeCommit(minibatches, begin, n); });
    if (!made.ok()) return made;
    commit = pulled_;
  }
  absl::StatusOr<Exchanged> exchanged = exchanger_->Exchange(commit, center_, options_.exchange_timeout);
  if (!exchanged.ok()) return exchanged.status();
  Count(*exchanged);
  return ForEachPiece(parameters_.size(), [&](size_t begin, size_t n) {
    const absl::Span<float> parameters = parameters_.subspan(begin, n);
    absl::Status status = Absorb(begin, parameters);
    if (!commits_parameters_) std::copy(parameters.begin(), parameters.end(), pulled_.data() + begin);
    return status;
  });
}

absl::Status TrainLoop::Impl::StartExchange(int64_t minibatches) {
  Stopwatch stopwatch(&summary_.exchanging);
  absl::Status made = ForEachPiece(sent_.size(), [&](size_t begin, size_t n) {
    std::copy_n(parameters_.data() + begin, n, sent_.data() + begin);
    return commits_parameters_ ? absl::OkStatus() : MakeCommit(minibatches, begin, n);
  });
  if (!made.ok()) return made;
  const absl::Span<const float> commit = commits_parameters_ ? sent_ : pulled_;
  under_way_ = std::async(std::launch::async, [this, commit] {
    return CallUserCode([&] { return exchanger_->Exchange(commit, center_, options_.exchange_timeout); },
                        "Exchanger::Exchange");
  });
  return absl::OkStatus();
}

absl::Status TrainLoop::Impl::FinishExchange() {
  {
    Stopwatch stopwatch(&summary_.exchanging);
    absl::StatusOr<Exchanged> exchanged = under_way_.get();
    if (!exchanged.ok()) return exchanged.status();
    Count(*exchanged);
    if (absl::Status status = Adopt(); !status.ok()) return status;
  }
  return Report();
}

// W += Absorb(θ, sent) − sent, in an order that needs no further vector and is exact if W has not moved since.
absl::Status TrainLoop::Impl::Adopt() {
  absl::Status adopted = ForEachPiece(sent_.size(), [this](size_t begin, size_t n) {
    // Not through the spans, which check every index.
    float* const parameters = parameters_.data() + begin;
    float* const sent = sent_.data() + begin;
    for (size_t i = 0; i < n; ++i) parameters[i] -= sent[i];
    absl::Status status = Absorb(begin, sent_.subspan(begin, n));
    for (size_t i = 0; i < n; ++i) parameters[i] += sent[i];
    return status;
  });
  if (!adopted.ok()) return adopted;
  if (!commits_parameters_) std::swap(pulled_, sent_);
  return absl::OkStatus();
}

void TrainLoop::Impl::Count(const Exchanged& exchanged) {
  ++summary_.exchanges;
  staleness_ += static_cast<double>(exchanged.staleness);
}

absl::Status TrainLoop::Impl::Report() {
  if (!options_.on_window) return absl::OkStatus();
  absl::Status status =
      CallUserCode([this] { return options_.on_window(finished_); }, "on_window after step ", summary_.steps);
  finished_.clear();
  return status;
}

template <typename Call>
absl::Status TrainLoop::Impl::CallAlgorithm(const char* method, const Call& call) {
  return CallUserCode(
      [&] {
        call();
        return absl::OkStatus();
      },
      "the algorithm's ", method, " after step ", summary_.steps);
}

absl::Status TrainLoop::Impl::BeforeStep() {
  if (algorithm_ == nullptr) return absl::OkStatus();
  return CallAlgorithm("BeforeStep", [this] { algorithm_->BeforeStep(parameters_); });
}

absl::Status TrainLoop::Impl::AfterStep() {
  if (algorithm_ == nullptr) return absl::OkStatus();
  return CallAlgorithm("AfterStep", [this] { algorithm_->AfterStep(parameters_); });
}

absl::Status TrainLoop::Impl::MakeCommit(int64_t minibatches, size_t begin, size_t floats) {
  return CallAlgorithm("MakeCommit", [&] {
    const absl::Span<float> pulled = pulled_.subspan(begin, floats);
    algorithm_->MakeCommit(minibatches, parameters_.subspan(begin, floats), pulled, pulled);
  });
}

absl::Status TrainLoop::Impl::Absorb(size_t begin, absl::Span<float> parameters) {
  return CallAlgorithm("Absorb", [&] { algorithm_->Absorb(center_.subspan(begin, parameters.size()), parameters); });
}

TrainLoop::TrainLoop(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
                     const Hyperparameters& hyperparameters, TrainOptions options)
    : impl_(std::make_unique<Impl>(model, source, exchanger, std::move(algorithm), hyperparameters,
                                   std::move(options))) {}

TrainLoop::~TrainLoop() = default;

absl::StatusOr<TrainSummary> TrainLoop::Run() { return impl_->Run(); }

void TrainLoop::Cancel() { impl_->Cancel(); }

}  // namespace paramd
