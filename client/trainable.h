// What the training loop trains, and on what. Implement these two for a model of your own.
#ifndef PARAMD_CLIENT_TRAINABLE_H_
#define PARAMD_CLIENT_TRAINABLE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paramd {

// An input of a minibatch beside its features: row-major values of one type.
struct Input {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<double>, std::vector<int32_t>, std::vector<int64_t>,
               std::vector<uint8_t>>
      values;
};

// One minibatch. Features are row-major [rows, columns]; labels are whatever the model makes of them, one or more
// a row; further inputs, or integers, whatever model and source agree on. The loop only passes it on.
struct Batch {
  int64_t rows = 0;
  std::vector<float> features;
  std::vector<float> labels;
  std::vector<Input> inputs;
};

// A model with parameters and a train-on-batch step. Called from one thread at a time. An exception that leaves a
// method fails the worker with its message.
class Trainable {
 public:
  virtual ~Trainable() = default;

  // All parameters in the model's tensor order; the same memory for the life of the object. The loop reads and writes
  // it between steps.
  virtual absl::Span<float> parameters() = 0;

  // One optimizer step on `batch`, in place. Returns the loss before the step, averaged over the rows, then the values
  // of metric_names() in order. A non-finite loss fails the worker.
  virtual absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& batch) = 0;

  virtual std::vector<std::string> metric_names() const { return {}; }

  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double learning_rate) = 0;
};

// Where minibatches come from. Next and Rewind are called from one thread, the loop's prefetch thread.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills `batch` with the next minibatch of this epoch, reusing its memory. False at the epoch's end. May block as
  // long as it likes: the loop waits. OUT_OF_RANGE: there is nothing more to train, and training ends well with what
  // came before, whatever epochs were to come.
  virtual absl::StatusOr<bool> Next(Batch* batch) = 0;

  // Begins epoch `epoch`, counted from 0. Called before the first Next, too.
  virtual absl::Status Rewind(int64_t epoch) = 0;

  // Minibatches in one epoch, as far as known before the first; 0: unknown. Only for StepResult::epoch. Called once,
  // before the first Rewind.
  virtual int64_t batches_per_epoch() const { return 0; }

  // Wakes a Next that blocks, which then returns any error. May be called from any thread, also more than once: when
  // training is cancelled, fails or stops at its target loss before all epochs were read.
  virtual void Cancel() {}
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_TRAINABLE_H_
