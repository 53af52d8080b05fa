// Asynchronous elastic averaging: Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015
// (arXiv 1412.6651), algorithm 1.
//
//   worker  sends W at the end of a window, receives θ as it was; W −= α(W − θ)
//   server  θ += α(W − θ), in the same atomic exchange
//
// α = ρ·η, the product of the hyperparameters `rho` and `learning_rate`. Invariants: both halves move by the same
// number, so θ + W stays what it was; with 0 < α < 1 neither oversteps the other.
#include <Eigen/Core>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "algorithms/algorithm.h"
#include "algorithms/kernel.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

PARAMD_KERNEL void AddPull(float alpha, const float* commit, const float* center, float* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] += alpha * (commit[i] - center[i]);
}

class Server : public ServerHalf {
 public:
  explicit Server(float alpha) : alpha_(alpha) {}

  bool answers_before_commit() const override { return true; }

  void Merge(const CommitInfo&, const MergePiece& p) const override {
    AddPull(alpha_, p.commit.data(), p.center.data(), p.sum.data(), p.sum.size());
  }

 private:
  const float alpha_;
};

class Worker : public WorkerHalf {
 public:
  explicit Worker(float alpha) : alpha_(alpha) {}

  bool commits_parameters() const override { return true; }

  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> /*pulled*/,
                  absl::Span<float> commit) override {
    std::copy(parameters.begin(), parameters.end(), commit.begin());
  }

  void Absorb(absl::Span<const float> center, absl::Span<float> parameters) override {
    const auto n = static_cast<Eigen::Index>(parameters.size());
    Array w(parameters.data(), n);
    w -= alpha_ * (w - ConstArray(center.data(), n));
  }

 private:
  const float alpha_;
};

// As both halves compute with it.
float Alpha(const Hyperparameters& h) { return static_cast<float>(h.at("rho") * h.at("learning_rate")); }

absl::Status Validate(const Hyperparameters& h) {
  if (Alpha(h) < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rho = ", h.at("rho"),
                                                 " times learning_rate = ", h.at("learning_rate"), " is ", Alpha(h),
                                                 ", but a worker and the center may move at most all the way to one "
                                                 "another: lower one of the two until their product is below 1"));
}

REGISTER_ALGORITHM({.name = "aeasgd",
                    .description = "elastic averaging: worker and center pull each other closer",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.5,
                    .hyperparameters = {{.name = "rho",
                                         .default_value = 0.4,
                                         .min = 1e-12,
                                         .max = 1e12,
                                         .description = "elastic force; alpha = rho * learning_rate must be < 1"}},
                    .validate = Validate,
                    .make_server = [](const Hyperparameters& h) { return std::make_unique<Server>(Alpha(h)); },
                    .make_worker = [](const Hyperparameters& h) { return std::make_unique<Worker>(Alpha(h)); }});

}  // namespace
}  // namespace paramd
