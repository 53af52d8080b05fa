// A plugin whose first algorithm is fine and whose second takes a name that is taken: neither is to be registered.
#include <memory>

#include "algorithms/registry.h"

namespace {

class Worker : public paramd::WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

paramd::Algorithm Named(const char* name) {
  return {.name = name, .make_worker = [](const paramd::Hyperparameters&) { return std::make_unique<Worker>(); }};
}

const paramd::registry_internal::Registration kFine(
    paramd::kAlgorithmInterfaceVersion, +[] { return Named("beside_a_clash"); });
const paramd::registry_internal::Registration kClash(
    paramd::kAlgorithmInterfaceVersion, +[] { return Named("downpour"); });

}  // namespace
