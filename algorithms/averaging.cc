// Model averaging: McDonald, Hall, Mann, "Distributed Training Strategies for the Structured Perceptron", NAACL 2010
// (iterative parameter mixing).
//
//   worker  sends W at the end of each epoch; then W ← θ
//   server  θ = mean of the round's Wᵢ
//
// Kept as the sum of Wᵢ − θ, which is small and so loses fewer bits than the sum of the Wᵢ.
// Invariant: with n equal Wᵢ, θ becomes that W up to rounding. Meant for consistency `sync`; with another, a round is
// one commit and the center is whatever worker came last.
#include <algorithm>

#include "algorithms/algorithm.h"
#include "algorithms/kernel.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

PARAMD_KERNEL void AddDifference(const float* commit, const float* center, float* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] += commit[i] - center[i];
}

PARAMD_KERNEL void AddMean(const float* center, const float* sum, float commits, float* next, size_t n) {
  for (size_t i = 0; i < n; ++i) next[i] = center[i] + sum[i] / commits;
}

class Server : public ServerHalf {
 public:
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    AddDifference(p.commit.data(), p.center.data(), p.sum.data(), p.sum.size());
  }

  void Finish(const RoundInfo& round, const FinishPiece& p) const override {
    AddMean(p.center.data(), p.sum.data(), static_cast<float>(round.commits), p.next.data(), p.next.size());
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
