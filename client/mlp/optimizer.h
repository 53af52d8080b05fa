// Optimizers over one flat parameter vector. Their state lives beside the parameters and is the worker's own: an
// exchange changes the parameters, never the state.
#ifndef PARAMD_CLIENT_MLP_OPTIMIZER_H_
#define PARAMD_CLIENT_MLP_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paramd {

// Thread-compatible.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step on `parameters`, in place. `gradient` is that of the loss at `parameters`; both have the length that
  // the optimizer was made for.
  void Step(absl::Span<const float> gradient, absl::Span<float> parameters) {
    BeginStep();
    StepRange(0, gradient, parameters);
  }

  // The same in parts, each of which is the whole vector's from `offset` on. What has no part stays as it is, with its
  // state: exact for sgd where the gradient is 0, while momentum and adam would still move it ("lazily").
  virtual void BeginStep() {}
  virtual void StepRange(int64_t offset, absl::Span<const float> gradient, absl::Span<float> parameters) = 0;

  // η, the learning rate.
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double learning_rate) { learning_rate_ = learning_rate; }

 private:
  double learning_rate_ = 0;
};

struct OptimizerOptions {
  // "sgd"       w ← w − η g
  // "momentum"  Nesterov's, in the form that needs the gradient at w alone: v ← μ v − η g; w ← w + μ v − η g
  // "adam"      Kingma and Ba, ICLR 2015 (arXiv 1412.6980), Algorithm 1: β₁ 0.9, β₂ 0.999, ε 1e-8
  std::string name = "sgd";
  double learning_rate = 0.1;
  double momentum = 0.9;  // μ, of "momentum" alone
};

// An optimizer for `parameters` floats, its state all zero. INVALID_ARGUMENT for an unknown name, for a learning rate
// that is not positive and finite, and for a momentum outside [0, 1).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerOptions& options, int64_t parameters);

}  // namespace paramd

#endif  // PARAMD_CLIENT_MLP_OPTIMIZER_H_
