#include "client/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "client/guarded.h"
#include "client/prefetch.h"
#include "sync/mutex.h"

namespace paramd {
namespace {

// How long a source may take to say that an epoch is over, when training stops at its target loss.
constexpr absl::Duration kEpochEndPatience = absl::Milliseconds(100);

WindowOptions WindowOptionsOf(const TrainOptions& options) {
  return {.communication_window = options.communication_window,
          .overlap = options.overlap,
          .exchange_timeout = options.exchange_timeout,
          .on_window = options.on_window,
          .on_unknown = options.on_unknown};
}

}  // namespace

class TrainLoop::Impl {
 public:
  Impl(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
       const Hyperparameters& hyperparameters, TrainOptions options)
      : model_(model),
        source_(source),
        exchanger_(exchanger),
        hyperparameters_(hyperparameters),
        options_(std::move(options)),
        algorithm_(std::move(algorithm)),
        prefetcher_(source, options_.epochs, options_.max_prefetch) {}

  absl::Status Prepare();
  absl::StatusOr<TrainSummary> Run();
  void Cancel();
  const TrainSummary& summary() const { return summary_; }

 private:
  absl::Status Train();
  absl::Status MakeReady();
  absl::Status MakeWindow();
  absl::Status SetLearningRate();
  absl::Status TrainEpochs();
  absl::Status Step(const Batch& batch);
  // The end of a window, partial or not.
  absl::Status EndWindow();

  // Since the beginning of an epoch, or of a window.
  struct Progress {
    int64_t batches_per_epoch = 0;  // 0: unknown
    int64_t epoch_steps = 0;
    int64_t window_steps = 0;
    double window_loss = 0;  // summed
  };

  // Constant after construction.
  const GuardedTrainable model_;
  const GuardedSource source_;
  Exchanger* const exchanger_;
  const Hyperparameters hyperparameters_;
  const TrainOptions options_;

