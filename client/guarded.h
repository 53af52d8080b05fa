// The one adapter around what a user gives us: model, source, an algorithm's worker half, callbacks. An exception that
// leaves them becomes INTERNAL, with its text and the name of the call. Internal to the client.
#ifndef PARAMD_CLIENT_GUARDED_H_
#define PARAMD_CLIENT_GUARDED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "algorithms/algorithm.h"
#include "algorithms/user_code.h"
#include "client/trainable.h"

namespace paramd {

// `model` must outlive it. Null can only be asked for. Thread-compatible.
class GuardedTrainable {
 public:
  explicit GuardedTrainable(Trainable* model) : model_(model) {}

  bool given() const { return model_ != nullptr; }

  absl::StatusOr<absl::Span<float>> parameters() const;
  absl::StatusOr<std::vector<std::string>> metric_names() const;
  // INTERNAL if it gives no loss; INVALID_ARGUMENT if that is not finite. `step` is for messages.
  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& batch, int64_t step) const;
  absl::Status set_learning_rate(double learning_rate) const;

 private:
  Trainable* const model_;
};

// The same of a source. As thread-safe as that.
class GuardedSource {
 public:
  explicit GuardedSource(BatchSource* source) : source_(source) {}

  bool given() const { return source_ != nullptr; }

  // `read` is how many minibatches of `epoch` came before.
  absl::StatusOr<bool> Next(Batch* batch, int64_t epoch, int64_t read) const;
  absl::Status Rewind(int64_t epoch) const;
  absl::StatusOr<int64_t> batches_per_epoch() const;
  // There is nobody to tell of an exception.
  void Cancel() const;

 private:
  BatchSource* const source_;
};

// A worker half, or none: then nothing is exchanged and nothing happens around a step. Thread-compatible.
class GuardedHalf {
 public:
  // Asks what is constant about `half`, which may be null.
  static absl::StatusOr<GuardedHalf> Create(std::unique_ptr<WorkerHalf> half);

  ExchangePoint exchange_point() const { return exchange_point_; }
  bool commits_parameters() const { return commits_parameters_; }

  // `step` is for messages: the last one that was taken.
  absl::Status MakeCommit(int64_t step, int64_t minibatches, absl::Span<const float> parameters,
                          absl::Span<const float> pulled, absl::Span<float> commit) const;
  absl::Status Absorb(int64_t step, absl::Span<const float> center, absl::Span<float> parameters) const;
  absl::Status BeforeStep(int64_t step, absl::Span<const absl::Span<float>> parameters) const;
  absl::Status AfterStep(int64_t step, absl::Span<const absl::Span<float>> parameters) const;

 private:
  std::unique_ptr<WorkerHalf> half_;
  ExchangePoint exchange_point_ = ExchangePoint::kNever;
  bool commits_parameters_ = true;
};

// A worker half of `algorithm`, as its factory makes it.
absl::StatusOr<std::unique_ptr<WorkerHalf>> MakeWorkerHalf(const Algorithm& algorithm,
                                                           const Hyperparameters& hyperparameters);

// `on_event`, whose exceptions end here: there is nobody else to tell. Null stays null.
std::function<void(absl::string_view)> GuardedEvents(std::function<void(absl::string_view)> on_event);

}  // namespace paramd

#endif  // PARAMD_CLIENT_GUARDED_H_
