// A multilayer perceptron for classification, ready to train: fully connected layers, ReLU between them, softmax
// cross-entropy at the end.
#ifndef PARAMD_CLIENT_MLP_MLP_H_
#define PARAMD_CLIENT_MLP_MLP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/mlp/optimizer.h"
#include "client/trainable.h"

namespace paramd {

struct MlpOptions {
  std::vector<int64_t> layers;  // units, from input to output: {784, 128, 10}
  uint64_t seed = 1;            // of the initial parameters
  OptimizerOptions optimizer;
};

// "784,128,10" → {784, 128, 10}. INVALID_ARGUMENT unless it is a list of positive integers.
absl::StatusOr<std::vector<int64_t>> ParseLayers(std::string_view text);

// Where layer i of n keeps its kernel [inputs, outputs] and its bias [outputs], as a model's spec lists them:
// dense0/kernel, dense0/bias, dense1/kernel, ...
struct MlpTensor {
  std::string name;
  std::vector<int64_t> shape;
};

struct Evaluation {
  int64_t rows = 0;
  double loss = 0;      // mean cross-entropy, in nats
  double accuracy = 0;  // in [0, 1]
};

// A batch has rows × layers.front() features, and one label a row: the class, an integer in [0, layers.back()).
// Computes on the calling thread alone and, after the first batch of the largest size, in the same memory.
// Thread-compatible.
class Mlp : public Trainable {
 public:
  // He et al. initialisation (arXiv 1502.01852): kernels from N(0, 2/inputs), biases 0. Equal seeds give equal
  // parameters. INVALID_ARGUMENT if there are fewer than two layers, one without units, more than 2^40 parameters, or
  // if the optimizer's options make no sense; RESOURCE_EXHAUSTED if it is too large for this machine's memory.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(const MlpOptions& options);

  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  std::vector<MlpTensor> tensors() const;
  int64_t inputs() const { return layers_.front().inputs; }
  int64_t classes() const { return layers_.back().outputs; }

  // Loss, then accuracy, both before the step. INVALID_ARGUMENT for a batch of another shape, or with a label that is
  // no class; RESOURCE_EXHAUSTED if there is no memory for one of so many rows.
  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& batch) override;
  std::vector<std::string> metric_names() const override { return {"accuracy"}; }

  double learning_rate() const override { return optimizer_->learning_rate(); }
  void set_learning_rate(double learning_rate) override { optimizer_->set_learning_rate(learning_rate); }

  // The gradient of the batch's mean loss, parameters().size() floats in their order. Errors as TrainOnBatch.
  absl::StatusOr<Evaluation> ComputeGradient(const Batch& batch, absl::Span<float> gradient);

  // From features [rows, inputs()] the probabilities [rows, classes()]. INVALID_ARGUMENT unless both have whole rows,
  // and as many; RESOURCE_EXHAUSTED as TrainOnBatch.
  absl::Status Predict(absl::Span<const float> features, absl::Span<float> probabilities);

  // Loss and accuracy over epoch 0 of `source`. Errors: as TrainOnBatch, those of `source`, and INVALID_ARGUMENT if it
  // has no rows.
  absl::StatusOr<Evaluation> Evaluate(BatchSource* source) { return EvaluateEnsemble({this}, source); }

  // The same of the members' mean softmax; a probability below FLT_MIN counts as FLT_MIN. INVALID_ARGUMENT also if
  // there is no member, or if members differ in classes.
  static absl::StatusOr<Evaluation> EvaluateEnsemble(const std::vector<Mlp*>& members, BatchSource* source);

 private:
  struct Layer {
    int64_t inputs = 0;
    int64_t outputs = 0;
    int64_t kernel_offset = 0;  // into parameters_
    int64_t bias_offset = 0;
    std::vector<float> activations;  // [rows seen at most, outputs]; of the last layer: logits, then softmax
    std::vector<float> deltas;       // gradient of the loss by the layer's pre-activations
  };

  Mlp(const std::vector<int64_t>& layers, uint64_t seed);

  absl::Status Check(const Batch& batch) const;
  absl::Status Reserve(int64_t rows);
  const float* Input(const float* features, size_t layer) const;
  // Fills the activations of all layers, the last with logits. For at most as many rows as were reserved.
  void ComputeLogits(const float* features, int64_t rows);
  absl::Span<float> Logits(int64_t row);
  // Fills the activations of all layers, the last with softmax, and returns the batch's mean loss and accuracy.
  Evaluation Forward(const Batch& batch);
  void Backward(const Batch& batch, absl::Span<float> gradient);
  // From the deltas of a layer and its input, which layer - 1 put out, to the deltas of that one.
  void BackwardThrough(size_t layer, int64_t rows);

  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::vector<Layer> layers_;
  int64_t reserved_rows_ = 0;
  // Of BackwardThrough: room for the largest layer's.
  std::vector<float> transposed_deltas_;
  std::vector<float> transposed_below_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_MLP_MLP_H_
