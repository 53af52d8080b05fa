// DynSGD: Jiang, Cui, Zhang, Yu, "Heterogeneity-aware Distributed Parameter Servers", SIGMOD 2017.
//
//   worker  δ = W − W₁ at the end of a window; then W ← θ
//   server  θ += δ/(τ + 1)
//
// τ is the commit's staleness. Invariant: a fresh commit (τ = 0) is applied as it is, a stale one never weighs more.
#include <Eigen/Core>

#include "algorithms/algorithm.h"
#include "algorithms/kernel.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

PARAMD_KERNEL void AddQuotient(const float* commit, float divisor, float* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] += commit[i] / divisor;
}

class Server : public ServerHalf {
 public:
  void Merge(const CommitInfo& commit, const MergePiece& p) const override {
    AddQuotient(p.commit.data(), static_cast<float>(commit.staleness + 1), p.sum.data(), p.sum.size());
  }
};

class Worker : public WorkerHalf {
 public:
  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    const auto n = static_cast<Eigen::Index>(commit.size());
    Array(commit.data(), n) = ConstArray(parameters.data(), n) - ConstArray(pulled.data(), n);
  }
};

REGISTER_ALGORITHM({.name = "dynsgd",
                    .description = "adds what each worker learned, the less the staler it is",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.3,
                    .make_server = [](const Hyperparameters&) { return std::make_unique<Server>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
