#include "client/mlp/optimizer.h"

#include <Eigen/Core>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

using Vector = Eigen::ArrayXf;
using View = Eigen::Map<Eigen::ArrayXf>;
using ConstView = Eigen::Map<const Eigen::ArrayXf>;

View Viewed(absl::Span<float> span) { return View(span.data(), static_cast<Eigen::Index>(span.size())); }
ConstView Viewed(absl::Span<const float> span) {
  return ConstView(span.data(), static_cast<Eigen::Index>(span.size()));
}

class Sgd : public Optimizer {
 public:
  void StepRange(int64_t, absl::Span<const float> gradient, absl::Span<float> parameters) override {
    Viewed(parameters) -= static_cast<float>(learning_rate()) * Viewed(gradient);
  }
};

class NesterovMomentum : public Optimizer {
 public:
  NesterovMomentum(double momentum, int64_t parameters)
      : momentum_(static_cast<float>(momentum)), velocity_(Vector::Zero(parameters)) {}

  void StepRange(int64_t offset, absl::Span<const float> gradient, absl::Span<float> parameters) override {
    const float rate = static_cast<float>(learning_rate());
    auto velocity = velocity_.segment(offset, static_cast<Eigen::Index>(gradient.size()));
    velocity = momentum_ * velocity - rate * Viewed(gradient);
    Viewed(parameters) += momentum_ * velocity - rate * Viewed(gradient);
  }

 private:
  const float momentum_;
  Vector velocity_;
};

class Adam : public Optimizer {
 public:
  explicit Adam(int64_t parameters) : mean_(Vector::Zero(parameters)), square_(Vector::Zero(parameters)) {}

  void BeginStep() override {
    mean_decay_ *= kBeta1;
    square_decay_ *= kBeta2;
  }

  void StepRange(int64_t offset, absl::Span<const float> gradient, absl::Span<float> parameters) override {
    const auto g = Viewed(gradient);
    auto mean = mean_.segment(offset, g.size());
    auto square = square_.segment(offset, g.size());
    mean = static_cast<float>(kBeta1) * mean + static_cast<float>(1 - kBeta1) * g;
    square = static_cast<float>(kBeta2) * square + static_cast<float>(1 - kBeta2) * g.square();
    const float rate = static_cast<float>(learning_rate() / (1 - mean_decay_));
    const float correction = static_cast<float>(1 / (1 - square_decay_));
    Viewed(parameters) -= rate * mean / ((correction * square).sqrt() + kEpsilon);
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr float kEpsilon = 1e-8f;

  double mean_decay_ = 1;    // β₁ᵗ
  double square_decay_ = 1;  // β₂ᵗ
  Vector mean_;
  Vector square_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerOptions& options, int64_t parameters) {
  if (!std::isfinite(options.learning_rate) || options.learning_rate <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate ", options.learning_rate, " is not a positive number; try 0.1, or 0.001 for adam"));
  }
  std::unique_ptr<Optimizer> optimizer;
  if (options.name == "sgd") {
    optimizer = std::make_unique<Sgd>();
  } else if (options.name == "momentum") {
    // As the float that it computes with.
    if (!(options.momentum >= 0 && static_cast<float>(options.momentum) < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("momentum ", options.momentum, " is outside [0, 1); 0.9 is usual"));
    }
    optimizer = std::make_unique<NesterovMomentum>(options.momentum, parameters);
  } else if (options.name == "adam") {
    optimizer = std::make_unique<Adam>(parameters);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown optimizer '", options.name, "'; there are sgd, momentum and adam"));
  }
  optimizer->set_learning_rate(options.learning_rate);
  return optimizer;
}

}  // namespace paramd
