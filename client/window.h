// Windows of minibatches and the exchanges between them, for training loops: TrainLoop's, and those of one's own.
//
//   auto window = paramd::MakeWindow(worker.get(), {kernel, bias}, {});  // in worker.h; spans over the model's tensors
//   if (!window.ok()) return window.status();
//   if (auto status = (*window)->Begin(); !status.ok()) return status;   // the center is in kernel and bias now
//   for (const auto& batch : batches) {
//     if (auto status = (*window)->BeforeStep(); !status.ok()) return status;
//     const double loss = Train(batch);                                  // one optimizer step, in place
//     if (auto status = (*window)->AfterStep({.loss = loss}); !status.ok()) return status;
//     if ((*window)->full()) {
//       if (auto status = (*window)->End(); !status.ok()) return status;
//     }
//   }
//   return (*window)->Finish();
#ifndef PARAMD_CLIENT_WINDOW_H_
#define PARAMD_CLIENT_WINDOW_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "algorithms/algorithm.h"
#include "client/exchanger.h"

namespace paramd {

// One trained minibatch.
struct StepResult {
  int64_t step = 0;   // counted from 1, over all windows of MakeWindow for the same worker
  double epoch = 0;   // position in the data; whole epochs while it is unknown how long one is
  double time_s = 0;  // since the window was made, which TrainLoop does as it begins
  double loss = 0;
  std::vector<double> metrics;
};

struct WindowOptions {
  int64_t communication_window = 0;  // minibatches between two exchanges; 0: the model's
  // Exchange on a second thread while the next window trains; what θ brought is added to W before the first step after
  // it arrived, at the latest at that window's end. Steps until then are taken at parameters one exchange older, so
  // they miss up to one commit of every other worker. The staleness the server counts (and dynsgd divides by) does not
  // show that: a commit's base version is still that of the exchange before it. See docs/tuning.md.
  bool overlap = false;
  // Longest that one exchange may take, waiting for slower workers included.
  absl::Duration exchange_timeout = absl::InfiniteDuration();
  // Number of the step before the window's first, which counts on there: for one participant's windows one after
  // another. Null: the first is 1. Must outlive the window.
  int64_t* last_step = nullptr;
  // Called within End, BeforeStep, Finish or Abandon, after each exchange (without exchanges: at each End), with the
  // results of the steps that were exchanged, so each step comes once and in order. Also after an exchange that failed
  // once its commit was applied. Must be quick. An error is that of the call.
  std::function<absl::Status(const std::vector<StepResult>&)> on_window;
  // In its place for the steps of an exchange that failed before it was known what became of its commit.
  std::function<void(const std::vector<StepResult>&)> on_unknown;
};

struct WindowStatistics {
  int64_t steps = 0;      // taken
  int64_t exchanges = 0;  // that were answered
  int64_t exchanged = 0;  // steps whose commits were applied, as far as it is known
  double mean_staleness = 0;
  absl::Duration exchanging;  // that training stood still for exchanges; the first pull is none
};

// From its creation to its end the exchanger is the window's alone: the exchanger's buffers hold the window's state,
// and what others exchange may overwrite them.
//
// An error ends it: every later call, but for Abandon, returns the same error. Errors are those of the exchanger, also
// once it has ended, and of on_window; INTERNAL for an exception in the algorithm's half, the exchanger or on_window,
// with its text. After an error the parameters are those of the moment. Thread-compatible.
class Window {
 public:
  // INVALID_ARGUMENT for what no model could make sense of. Create checks it, too.
  static absl::Status CheckOptions(const WindowOptions& options);

  // `parameters`: all of the model's, in its tensor order, in as many spans as it likes; their memory is read and
  // written in the calls of this object only, and must outlive it, as must `exchanger`, which is null for an algorithm
  // that never exchanges. `half` is null for none. `hyperparameters` are the model's, complete.
  // INVALID_ARGUMENT for options that make no sense, for parameters that share memory or are more than any memory
  // holds, and for those in memory of the exchanger's, except: those that
  // an algorithm commits itself may be in the commit buffer, if exchanges don't overlap.
  static absl::StatusOr<std::unique_ptr<Window>> Create(std::vector<absl::Span<float>> parameters, Exchanger* exchanger,
                                                        std::unique_ptr<WorkerHalf> half,
                                                        const Hyperparameters& hyperparameters, WindowOptions options);
  // Waits for an exchange under way, but not in a forked child, where every call is FAILED_PRECONDITION.
  ~Window();

  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Pulls the center into the parameters. To be called once, first. Also RESOURCE_EXHAUSTED if there is no memory for
  // exchanges of so many.
  absl::Status Begin();

  // Around every local step. AfterStep numbers the step and sets its time. A step that fails is one that AfterStep does
  // not hear of.
  absl::Status BeforeStep();
  absl::Status AfterStep(StepResult result = {});

  // Whether the window has its minibatches, or more, so that it is time for End. Never, where the algorithm exchanges
  // by the epoch: call End at each epoch's end.
  bool full() const;
  bool exchanges_by_epoch() const;

  // Ends the window, full or not: exchanges it, or begins to. Without a step in it, nothing happens.
  absl::Status End();

  // Exchanges what is left and returns once nothing is under way.
  absl::Status Finish();

  // After a step that failed: waits for an exchange under way and reports its steps, but commits nothing more. Returns
  // what became of the last exchange, also if another call has returned that error before; OK if there was none.
  absl::Status Abandon();

  WindowStatistics statistics() const;

 private:
  class Impl;
  explicit Window(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_WINDOW_H_
