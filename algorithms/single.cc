// No server: one worker trains alone. The baseline that every other algorithm is measured against.
//
//   worker  never exchanges
//   server  none
//
// Invariant: training is that of the model's own optimizer, bit for bit.
#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

class Worker : public WorkerHalf {
 public:
  ExchangePoint exchange_point() const override { return ExchangePoint::kNever; }
  bool commits_parameters() const override { return true; }
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

REGISTER_ALGORITHM({.name = "single",
                    .description = "trains alone, without a server: the baseline",
                    .default_communication_window = 10,
                    .default_learning_rate = 0.1,
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<Worker>(); }});

}  // namespace
}  // namespace paramd
