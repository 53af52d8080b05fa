// Server momentum: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
// Classification", 2019 (arXiv 1909.06335), where it is FedAvgM; here for windows of minibatches.
//
//   worker  δ = (W − W₁)/λ at the end of a window; then W ← θ
//   server  v ← μv + mean of the round's δ; θ += v
//
// v is a vector of the center's shape that the center keeps beside the parameters. Invariants: with μ = 0 and rounds of
// one commit it is adag; a constant δ ends up applied 1/(1 − μ) times.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace {

class Server : public paramd::ServerHalf {
 public:
  explicit Server(double momentum) : momentum_(static_cast<float>(momentum)) {}

  int state_vectors() const override { return 1; }

  void Merge(const paramd::CommitInfo&, const paramd::MergePiece& p) const override {
    for (size_t i = 0; i < p.sum.size(); ++i) p.sum[i] += p.commit[i];
  }

  void Finish(const paramd::RoundInfo& round, const paramd::FinishPiece& p) const override {
    const absl::Span<float> v = p.state[0];
    for (size_t i = 0; i < p.next.size(); ++i) {
      v[i] = momentum_ * v[i] + p.sum[i] / static_cast<float>(round.commits);
      p.next[i] = p.center[i] + v[i];
    }
  }

 private:
  const float momentum_;
};

class Worker : public paramd::WorkerHalf {
 public:
  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    for (size_t i = 0; i < commit.size(); ++i) {
      commit[i] = (parameters[i] - pulled[i]) / static_cast<float>(minibatches);
    }
  }
};

REGISTER_ALGORITHM({.name = "server_momentum",
                    .description = "adag with momentum on the server",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.1,
                    .hyperparameters = {{.name = "momentum",
                                         .default_value = 0.9,
                                         .min = 0,
                                         .max = 0.9999,
                                         .description = "share of the last round's step that is taken again"}},
                    .make_server =
                        [](const paramd::Hyperparameters& h) { return std::make_unique<Server>(h.at("momentum")); },
                    .make_worker = [](const paramd::Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
