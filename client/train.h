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

namespace paramd {

// One trained minibatch.
struct StepResult {
  int64_t step = 0;   // counted from 1
  double epoch = 0;   // position in the data; whole epochs while it is unknown how long one is
  double time_s = 0;  // since Run began
  double loss = 0;
  std::vector<double> metrics;
};

struct TrainOptions {
  int64_t epochs = 1;
  int64_t communication_window = 0;  // minibatches between two exchanges; 0: the model's
  double learning_rate = 0;          // 0: the model's
  int max_prefetch = 100;            // minibatches read ahead
  // Stop when the mean loss of a window (of an epoch, where exchanges are by the epoch) is at or below this, once it is
  // exchanged. Negative: never.
  double target_loss = -1;
  // Exchange on a second thread while the next window trains; what θ brought is added to W at the first step after it
  // arrived, at the latest at that window's end. Steps until then are taken at parameters one exchange older, so they
  // miss up to one commit of every other worker. The staleness the server counts (and dynsgd divides by) does not show
  // that: a commit's base version is still that of the exchange before it. See docs/tuning.md.
  bool overlap = false;
  // Longest that one exchange may take, waiting for slower workers included.
  absl::Duration exchange_timeout = absl::InfiniteDuration();
  // Called on the training thread after each exchange (for `single`: each window), with the results of the steps that
  // were exchanged, so each step comes once and in order. For history and progress; must be quick. An error fails the
  // worker.
  std::function<absl::Status(const std::vector<StepResult>&)> on_window;
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

// Trains `model` on `source`: pulls the center into the model's parameters, then trains window after window and
// exchanges at the end of each, or where the algorithm's half says. Every minibatch is trained exactly once an epoch;
// the last partial window is committed too. An object trains once. Thread-compatible, but for Cancel.
class TrainLoop {
 public:
  // All must outlive the loop. `exchanger` is null for an algorithm that never exchanges. `hyperparameters` are the
  // model's, complete.
  TrainLoop(Trainable* model, BatchSource* source, Exchanger* exchanger, std::unique_ptr<WorkerHalf> algorithm,
            const Hyperparameters& hyperparameters, TrainOptions options);
  ~TrainLoop();

  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // Errors: those of the exchanger, of `model`, of `source` and of on_window; INTERNAL for an exception in any of
  // them, with its text; CANCELLED; INVALID_ARGUMENT for options that make no sense, a source without minibatches and
  // a loss that is not finite; FAILED_PRECONDITION for a second call. After an error the window under way is not
  // committed and the parameters are those of the moment. Returns when no thread of the loop is left: not before an
  // overlapped exchange has ended, nor a Next of the source that ignores Cancel.
  absl::StatusOr<TrainSummary> Run();

  // Ends Run soon with CANCELLED, wherever it is. Thread-safe.
  void Cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_TRAIN_H_
