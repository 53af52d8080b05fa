// A multilayer perceptron, ready to train: fully connected layers, ReLU between them, and a loss at the end.
#ifndef PARAMD_CLIENT_MLP_MLP_H_
#define PARAMD_CLIENT_MLP_MLP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/mlp/optimizer.h"
#include "client/mlp/sparse_rows.h"
#include "client/trainable.h"

namespace paramd {

enum class Loss {
  // Cross-entropy of the outputs' softmax, in nats; a row's label is its class, in [0, layers.back()).
  kSoftmax,
  // Σ (output − label)² / 2 over the outputs; a row has a label for each.
  kSquared,
};

struct MlpOptions {
  std::vector<int64_t> layers;  // units, from input to output: {784, 128, 10}
  uint64_t seed = 1;            // of the initial parameters
  OptimizerOptions optimizer;
  Loss loss = Loss::kSoftmax;
  // λ ≥ 0: the gradient is that of the loss + λ/2 Σ w² over all kernels, biases left out. What is returned as loss has
  // no such part.
  double l2 = 0;
  double max_gradient_norm = 0;  // a step's gradient is scaled down to this Euclidean norm at most; 0: never
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

// A batch has rows × layers.front() features and the labels that the loss wants, row-major. Behind all of them there
// may be as many weights as rows, finite and not negative: a row's loss counts that many times in the mean over the
// rows, which weights of mean 1 leave as large as it is. A network of squared loss has no classes: accuracy is 0.
// Computes on the calling thread alone and, after the first batch of the largest size, in the same memory.
// Thread-compatible.
class Mlp : public Trainable {
 public:
  // He et al. initialisation (arXiv 1502.01852): kernels from N(0, 2/inputs), biases 0. Equal seeds give equal
  // parameters. INVALID_ARGUMENT if there are fewer than two layers, one without units, more than 2^40 parameters, or
  // if other options make no sense; RESOURCE_EXHAUSTED if it is too large for this machine's memory.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(const MlpOptions& options);

  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  std::vector<MlpTensor> tensors() const;
  int64_t inputs() const { return layers_.front().inputs; }
  int64_t classes() const { return layers_.back().outputs; }

  // Loss, then metrics, both before the step. INVALID_ARGUMENT for a batch of another shape, with a label that is no
  // class or not finite, or a weight that can't be one; RESOURCE_EXHAUSTED if there is no memory for one of so many
  // rows.
  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& batch) override;
  std::vector<std::string> metric_names() const override {
    return classifies_ ? std::vector<std::string>{"accuracy"} : std::vector<std::string>();
  }

  double learning_rate() const override { return optimizer_->learning_rate(); }
  void set_learning_rate(double learning_rate) override { optimizer_->set_learning_rate(learning_rate); }

  // The gradient of the batch's mean loss and of `l2`, parameters().size() floats in their order. Errors as
  // TrainOnBatch.
  absl::StatusOr<Evaluation> ComputeGradient(const Batch& batch, absl::Span<float> gradient);

  // From features [rows, inputs()] the probabilities, or outputs, [rows, classes()]. INVALID_ARGUMENT unless both have
  // whole rows, and as many; RESOURCE_EXHAUSTED as TrainOnBatch.
  absl::Status Predict(absl::Span<const float> features, absl::Span<float> probabilities);

  // Loss and accuracy over epoch 0 of `source`. Errors: as TrainOnBatch, those of `source`, and INVALID_ARGUMENT if it
  // has no rows.
  absl::StatusOr<Evaluation> Evaluate(BatchSource* source) { return EvaluateEnsemble({this}, source); }

  // The same of the members' mean softmax; a probability below FLT_MIN counts as FLT_MIN. Weights are not looked at.
  // INVALID_ARGUMENT also if there is no member, if members differ in classes, or have none.
  static absl::StatusOr<Evaluation> EvaluateEnsemble(const std::vector<Mlp*>& members, BatchSource* source);

 private:
  struct Layer {
    int64_t inputs = 0;
    int64_t outputs = 0;
    int64_t kernel_offset = 0;  // into parameters_
    int64_t bias_offset = 0;
    std::vector<float>
        activations;  // [rows seen at most, outputs]; of the last layer: logits, then softmax if it classifies
    std::vector<float> deltas;  // gradient of the loss by the layer's pre-activations
  };

  explicit Mlp(const MlpOptions& options);

  // Also says in sparse_ what its features are.
  absl::Status Check(const Batch& batch);
  absl::Status Reserve(int64_t rows);
  const float* Input(const float* features, size_t layer) const;
  // Fills the activations of all layers, the last with logits. For at most as many rows as were reserved.
  void ComputeLogits(const float* features, int64_t rows);
  absl::Span<float> Logits(int64_t row);
  // Fills the activations of all layers, the last with softmax or outputs, and returns the batch's mean loss and
  // accuracy.
  Evaluation Forward(const Batch& batch);
  Evaluation ForwardClasses(const Batch& batch, const float* weights);
  Evaluation ForwardSquared(const Batch& batch, const float* weights);
  void Backward(const Batch& batch, absl::Span<float> gradient);
  // Labels of a row.
  int64_t targets() const { return classifies_ ? 1 : classes(); }
  // Null if the batch has none.
  const float* Weights(const Batch& batch) const;
  // For a batch that was checked; of the first kernel only rows that sparse features touch.
  absl::StatusOr<Evaluation> ComputeChecked(const Batch& batch, absl::Span<float> gradient);
  // Calls function(offset, count) for all parts of gradient_ that TrainOnBatch has computed.
  template <typename Function>
  void ForEachPart(const Function& function);
  void ClipGradient();
  // From the deltas of a layer and its input, which layer - 1 put out, to the deltas of that one.
  void BackwardThrough(size_t layer, int64_t rows);

  const bool classifies_;
  const float l2_;
  const double max_gradient_norm_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::vector<Layer> layers_;
  int64_t reserved_rows_ = 0;
  std::optional<SparseRows> sparse_;  // of the batch at hand; it refers to that
  TouchedRows touched_{0};            // made for all inputs once it is needed
  // Of BackwardThrough: room for the largest layer's.
  std::vector<float> transposed_deltas_;
  std::vector<float> transposed_below_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_MLP_MLP_H_
