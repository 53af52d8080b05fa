// Model averaging: McDonald, Hall, Mann, "Distributed Training Strategies for the Structured Perceptron", NAACL 2010
// (iterative parameter mixing).
//
//   worker  sends W at the end of each epoch; then W ← θ
//   server  θ = mean of the round's Wᵢ
//
// Kept as the sum of Wᵢ − θ, which is small and so loses fewer bits than the sum of the Wᵢ.
// Invariant: with n equal Wᵢ, θ becomes that W up to rounding. Meant for consistency `sync`; with another, a round is
// one commit and the center is whatever worker came last.
#include <Eigen/Core>
#include <algorithm>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

class Server : public ServerHalf {
 public:
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    const auto n = static_cast<Eigen::Index>(p.sum.size());
    Array(p.sum.data(), n) += ConstArray(p.commit.data(), n) - ConstArray(p.center.data(), n);
  }

  void Finish(const RoundInfo& round, const FinishPiece& p) const override {
    const auto n = static_cast<Eigen::Index>(p.next.size());
    Array(p.next.data(), n) =
        ConstArray(p.center.data(), n) + ConstArray(p.sum.data(), n) / static_cast<float>(round.commits);
  }
};

class Worker : public WorkerHalf {
 public:
  ExchangePoint exchange_point() const override { return ExchangePoint::kEpoch; }
  bool commits_parameters() const override { return true; }

  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> /*pulled*/,
                  absl::Span<float> commit) override {
    std::copy(parameters.begin(), parameters.end(), commit.begin());
  }
};

REGISTER_ALGORITHM({.name = "averaging",
                    .description = "averages the workers' parameters after every epoch",
                    .default_consistency = "sync",
                    .default_communication_window = 10,
                    .default_learning_rate = 0.4,
                    .make_server = [](const Hyperparameters&) { return std::make_unique<Server>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
