// The network as a model of the daemon's.
#ifndef PARAMD_EXAMPLES_MNIST_MODEL_SPEC_H_
#define PARAMD_EXAMPLES_MNIST_MODEL_SPEC_H_

#include <string>

#include "algorithms/algorithm.h"
#include "client/mlp/mlp.h"
#include "proto/paramd.pb.h"

namespace paramd {

// A spec with the network's tensors. `hyperparameters` are those that differ from the algorithm's defaults; an empty
// consistency is the algorithm's default.
v1::ModelSpec MakeModelSpec(const std::string& name, const Mlp& network, const std::string& algorithm,
                            const Hyperparameters& hyperparameters, const std::string& consistency);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_MODEL_SPEC_H_
