#include "examples/mnist/mlp.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace paramd {
namespace {

constexpr int64_t kMaxParameters = int64_t{1} << 40;

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseLayers(std::string_view text) {
  std::vector<int64_t> layers;
  for (const absl::string_view field : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    int64_t units = 0;
    if (!absl::SimpleAtoi(field, &units) || units <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("layers '", std::string(text), "': '", field,
                                                     "' is not a positive number of units; write them from input to "
                                                     "output, as in 784,128,10"));
    }
    layers.push_back(units);
  }
  return layers;
}

absl::StatusOr<std::unique_ptr<Mlp>> Mlp::Create(const MlpOptions& options) {
  if (options.layers.size() < 2) {
    return absl::InvalidArgumentError(
        "a network needs at least two layers, its input and its output, as in 784,128,10");
  }
  int64_t parameters = 0;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    const int64_t outputs = options.layers[i];
    if (outputs <= 0 || outputs > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", i, " has ", outputs, " units; give 1 to 2^31 − 1"));
    }
    // Both factors are below 2^31, so the product fits.
    if (i > 0) parameters += (options.layers[i - 1] + 1) * outputs;
    if (parameters > kMaxParameters) {
      return absl::InvalidArgumentError("the network has more than 2^40 parameters; use smaller layers");
    }
  }
  auto optimizer = MakeOptimizer(options.optimizer, parameters);
  if (!optimizer.ok()) return optimizer.status();
  std::unique_ptr<Mlp> mlp(new Mlp(options.layers, options.seed));
  mlp->optimizer_ = *std::move(optimizer);
  return mlp;
}

Mlp::Mlp(const std::vector<int64_t>& layers, uint64_t seed) {
  int64_t offset = 0;
  for (size_t i = 1; i < layers.size(); ++i) {
    Layer layer;
    layer.inputs = layers[i - 1];
    layer.outputs = layers[i];
    layer.kernel_offset = offset;
    layer.bias_offset = offset + layer.inputs * layer.outputs;
    offset = layer.bias_offset + layer.outputs;
    layers_.push_back(std::move(layer));
  }
  parameters_.resize(offset);
  gradient_.resize(offset);
  std::mt19937_64 random(seed);
  for (const Layer& layer : layers_) {
    std::normal_distribution<float> normal(0, std::sqrt(2.0f / static_cast<float>(layer.inputs)));
    std::generate(parameters_.begin() + layer.kernel_offset, parameters_.begin() + layer.bias_offset,
                  [&] { return normal(random); });
  }
}

std::vector<MlpTensor> Mlp::tensors() const {
  std::vector<MlpTensor> tensors;
  for (size_t i = 0; i < layers_.size(); ++i) {
    tensors.push_back({absl::StrCat("dense", i, "/kernel"), {layers_[i].inputs, layers_[i].outputs}});
    tensors.push_back({absl::StrCat("dense", i, "/bias"), {layers_[i].outputs}});
  }
  return tensors;
}

absl::Status Mlp::Check(const Batch& batch) const {
  const int64_t columns = layers_.front().inputs;
  if (batch.rows <= 0 || static_cast<int64_t>(batch.features.size()) != batch.rows * columns ||
      static_cast<int64_t>(batch.labels.size()) != batch.rows) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.rows, " rows has ", batch.features.size(),
                                                   " features and ", batch.labels.size(),
                                                   " labels; this network takes at least one row, with ", columns,
                                                   " features and one label each: check the size of the first layer"));
  }
  for (const float label : batch.labels) {
    // Also false for NaN.
    if (!(label >= 0 && label < static_cast<float>(classes()) && label == std::floor(label))) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " is not a class in [0, ", classes(), "): check the size of the last layer"));
    }
  }
  return absl::OkStatus();
}

void Mlp::Reserve(int64_t rows) {
  if (rows <= layers_.front().activations.rows()) return;
  for (Layer& layer : layers_) {
    layer.activations.resize(rows, layer.outputs);
    layer.deltas.resize(rows, layer.outputs);
  }
}

