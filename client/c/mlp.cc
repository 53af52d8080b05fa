#include "client/mlp/mlp.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/c/call.h"
#include "client/c/handles.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

namespace {

constexpr const char* kMetricNames[] = {"accuracy"};

paramd::Mlp* NetworkOf(void* context) { return static_cast<paramd_mlp*>(context)->mlp.get(); }

paramd_code TrainOnBatch(void* context, const paramd_batch* batch, double* results, char* message,
                         size_t message_size) {
  const paramd_code code = Guard([&] {
    if (auto status = CheckGiven({{context, "context"}, {batch, "batch"}, {results, "results"}}); !status.ok()) {
      return status;
    }
    paramd::Batch& copy = static_cast<paramd_mlp*>(context)->batch;
    if (auto status = paramd::c::CopyFloats(*batch, &copy); !status.ok()) return status;
    auto trained = NetworkOf(context)->TrainOnBatch(copy);
    if (!trained.ok()) return trained.status();
    std::copy(trained->begin(), trained->end(), results);
    return absl::OkStatus();
  });
  if (code != PARAMD_OK && message != nullptr && message_size > 0) {
    std::strncpy(message, paramd_error_message(), message_size - 1);
    message[message_size - 1] = '\0';
  }
  return code;
}

double LearningRate(void* context) { return NetworkOf(context)->learning_rate(); }
void SetLearningRate(void* context, double learning_rate) { NetworkOf(context)->set_learning_rate(learning_rate); }

}  // namespace

namespace paramd::c {

Mlp* FindMlp(const paramd_trainable& trainable) {
  return trainable.train_on_batch == TrainOnBatch ? NetworkOf(trainable.context) : nullptr;
}

}  // namespace paramd::c

paramd_code paramd_mlp_new(const int64_t* layers, size_t layer_count, const char* optimizer, double learning_rate,
                           uint64_t seed, paramd_mlp** mlp) {
  const paramd_mlp_options options{.struct_size = sizeof(options),
                                   .layers = layers,
                                   .layer_count = layer_count,
                                   .optimizer = optimizer,
                                   .learning_rate = learning_rate,
                                   .seed = seed};
  return paramd_mlp_new_with(&options, mlp);
}

paramd_code paramd_mlp_new_with(const paramd_mlp_options* options, paramd_mlp** mlp) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {mlp, "mlp"}}); !status.ok()) return status;
    if (options->struct_size < sizeof(paramd_mlp_options)) {
      return absl::InvalidArgumentError(absl::StrCat("paramd_mlp_options.struct_size is ", options->struct_size,
                                                     "; set it to sizeof(paramd_mlp_options)"));
    }
    if (auto status = CheckGiven({{options->layers, "layers"}, {options->optimizer, "optimizer"}}); !status.ok()) {
      return status;
    }
    const std::string_view loss = options->loss == nullptr ? "softmax" : options->loss;
    if (loss != "softmax" && loss != "squared") {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown loss '", options->loss, "'; there are softmax, for classes, and squared, for numbers"));
    }
    auto network =
        paramd::Mlp::Create({.layers = std::vector<int64_t>(options->layers, options->layers + options->layer_count),
                             .seed = options->seed,
                             .optimizer = {.name = options->optimizer, .learning_rate = options->learning_rate},
                             .loss = loss == "softmax" ? paramd::Loss::kSoftmax : paramd::Loss::kSquared,
                             .l2 = options->l2,
                             .max_gradient_norm = options->max_gradient_norm});
    if (!network.ok()) return network.status();
    auto made = std::make_unique<paramd_mlp>();
    made->mlp = *std::move(network);
    *mlp = made.release();
    return absl::OkStatus();
  });
}

void paramd_mlp_free(paramd_mlp* mlp) { delete mlp; }

paramd_code paramd_mlp_describe(const paramd_mlp* mlp, paramd_model_spec* spec) {
  return Guard([&] {
    if (auto status = CheckGiven({{mlp, "mlp"}, {spec, "spec"}}); !status.ok()) return status;
    for (const paramd::MlpTensor& tensor : mlp->mlp->tensors()) {
      paramd::v1::Tensor* added = spec->spec.add_tensors();
      added->set_name(tensor.name);
      added->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
    return absl::OkStatus();
  });
}

paramd_code paramd_mlp_trainable(paramd_mlp* mlp, paramd_trainable* trainable) {
  return Guard([&] {
    if (auto status = CheckGiven({{mlp, "mlp"}, {trainable, "trainable"}}); !status.ok()) return status;
    if (trainable->struct_size < sizeof(paramd_trainable)) {
      return absl::InvalidArgumentError(absl::StrCat("paramd_trainable.struct_size is ", trainable->struct_size,
                                                     "; set it to sizeof(paramd_trainable)"));
    }
    const absl::Span<float> parameters = mlp->mlp->parameters();
    *trainable = {.struct_size = trainable->struct_size,
                  .context = mlp,
                  .parameters = parameters.data(),
                  .floats = parameters.size(),
                  .metrics = mlp->mlp->metric_names().size(),
                  .metric_names = kMetricNames,
                  .train_on_batch = TrainOnBatch,
                  .learning_rate = LearningRate,
                  .set_learning_rate = SetLearningRate};
    return absl::OkStatus();
  });
}

float* paramd_mlp_parameters(paramd_mlp* mlp, size_t* floats) {
  if (mlp == nullptr) return nullptr;
  const absl::Span<float> parameters = mlp->mlp->parameters();
  if (floats != nullptr) *floats = parameters.size();
  return parameters.data();
}

paramd_code paramd_mlp_predict(paramd_mlp* mlp, const float* features, int64_t rows, float* probabilities) {
  return Guard([&] {
    if (auto status = CheckGiven({{mlp, "mlp"}, {features, "features"}, {probabilities, "probabilities"}});
        !status.ok()) {
      return status;
    }
    paramd::Mlp& network = *mlp->mlp;
    if (rows < 0 || rows > std::numeric_limits<int64_t>::max() / std::max(network.inputs(), network.classes())) {
      return absl::InvalidArgumentError(absl::StrCat("rows is ", rows, ", which can't be"));
    }
    return network.Predict(absl::MakeConstSpan(features, rows * network.inputs()),
                           absl::MakeSpan(probabilities, rows * network.classes()));
  });
}
