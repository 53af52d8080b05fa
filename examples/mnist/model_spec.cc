#include "examples/mnist/model_spec.h"

namespace paramd {

v1::ModelSpec MakeModelSpec(const std::string& name, const Mlp& network, const std::string& algorithm,
                            const Hyperparameters& hyperparameters, const std::string& consistency) {
  v1::ModelSpec spec;
  spec.set_name(name);
  for (const MlpTensor& tensor : network.tensors()) {
    v1::Tensor* added = spec.add_tensors();
    added->set_name(tensor.name);
    added->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  spec.set_algorithm(algorithm);
  for (const auto& [key, value] : hyperparameters) {
    v1::Hyperparameter* added = spec.add_hyperparameters();
    added->set_name(key);
    added->set_value(value);
  }
  spec.set_consistency(consistency);
  return spec;
}

}  // namespace paramd
