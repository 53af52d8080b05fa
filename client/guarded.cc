#include "client/guarded.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace paramd {

absl::StatusOr<absl::Span<float>> GuardedTrainable::parameters() const {
  return CallUserCode([this]() -> absl::StatusOr<absl::Span<float>> { return model_->parameters(); },
                      "Trainable::parameters");
}

absl::StatusOr<std::vector<std::string>> GuardedTrainable::metric_names() const {
  return CallUserCode([this]() -> absl::StatusOr<std::vector<std::string>> { return model_->metric_names(); },
                      "Trainable::metric_names");
}

absl::StatusOr<std::vector<double>> GuardedTrainable::TrainOnBatch(const Batch& batch, int64_t step) const {
  absl::StatusOr<std::vector<double>> values =
      CallUserCode([&] { return model_->TrainOnBatch(batch); }, "Trainable::TrainOnBatch at step ", step);
  if (!values.ok()) return values;
  if (values->empty()) {
    return absl::InternalError(absl::StrCat("Trainable::TrainOnBatch returned no loss at step ", step,
                                            ": it must return the loss, then the metrics"));
  }
  if (std::isfinite(values->front())) return values;
  const absl::StatusOr<double> rate =
      CallUserCode([this]() -> absl::StatusOr<double> { return model_->learning_rate(); }, "Trainable::learning_rate");
  // Nothing has been learned before the first step.
  const std::string cause =
      step == 1 ? "the parameters that training began with, or the data, have such values"
                : absl::StrCat("training has diverged, or the data have such values; if the learning rate (",
                               rate.ok() ? absl::StrCat(*rate) : std::string(rate.status().message()),
                               ") is too large, lower it");
  return absl::InvalidArgumentError(absl::StrFormat(
      "the loss of step %d is %g: %s. Nothing of this window was committed", step, values->front(), cause));
}

absl::Status GuardedTrainable::set_learning_rate(double learning_rate) const {
  return RunUserCode([&] { model_->set_learning_rate(learning_rate); }, "Trainable::set_learning_rate");
}

absl::StatusOr<bool> GuardedSource::Next(Batch* batch, int64_t epoch, int64_t read) const {
  return CallUserCode([&] { return source_->Next(batch); }, "BatchSource::Next for minibatch ", read, " of epoch ",
                      epoch);
}

absl::Status GuardedSource::Rewind(int64_t epoch) const {
  return CallUserCode([&] { return source_->Rewind(epoch); }, "BatchSource::Rewind before epoch ", epoch);
}

absl::StatusOr<int64_t> GuardedSource::batches_per_epoch() const {
  return CallUserCode([this]() -> absl::StatusOr<int64_t> { return source_->batches_per_epoch(); },
                      "BatchSource::batches_per_epoch");
}

void GuardedSource::Cancel() const {
  RunUserCode([this] { source_->Cancel(); }, "BatchSource::Cancel").IgnoreError();
}

absl::StatusOr<GuardedHalf> GuardedHalf::Create(std::unique_ptr<WorkerHalf> half) {
  GuardedHalf guarded;
  guarded.half_ = std::move(half);
  if (guarded.half_ == nullptr) return guarded;
  absl::Status asked = RunUserCode(
      [&] {
        guarded.exchange_point_ = guarded.half_->exchange_point();
        guarded.commits_parameters_ = guarded.half_->commits_parameters();
      },
      "the algorithm's exchange_point or commits_parameters");
  if (!asked.ok()) return asked;
  return guarded;
}

absl::Status GuardedHalf::MakeCommit(int64_t step, int64_t minibatches, absl::Span<const float> parameters,
                                     absl::Span<const float> pulled, absl::Span<float> commit) const {
  return RunUserCode([&] { half_->MakeCommit(minibatches, parameters, pulled, commit); },
                     "the algorithm's MakeCommit after step ", step);
}

absl::Status GuardedHalf::Absorb(int64_t step, absl::Span<const float> center, absl::Span<float> parameters) const {
  return RunUserCode([&] { half_->Absorb(center, parameters); }, "the algorithm's Absorb after step ", step);
}

absl::Status GuardedHalf::BeforeStep(int64_t step, absl::Span<const absl::Span<float>> parameters) const {
  if (half_ == nullptr) return absl::OkStatus();
  return RunUserCode([&] { half_->BeforeStep(parameters); }, "the algorithm's BeforeStep after step ", step);
}

absl::Status GuardedHalf::AfterStep(int64_t step, absl::Span<const absl::Span<float>> parameters) const {
  if (half_ == nullptr) return absl::OkStatus();
  return RunUserCode([&] { half_->AfterStep(parameters); }, "the algorithm's AfterStep after step ", step);
}

absl::StatusOr<std::unique_ptr<WorkerHalf>> MakeWorkerHalf(const Algorithm& algorithm,
                                                           const Hyperparameters& hyperparameters) {
  absl::StatusOr<std::unique_ptr<WorkerHalf>> half = CallUserCode(
      [&]() -> absl::StatusOr<std::unique_ptr<WorkerHalf>> { return algorithm.make_worker(hyperparameters); },
      "make_worker of algorithm '", algorithm.name, "'");
  if (half.ok() && *half == nullptr) {
    return absl::InternalError(absl::StrCat("make_worker of algorithm '", algorithm.name, "' made no worker half"));
  }
  return half;
}

std::function<void(absl::string_view)> GuardedEvents(std::function<void(absl::string_view)> on_event) {
  if (on_event == nullptr) return nullptr;
  return [on_event = std::move(on_event)](absl::string_view message) {
    RunUserCode([&] { on_event(message); }, "on_event").IgnoreError();
  };
}

}  // namespace paramd