  // Of the training thread.
  std::unique_ptr<WorkerHalf> algorithm_;  // until the window has it
  std::unique_ptr<Window> window_;         // null before
  std::optional<absl::Status> prepared_;   // what came of it
  bool ran_ = false;
  Progress progress_;
  TrainSummary summary_;

  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  Prefetcher prefetcher_;  // self-synchronized where it must be
};

absl::StatusOr<TrainSummary> TrainLoop::Impl::Run() {
  if (ran_) return absl::FailedPreconditionError("a TrainLoop trains once: make another one");
  ran_ = true;
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = CallUserCode([this] { return Train(); }, "the training loop");
  prefetcher_.Stop();
  if (window_ != nullptr) {
    window_->Abandon().IgnoreError();
    const WindowStatistics statistics = window_->statistics();
    summary_.exchanges = statistics.exchanges;
    summary_.mean_staleness = statistics.mean_staleness;
    summary_.exchanging = statistics.exchanging;
  }
  summary_.wall = absl::FromChrono(std::chrono::steady_clock::now() - start);
  {
    MutexLock lock(&mutex_);
    done_ = true;
    if (cancelled_) return absl::CancelledError("training was cancelled");
  }
  if (!status.ok()) return status;
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

absl::Status TrainLoop::Impl::Prepare() {
  if (!prepared_.has_value()) prepared_ = CallUserCode([this] { return MakeReady(); }, "the training loop");
  return *prepared_;
}

absl::Status TrainLoop::Impl::MakeReady() {
  if (!model_.given() || !source_.given()) {
    return absl::InvalidArgumentError("there is no model or no batch source to train with: both must be given");
  }
  if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
  if (absl::Status status = MakeWindow(); !status.ok()) return status;
  absl::StatusOr<int64_t> batches = source_.batches_per_epoch();
  if (!batches.ok()) return batches.status();
  progress_.batches_per_epoch = *batches;
  return SetLearningRate();
}

absl::Status TrainLoop::Impl::Train() {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  prefetcher_.Start();
  if (absl::Status status = window_->Begin(); !status.ok()) return status;
  return TrainEpochs();
}

absl::Status TrainLoop::Impl::MakeWindow() {
  absl::StatusOr<absl::Span<float>> parameters = model_.parameters();
  if (!parameters.ok()) return parameters.status();
  absl::StatusOr<std::unique_ptr<Window>> window =
      Window::Create({*parameters}, exchanger_, std::move(algorithm_), hyperparameters_, WindowOptionsOf(options_));
  if (!window.ok()) return window.status();
  window_ = *std::move(window);
  return absl::OkStatus();
}

absl::Status TrainLoop::Impl::SetLearningRate() {
  if (options_.learning_rate > 0) return model_.set_learning_rate(options_.learning_rate);
  const auto found = hyperparameters_.find("learning_rate");
  return found == hyperparameters_.end() ? absl::OkStatus() : model_.set_learning_rate(found->second);
}

absl::Status TrainLoop::Impl::TrainEpochs() {
  while (summary_.epochs < options_.epochs && !summary_.reached_target_loss) {
    absl::StatusOr<const Batch*> batch = prefetcher_.Next();
    // The source has no more.
    if (absl::IsOutOfRange(batch.status())) break;
    if (!batch.ok()) return batch.status();
    bool window_ends = false;
    if (*batch != nullptr) {
      if (absl::Status status = Step(**batch); !status.ok()) return status;
      window_ends = window_->full();
    } else {
      ++summary_.epochs;
      progress_.batches_per_epoch = std::exchange(progress_.epoch_steps, 0);
      window_ends = window_->exchanges_by_epoch();
    }
    if (window_ends) {
      if (absl::Status status = EndWindow(); !status.ok()) return status;
    }
  }
  // Stopped by the loss of an epoch's last minibatch.
  if (progress_.epoch_steps > 0 && prefetcher_.AtEpochEnd(kEpochEndPatience)) ++summary_.epochs;
  if (progress_.window_steps > 0) {
    if (absl::Status status = EndWindow(); !status.ok()) return status;
  }
  return window_->Finish();
}

absl::Status TrainLoop::Impl::Step(const Batch& batch) {
  if (absl::Status status = window_->BeforeStep(); !status.ok()) return status;
  absl::StatusOr<std::vector<double>> values = model_.TrainOnBatch(batch, summary_.steps + 1);
  if (!values.ok()) return values.status();
  const double loss = values->front();
  values->erase(values->begin());
  const double part = progress_.batches_per_epoch > 0 ? static_cast<double>(progress_.epoch_steps + 1) /
                                                            static_cast<double>(progress_.batches_per_epoch)
                                                      : 0;
  absl::Status status = window_->AfterStep({.epoch = static_cast<double>(summary_.epochs) + std::min(part, 1.0),
                                            .loss = loss,
                                            .metrics = *std::move(values)});
  if (!status.ok()) return status;
  ++summary_.steps;
  summary_.samples += batch.rows;
  ++progress_.epoch_steps;
  ++progress_.window_steps;
  progress_.window_loss += loss;
  return absl::OkStatus();
}

absl::Status TrainLoop::Impl::EndWindow() {
  summary_.last_loss =
      std::exchange(progress_.window_loss, 0) / static_cast<double>(std::exchange(progress_.window_steps, 0));
  if (options_.target_loss >= 0 && summary_.last_loss <= options_.target_loss) summary_.reached_target_loss = true;
  return window_->End();
}

TrainLoop::TrainLoop(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
                     const Hyperparameters& hyperparameters, TrainOptions options)
    : impl_(std::make_unique<Impl>(model, source, exchanger, std::move(algorithm), hyperparameters,
                                   std::move(options))) {}

TrainLoop::~TrainLoop() = default;

absl::Status TrainLoop::CheckOptions(const TrainOptions& options) {
  if (options.epochs <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("epochs is ", options.epochs, ", but must be at least 1"));
  }
  if (options.max_prefetch <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_prefetch is ", options.max_prefetch, ", but must be at least 1 minibatch"));
  }
  if (!(options.learning_rate >= 0 && options.learning_rate <= kMaxLearningRate)) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate is ", options.learning_rate,
                                                   ": give a positive number of at most ", kMaxLearningRate,
                                                   ", or 0 for the model's own"));
  }
  if (!std::isfinite(options.target_loss)) {
    return absl::InvalidArgumentError(absl::StrCat("target_loss is ", options.target_loss,
                                                   ", which no loss can tell: give a finite number, a negative one to "
                                                   "train all epochs"));
  }
  return Window::CheckOptions(WindowOptionsOf(options));
}

absl::Status TrainLoop::Prepare() { return impl_->Prepare(); }

absl::StatusOr<TrainSummary> TrainLoop::Run() { return impl_->Run(); }

void TrainLoop::Cancel() { impl_->Cancel(); }

const TrainSummary& TrainLoop::summary() const { return impl_->summary(); }

}  // namespace paramd
