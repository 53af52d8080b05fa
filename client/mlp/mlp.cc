#include "client/mlp/mlp.h"

#include <unistd.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <new>
#include <random>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/mlp/matrix_product.h"

namespace paramd {
namespace {

constexpr int64_t kMaxParameters = int64_t{1} << 40;
// Of Predict, at a time: memory does not grow with what it is given.
constexpr int64_t kPredictedRows = 256;

// Turns one row of logits into their softmax. Returns its entry's negative logarithm at `label`; `best` is the first
// largest entry.
double Softmax(absl::Span<float> row, size_t label, size_t* best) {
  *best = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
  const float largest = row[*best];
  const float of_label = row[label] - largest;
  float sum = 0;
  for (float& value : row) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (float& value : row) value /= sum;
  return std::log(sum) - of_label;
}

// [rows, columns] → [columns, rows]
void Transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
}

void SumRows(const float* from, int64_t rows, int64_t columns, float* sums) {
  std::copy(from, from + columns, sums);
  for (int64_t i = 1; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) sums[j] += from[i * columns + j];
  }
}

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
  // Also false for NaN.
  if (!(options.l2 >= 0 && options.l2 <= FLT_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat("l2 is ", options.l2, ", but must be a number of at least 0"));
  }
  if (!(options.max_gradient_norm >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_gradient_norm is ", options.max_gradient_norm, ", but must be positive, or 0 for no limit"));
  }
  // The system promises memory that it does not have, and ends who takes it.
  const double bytes = 2.0 * sizeof(float) * static_cast<double>(parameters);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const auto too_large = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("the network has ", parameters, " parameters, which with their gradient take ", bytes / 1e9,
                     " GB of memory, and this machine has ", memory / 1e9, " GB; use smaller layers"));
  };
  if (bytes > memory) return too_large();
  try {
    auto optimizer = MakeOptimizer(options.optimizer, parameters);
    if (!optimizer.ok()) return optimizer.status();
    std::unique_ptr<Mlp> mlp(new Mlp(options));
    mlp->optimizer_ = *std::move(optimizer);
    return mlp;
  } catch (const std::bad_alloc&) {
    return too_large();
  }
}

Mlp::Mlp(const MlpOptions& options)
    : classifies_(options.loss == Loss::kSoftmax),
      l2_(static_cast<float>(options.l2)),
      max_gradient_norm_(options.max_gradient_norm) {
  const std::vector<int64_t>& layers = options.layers;
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
  std::mt19937_64 random(options.seed);
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

absl::Status Mlp::Check(const Batch& batch) {
  const int64_t columns = layers_.front().inputs;
  sparse_.reset();
  if (HasSparseRows(batch)) {
    auto rows = SparseRowsOf(batch, columns);
    if (!rows.ok()) return rows.status();
    sparse_ = *rows;
    if (touched_.rows() == 0) touched_ = TouchedRows(columns);
  }
  const auto given = static_cast<int64_t>(batch.labels.size());
  const int64_t labels = batch.rows * targets();
  if (batch.rows <= 0 || (!sparse_ && static_cast<int64_t>(batch.features.size()) != batch.rows * columns) ||
      (given != labels && given != labels + batch.rows)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.rows, " rows has ", batch.features.size(), " features and ", given,
                     " labels; this network takes at least one row, with ", columns, " features and ", targets(),
                     " label(s) each, and perhaps a weight: check the sizes of the first and the last layer"));
  }
  for (const float weight : absl::MakeConstSpan(batch.labels).subspan(labels)) {
    if (!(weight >= 0 && weight <= FLT_MAX)) {
      return absl::InvalidArgumentError(absl::StrCat("weight ", weight, " is no finite number of at least 0"));
    }
  }
  for (const float label : absl::MakeConstSpan(batch.labels).subspan(0, labels)) {
    if (!classifies_) {
      if (std::isfinite(label)) continue;
      return absl::InvalidArgumentError(absl::StrCat("label ", label, " is no finite number"));
    }
    // Also false for NaN.
    if (!(label >= 0 && label < static_cast<float>(classes()) && label == std::floor(label))) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " is not a class in [0, ", classes(), "): check the size of the last layer"));
    }
  }
  return absl::OkStatus();
}