Evaluation Mlp::Forward(const Batch& batch) {
  Reserve(batch.rows);
  const float* input = batch.features.data();
  for (Layer& layer : layers_) {
    const ConstMatrixView in(input, batch.rows, layer.inputs);
    const ConstMatrixView kernel(&parameters_[layer.kernel_offset], layer.inputs, layer.outputs);
    const Eigen::Map<const Eigen::RowVectorXf> bias(&parameters_[layer.bias_offset], layer.outputs);
    MatrixView out(layer.activations.data(), batch.rows, layer.outputs);
    out.rowwise() = bias;
    out.noalias() += in * kernel;
    if (&layer != &layers_.back()) out = out.cwiseMax(0.0f);
    input = layer.activations.data();
  }

  Evaluation evaluation{.rows = batch.rows};
  for (int64_t i = 0; i < batch.rows; ++i) {
    auto row = layers_.back().activations.row(i);
    const auto label = static_cast<Eigen::Index>(batch.labels[i]);
    Eigen::Index best = 0;
    const float largest = row.maxCoeff(&best);
    const float of_label = row(label) - largest;
    row.array() = (row.array() - largest).exp();
    const float sum = row.sum();
    row /= sum;
    evaluation.loss += std::log(sum) - of_label;
    evaluation.accuracy += best == label;
  }
  evaluation.loss /= static_cast<double>(batch.rows);
  evaluation.accuracy /= static_cast<double>(batch.rows);
  return evaluation;
}

void Mlp::Backward(const Batch& batch, absl::Span<float> gradient) {
  const int64_t rows = batch.rows;
  MatrixView last(layers_.back().deltas.data(), rows, classes());
  last = layers_.back().activations.topRows(rows);
  for (int64_t i = 0; i < rows; ++i) last(i, static_cast<Eigen::Index>(batch.labels[i])) -= 1;
  last /= static_cast<float>(rows);

  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    const ConstMatrixView deltas(layer.deltas.data(), rows, layer.outputs);
    const float* input = i == 0 ? batch.features.data() : layers_[i - 1].activations.data();
    const ConstMatrixView in(input, rows, layer.inputs);
    MatrixView(&gradient[layer.kernel_offset], layer.inputs, layer.outputs).noalias() = in.transpose() * deltas;
    Eigen::Map<Eigen::RowVectorXf>(&gradient[layer.bias_offset], layer.outputs) = deltas.colwise().sum();
    if (i == 0) return;
    const ConstMatrixView kernel(&parameters_[layer.kernel_offset], layer.inputs, layer.outputs);
    MatrixView below(layers_[i - 1].deltas.data(), rows, layer.inputs);
    below.noalias() = deltas * kernel.transpose();
    below = (in.array() > 0).select(below, 0.0f);
  }
}

absl::StatusOr<Evaluation> Mlp::ComputeGradient(const Batch& batch, absl::Span<float> gradient) {
  if (const absl::Status status = Check(batch); !status.ok()) return status;
  if (gradient.size() != parameters_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient has ", gradient.size(), " floats, the network ", parameters_.size(), " parameters"));
  }
  const Evaluation evaluation = Forward(batch);
  Backward(batch, gradient);
  return evaluation;
}

absl::StatusOr<Evaluation> Mlp::EvaluateEnsemble(const std::vector<Mlp*>& members, BatchSource* source) {
  if (members.empty()) return absl::InvalidArgumentError("an ensemble needs at least one member");
  const int64_t classes = members[0]->classes();
  for (const Mlp* member : members) {
    if (member->classes() != classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("members of an ensemble have ", classes, " and ", member->classes(), " classes"));
    }
  }
  if (const absl::Status status = source->Rewind(0); !status.ok()) return status;

  Evaluation evaluation;
  Batch batch;
  Eigen::RowVectorXf mean(classes);
  while (true) {
    const auto more = source->Next(&batch);
    if (!more.ok()) return more.status();
    if (!*more) break;
    for (Mlp* member : members) {
      if (const absl::Status status = member->Check(batch); !status.ok()) return status;
      member->Forward(batch);
    }
    for (int64_t i = 0; i < batch.rows; ++i) {
      mean.setZero();
      for (const Mlp* member : members) mean += member->layers_.back().activations.row(i);
      mean /= static_cast<float>(members.size());
      const auto label = static_cast<Eigen::Index>(batch.labels[i]);
      Eigen::Index best = 0;
      mean.maxCoeff(&best);
      evaluation.loss -= std::log(std::max(mean(label), FLT_MIN));
      evaluation.accuracy += best == label;
    }
    evaluation.rows += batch.rows;
  }
  if (evaluation.rows == 0) return absl::InvalidArgumentError("nothing to evaluate: the data has no rows");
  evaluation.loss /= static_cast<double>(evaluation.rows);
  evaluation.accuracy /= static_cast<double>(evaluation.rows);
  return evaluation;
}

absl::StatusOr<std::vector<double>> Mlp::TrainOnBatch(const Batch& batch) {
  const auto evaluation = ComputeGradient(batch, absl::MakeSpan(gradient_));
  if (!evaluation.ok()) return evaluation.status();
  optimizer_->Step(gradient_, parameters());
  return std::vector<double>{evaluation->loss, evaluation->accuracy};
}

}  // namespace paramd
