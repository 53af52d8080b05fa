// Adaptive ADAG: what Hermans, "On Scalable Deep Learning and Parallelizing Gradient Descent", master thesis,
// Maastricht 2017, calls ADAG.
//
//   worker  δ = (W − W₁)/λ at the end of a window; then W ← θ
//   server  θ += δ / (1 + (θ − θ_base)²/η), elementwise
//
// θ_base is the center that the worker last pulled: a parameter that others have moved far since then takes less of the
// commit. The hyperparameter `eta` is η, the square of the distance at which half is taken; by default it is the
// learning rate, as in the thesis.
// Invariants: a fresh commit is applied as it is; no element is ever amplified, and none changes its sign.
#include <Eigen/Core>
#include <algorithm>
#include <limits>

#include "algorithms/algorithm.h"
#include "algorithms/kernel.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

PARAMD_KERNEL void AddDamped(const float* commit, const float* center, const float* base, float inverse_eta, float* sum,
                             size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float moved = center[i] - base[i];
    sum[i] += commit[i] / (1 + moved * moved * inverse_eta);
  }
}

class Server : public ServerHalf {
 public:
  // A finite 1/η keeps 0²/η zero, however small η is.
  explicit Server(double eta)
      : inverse_eta_(static_cast<float>(std::min<double>(1 / eta, std::numeric_limits<float>::max()))) {}

  bool needs_base() const override { return true; }

  void Merge(const CommitInfo&, const MergePiece& p) const override {
    AddDamped(p.commit.data(), p.center.data(), p.base.data(), inverse_eta_, p.sum.data(), p.sum.size());
  }

 private:
  const float inverse_eta_;
};

class Worker : public WorkerHalf {
 public:
  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    const auto n = static_cast<Eigen::Index>(commit.size());
    Array(commit.data(), n) =
        (ConstArray(parameters.data(), n) - ConstArray(pulled.data(), n)) / static_cast<float>(minibatches);
  }
};

double Eta(const Hyperparameters& h) { return h.at("eta") > 0 ? h.at("eta") : h.at("learning_rate"); }

REGISTER_ALGORITHM({.name = "adaptive_adag",
                    .description = "adag that takes less where the center has moved since the worker's pull",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.5,
                    .hyperparameters = {{.name = "eta",
                                         .default_value = 0,
                                         .min = 0,
                                         .max = 1e12,
                                         .description = "smaller damps more; 0: learning_rate"}},
                    .make_server = [](const Hyperparameters& h) { return std::make_unique<Server>(Eta(h)); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