absl::Status Mlp::Reserve(int64_t rows) {
  if (rows <= reserved_rows_) return absl::OkStatus();
  try {
    for (Layer& layer : layers_) {
      layer.activations.resize(rows * layer.outputs);
      layer.deltas.resize(rows * layer.outputs);
      if (&layer == &layers_.front()) continue;
      transposed_deltas_.resize(std::max<size_t>(transposed_deltas_.size(), rows * layer.outputs));
      transposed_below_.resize(std::max<size_t>(transposed_below_.size(), rows * layer.inputs));
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("there is no memory for what the network's layers put out for ",
                                                     rows, " rows; use smaller batches, or smaller layers"));
  }
  reserved_rows_ = rows;
  return absl::OkStatus();
}

const float* Mlp::Input(const float* features, size_t layer) const {
  return layer == 0 ? features : layers_[layer - 1].activations.data();
}

void Mlp::ComputeLogits(const float* features, int64_t rows) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    if (i == 0 && sparse_.has_value()) {
      Multiply(*sparse_, &parameters_[layer.kernel_offset], &parameters_[layer.bias_offset], layer.outputs,
               layer.activations.data());
    } else {
      Multiply({.rows = rows,
                .columns = layer.outputs,
                .depth = layer.inputs,
                .left = Input(features, i),
                .left_row = layer.inputs,
                .left_depth = 1,
                .right = &parameters_[layer.kernel_offset],
                .bias = &parameters_[layer.bias_offset],
                .result = layer.activations.data()});
    }
    if (i + 1 == layers_.size()) break;
    float* const activations = layer.activations.data();
    for (int64_t j = 0; j < rows * layer.outputs; ++j) activations[j] = activations[j] < 0 ? 0 : activations[j];
  }
}

absl::Span<float> Mlp::Logits(int64_t row) {
  return absl::MakeSpan(layers_.back().activations).subspan(row * classes(), classes());
}

const float* Mlp::Weights(const Batch& batch) const {
  const auto labels = static_cast<size_t>(batch.rows * targets());
  return batch.labels.size() == labels ? nullptr : &batch.labels[labels];
}

Evaluation Mlp::Forward(const Batch& batch) {
  ComputeLogits(batch.features.data(), batch.rows);
  const float* const weights = Weights(batch);
  Evaluation evaluation = classifies_ ? ForwardClasses(batch, weights) : ForwardSquared(batch, weights);
  evaluation.rows = batch.rows;
  evaluation.loss /= static_cast<double>(batch.rows);
  evaluation.accuracy /= static_cast<double>(batch.rows);
  return evaluation;
}

Evaluation Mlp::ForwardClasses(const Batch& batch, const float* weights) {
  Evaluation sums;
  for (int64_t i = 0; i < batch.rows; ++i) {
    const auto label = static_cast<size_t>(batch.labels[i]);
    size_t best = 0;
    const double loss = Softmax(Logits(i), label, &best);
    sums.loss += weights == nullptr ? loss : weights[i] * loss;
    sums.accuracy += best == label;
  }
  return sums;
}

Evaluation Mlp::ForwardSquared(const Batch& batch, const float* weights) {
  Evaluation sums;
  for (int64_t i = 0; i < batch.rows; ++i) {
    double loss = 0;
    for (int64_t j = 0; j < classes(); ++j) {
      const double error = Logits(i)[j] - batch.labels[i * classes() + j];
      loss += error * error / 2;
    }
    sums.loss += weights == nullptr ? loss : weights[i] * loss;
  }
  return sums;
}

