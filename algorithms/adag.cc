// ADAG, the window-normalised accumulation of Hermans, "On Scalable Deep Learning and Parallelizing Gradient Descent",
// master thesis, Maastricht 2017, where it is called AGN.
//
//   worker  δ = (W − W₁)/λ at the end of a window; then W ← θ
//   server  θ += δ
//
// λ is the number of minibatches really trained, so that a partial window weighs as much a commit as a full one.
// Invariant: the size of a commit does not grow with the window.
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
  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    const auto n = static_cast<Eigen::Index>(commit.size());
    Array(commit.data(), n) =
        (ConstArray(parameters.data(), n) - ConstArray(pulled.data(), n)) / static_cast<float>(minibatches);
  }
};

REGISTER_ALGORITHM({.name = "adag",
                    .aliases = {"agn"},
                    .description = "adds what each worker learned, divided by the minibatches of its window",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.5,
                    .make_server = [](const Hyperparameters&) { return std::make_unique<Server>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
