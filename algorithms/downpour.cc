// DOWNPOUR: Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012.
//
//   worker  δ = W − W₁ at the end of a window; then W ← θ
//   server  θ += δ
//
// Invariant: the center is its initial value plus the sum of all applied δ.
#include <Eigen/Core>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

// A server half adds all commits to the center by default.
class Server : public ServerHalf {};

class Worker : public WorkerHalf {
 public:
  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    const auto n = static_cast<Eigen::Index>(commit.size());
    Array(commit.data(), n) = ConstArray(parameters.data(), n) - ConstArray(pulled.data(), n);
  }
};

REGISTER_ALGORITHM({.name = "downpour",
                    .description = "adds what each worker learned in its window",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.1,
                    .make_server = [](const Hyperparameters&) { return std::make_unique<Server>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