void Mlp::Backward(const Batch& batch, absl::Span<float> gradient) {
  const int64_t rows = batch.rows;
  Layer& last = layers_.back();
  std::copy_n(last.activations.begin(), rows * classes(), last.deltas.begin());
  if (classifies_) {
    for (int64_t i = 0; i < rows; ++i) last.deltas[i * classes() + static_cast<int64_t>(batch.labels[i])] -= 1;
  } else {
    for (int64_t i = 0; i < rows * classes(); ++i) last.deltas[i] -= batch.labels[i];
  }
  const float* const weights = Weights(batch);
  for (int64_t i = 0; i < rows; ++i) {
    const float weight = weights == nullptr ? 1 : weights[i];
    for (int64_t j = 0; j < classes(); ++j) last.deltas[i * classes() + j] *= weight / static_cast<float>(rows);
  }

  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    if (i == 0 && sparse_.has_value()) {
      touched_.MultiplyTransposed(*sparse_, layer.deltas.data(), layer.outputs, &gradient[layer.kernel_offset]);
    } else {
      Multiply({.rows = layer.inputs,
                .columns = layer.outputs,
                .depth = rows,
                .left = Input(batch.features.data(), i),
                .left_row = 1,
                .left_depth = layer.inputs,
                .right = layer.deltas.data(),
                .result = &gradient[layer.kernel_offset]});
    }
    SumRows(layer.deltas.data(), rows, layer.outputs, &gradient[layer.bias_offset]);
    if (l2_ > 0) {
      for (int64_t j = layer.kernel_offset; j < layer.bias_offset; ++j) gradient[j] += l2_ * parameters_[j];
    }
    if (i > 0) BackwardThrough(i, rows);
  }
}

void Mlp::BackwardThrough(size_t layer, int64_t rows) {
  const Layer& above = layers_[layer];
  Layer& below = layers_[layer - 1];
  // below.deltasᵀ = kernel · above.deltasᵀ: what is small is transposed, and not the kernel.
  Transpose(above.deltas.data(), rows, above.outputs, transposed_deltas_.data());
  Multiply({.rows = above.inputs,
            .columns = rows,
            .depth = above.outputs,
            .left = &parameters_[above.kernel_offset],
            .left_row = above.outputs,
            .left_depth = 1,
            .right = transposed_deltas_.data(),
            .result = transposed_below_.data()});
  Transpose(transposed_below_.data(), above.inputs, rows, below.deltas.data());
  float* const deltas = below.deltas.data();
  const float* const activations = below.activations.data();
  for (int64_t i = 0; i < rows * below.outputs; ++i) deltas[i] = activations[i] > 0 ? deltas[i] : 0;
}

absl::StatusOr<Evaluation> Mlp::ComputeGradient(const Batch& batch, absl::Span<float> gradient) {
  if (const absl::Status status = Check(batch); !status.ok()) return status;
  if (gradient.size() != parameters_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient has ", gradient.size(), " floats, the network ", parameters_.size(), " parameters"));
  }
  if (sparse_) std::fill_n(gradient.begin(), layers_.front().bias_offset, 0.0f);
  return ComputeChecked(batch, gradient);
}

absl::StatusOr<Evaluation> Mlp::ComputeChecked(const Batch& batch, absl::Span<float> gradient) {
  if (const absl::Status status = Reserve(batch.rows); !status.ok()) return status;
  const Evaluation evaluation = Forward(batch);
  Backward(batch, gradient);
  return evaluation;
}

