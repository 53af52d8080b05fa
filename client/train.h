// The training loop of a worker: minibatches, windows, exchanges, history.
#ifndef PARAMD_CLIENT_TRAIN_H_
#define PARAMD_CLIENT_TRAIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "algorithms/algorithm.h"
#include "client/exchanger.h"
#include "client/trainable.h"
#include "client/window.h"

namespace paramd {

struct TrainOptions {
  int64_t epochs = 1;
  int64_t communication_window = 0;  // minibatches between two exchanges; 0: the model's
  double learning_rate = 0;          // 0: the model's; at most 1e6, as a model's own
  int max_prefetch = 100;            // minibatches read ahead
  // Stop when the mean loss of a window (of an epoch, where exchanges are by the epoch) is at or below this, once it is
  // exchanged. Negative: never.
  double target_loss = -1;
  // As WindowOptions' of the same names.
  bool overlap = false;
  absl::Duration exchange_timeout = absl::InfiniteDuration();
  std::function<absl::Status(const std::vector<StepResult>&)> on_window;
  std::function<void(const std::vector<StepResult>&)> on_unknown;
};

struct TrainSummary {
  int64_t steps = 0;    // minibatches
  int64_t samples = 0;  // rows
  int64_t exchanges = 0;
  int64_t epochs = 0;  // completed
  double mean_staleness = 0;
  absl::Duration wall;
  absl::Duration exchanging;  // that training stood still for exchanges; the first pull is none
  double last_loss = 0;       // mean of the last window
  bool reached_target_loss = false;
};

// Trains `model` on `source`, through a Window: pulls the center into the model's parameters, then trains window after
// window and exchanges at the end of each, or where the algorithm's half says. Every minibatch is trained exactly once
// an epoch; the last partial window is committed too. An object trains once. Thread-compatible, but for Cancel.
class TrainLoop {
 public:
  // All must outlive the loop. `exchanger` is null for an algorithm that never exchanges. `hyperparameters` are the
  // model's, complete.
  TrainLoop(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
            const Hyperparameters& hyperparameters, TrainOptions options);
  ~TrainLoop();

  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // INVALID_ARGUMENT for what no model could make sense of. Prepare checks it, too.
  static absl::Status CheckOptions(const TrainOptions& options);

  // All that Run does before it asks the exchanger for anything: checks the options and makes model and source ready.
  // Errors: as Run's, which does it if nobody did. Idempotent.
  absl::Status Prepare();

  // Errors: those of the exchanger, of `model`, of `source` and of on_window; INTERNAL for an exception in any of
  // them, with its text; CANCELLED; INVALID_ARGUMENT for options that make no sense, a source without minibatches and
  // a loss that is not finite; FAILED_PRECONDITION for a second call. After an error the window under way is not
  // committed and the parameters are those of the moment. Returns when no thread of the loop is left: not before an
  // overlapped exchange has ended, nor a Next of the source that ignores Cancel.
  absl::StatusOr<TrainSummary> Run();

  // How far Run came, also if it failed or was cancelled. To be called after it, or before.
  const TrainSummary& summary() const;

  // Ends Run soon with CANCELLED, wherever it is. Thread-safe.
  void Cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_TRAIN_H_
