// Elastic averaging with momentum: Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015
// (arXiv 1412.6651), algorithm 2.
//
//   worker  every local step is Nesterov's: v ← μv + step taken at W + μv; W ← W + v.
//           At the end of a window as aeasgd: sends W, receives θ as it was; W −= α(W − θ); v stays
//   server  as aeasgd: θ += α(W − θ), in the same atomic exchange
//
// Invariants: those of aeasgd; with μ = 0 it is aeasgd.
#include <Eigen/Core>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;

const Algorithm& Elastic() { return *FindAlgorithm("aeasgd").value(); }

class Worker : public WorkerHalf {
 public:
  Worker(float momentum, std::unique_ptr<WorkerHalf> elastic) : momentum_(momentum), elastic_(std::move(elastic)) {}

  bool commits_parameters() const override { return elastic_->commits_parameters(); }

  void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    elastic_->MakeCommit(minibatches, parameters, pulled, commit);
  }

  void Absorb(absl::Span<const float> center, absl::Span<float> parameters) override {
    elastic_->Absorb(center, parameters);
  }

  void BeforeStep(absl::Span<const absl::Span<float>> parameters) override {
    if (before_.empty()) {
      size_t floats = 0;
      for (const absl::Span<float> span : parameters) floats += span.size();
      before_.resize(floats);
      velocity_.resize(floats);
    }
    ForEachSpan(parameters, [this](Array w, Array before, Array velocity) {
      before = w;
      w += momentum_ * velocity;
    });
  }

  void AfterStep(absl::Span<const absl::Span<float>> parameters) override {
    ForEachSpan(parameters, [](Array w, Array before, Array velocity) { velocity = w - before; });
  }

 private:
  // Calls work with each span of the parameters, and what of both vectors belongs to it.
  template <typename Work>
  void ForEachSpan(absl::Span<const absl::Span<float>> parameters, const Work& work) {
    size_t begin = 0;
    for (const absl::Span<float> span : parameters) {
      const auto n = static_cast<Eigen::Index>(span.size());
      work(Array(span.data(), n), Array(before_.data() + begin, n), Array(velocity_.data() + begin, n));
      begin += span.size();
    }
  }

  const float momentum_;
  const std::unique_ptr<WorkerHalf> elastic_;
  std::vector<float> before_;    // W before the step that is under way
  std::vector<float> velocity_;  // v, zero at first
};

REGISTER_ALGORITHM({.name = "eamsgd",
                    .description = "elastic averaging with Nesterov momentum in the workers",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.05,
                    .hyperparameters = {{.name = "rho",
                                         .default_value = 4,
                                         .min = 1e-12,
                                         .max = 1e12,
                                         .description = "elastic force; alpha = rho * learning_rate must be < 1"},
                                        {.name = "momentum",
                                         .default_value = 0.9,
                                         .min = 0,
                                         .max = 0.9999,
                                         .description = "Nesterov momentum of the local steps"}},
                    .validate = [](const Hyperparameters& h) { return Elastic().validate(h); },
                    .make_server = [](const Hyperparameters& h) { return Elastic().make_server(h); },
                    .make_worker =
                        [](const Hyperparameters& h) {
                          return std::make_unique<Worker>(h.at("momentum"), Elastic().make_worker(h));
                        }});

}  // namespace
}  // namespace paramd