absl::Status Mlp::Predict(absl::Span<const float> features, absl::Span<float> probabilities) {
  const auto rows = static_cast<int64_t>(features.size()) / inputs();
  if (static_cast<int64_t>(features.size()) != rows * inputs() ||
      static_cast<int64_t>(probabilities.size()) != rows * classes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        features.size(), " features and room for ", probabilities.size(), " probabilities: this network takes ",
        inputs(), " features a row, and gives ", classes(), " probabilities: check the sizes of its layers"));
  }
  if (const absl::Status status = Reserve(std::min(kPredictedRows, rows)); !status.ok()) return status;
  sparse_.reset();
  for (int64_t begin = 0; begin < rows; begin += kPredictedRows) {
    const int64_t n = std::min(kPredictedRows, rows - begin);
    ComputeLogits(features.data() + begin * inputs(), n);
    for (int64_t i = 0; i < n; ++i) {
      size_t best = 0;
      if (classifies_) Softmax(Logits(i), 0, &best);
      absl::c_copy(Logits(i), probabilities.begin() + (begin + i) * classes());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Mlp::EvaluateEnsemble(const std::vector<Mlp*>& members, BatchSource* source) {
  if (members.empty()) return absl::InvalidArgumentError("an ensemble needs at least one member");
  const int64_t classes = members[0]->classes();
  for (const Mlp* member : members) {
    if (member->classes() != classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("members of an ensemble have ", classes, " and ", member->classes(), " classes"));
    }
    if (!member->classifies_) {
      return absl::InvalidArgumentError("a network of squared loss has no classes to be evaluated by");
    }
  }
  if (const absl::Status status = source->Rewind(0); !status.ok()) return status;

  Evaluation evaluation;
  Batch batch;
  std::vector<float> mean(classes);
  while (true) {
    const auto more = source->Next(&batch);
    if (!more.ok()) return more.status();
    if (!*more) break;
    for (Mlp* member : members) {
      if (const absl::Status status = member->Check(batch); !status.ok()) return status;
      if (const absl::Status status = member->Reserve(batch.rows); !status.ok()) return status;
      member->Forward(batch);
    }
    for (int64_t i = 0; i < batch.rows; ++i) {
      std::fill(mean.begin(), mean.end(), 0.0f);
      for (const Mlp* member : members) {
        const float* softmax = &member->layers_.back().activations[i * classes];
        for (int64_t j = 0; j < classes; ++j) mean[j] += softmax[j] / static_cast<float>(members.size());
      }
      const auto label = static_cast<size_t>(batch.labels[i]);
      evaluation.loss -= std::log(std::max(mean[label], FLT_MIN));
      evaluation.accuracy += std::max_element(mean.begin(), mean.end()) == mean.begin() + batch.labels[i];
    }
    evaluation.rows += batch.rows;
  }
  if (evaluation.rows == 0) return absl::InvalidArgumentError("nothing to evaluate: the data has no rows");
  evaluation.loss /= static_cast<double>(evaluation.rows);
  evaluation.accuracy /= static_cast<double>(evaluation.rows);
  return evaluation;
}

absl::StatusOr<std::vector<double>> Mlp::TrainOnBatch(const Batch& batch) {
  if (const absl::Status status = Check(batch); !status.ok()) return status;
  const auto evaluation =
      l2_ > 0 ? ComputeGradient(batch, absl::MakeSpan(gradient_)) : ComputeChecked(batch, absl::MakeSpan(gradient_));
  if (!evaluation.ok()) return evaluation.status();
  ClipGradient();
  optimizer_->BeginStep();
  ForEachPart([&](int64_t offset, int64_t count) {
    optimizer_->StepRange(offset, absl::MakeConstSpan(gradient_).subspan(offset, count),
                          parameters().subspan(offset, count));
  });
  std::vector<double> results{evaluation->loss};
  if (classifies_) results.push_back(evaluation->accuracy);
  return results;
}

template <typename Function>
void Mlp::ForEachPart(const Function& function) {
  const auto all = static_cast<int64_t>(gradient_.size());
  // With l2, all of it is.
  if (!sparse_ || l2_ > 0) return function(0, all);
  const Layer& first = layers_.front();
  for (const int64_t row : touched_.indices()) function(first.kernel_offset + row * first.outputs, first.outputs);
  function(first.bias_offset, all - first.bias_offset);
}

void Mlp::ClipGradient() {
  if (max_gradient_norm_ == 0) return;
  double squares = 0;
  ForEachPart([&](int64_t offset, int64_t count) {
    for (int64_t i = offset; i < offset + count; ++i) squares += static_cast<double>(gradient_[i]) * gradient_[i];
  });
  const double norm = std::sqrt(squares);
  // Not what is infinite or NaN: the loss will tell.
  if (!(norm > max_gradient_norm_ && std::isfinite(norm))) return;
  const auto factor = static_cast<float>(max_gradient_norm_ / norm);
  ForEachPart([&](int64_t offset, int64_t count) {
    for (int64_t i = offset; i < offset + count; ++i) gradient_[i] *= factor;
  });
}

}  // namespace paramd
