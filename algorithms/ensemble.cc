// Ensemble: Hansen, Salamon, "Neural Network Ensembles", IEEE PAMI 12(10), 1990. Every worker trains a center of its
// own, published as NAME/0 ... NAME/n−1; whoever uses them combines their predictions.
//
//   worker  δ = W − W₁ at the end of a window; then W ← θ
//   server  θ += δ, on the worker's own center
//
// Invariant: a center has one worker, so no commit is ever stale and the center follows W up to rounding.
#include <Eigen/Core>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

class Server : public ServerHalf {
 public:
  bool own_centers() const override { return true; }
};

class Worker : public WorkerHalf {
 public:
  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    const auto n = static_cast<Eigen::Index>(commit.size());
    Array(commit.data(), n) = ConstArray(parameters.data(), n) - ConstArray(pulled.data(), n);
  }
};

REGISTER_ALGORITHM({.name = "ensemble",
                    .description = "one center for each worker, all of them kept",
                    .default_communication_window = 10,
                    .default_learning_rate = 0.1,
                    .make_server = [](const Hyperparameters&) { return std::make_unique<Server>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
