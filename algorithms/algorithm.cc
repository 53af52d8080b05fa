#include "algorithms/algorithm.h"

#include <algorithm>

namespace paramd {

void ServerHalf::Finish(const RoundInfo& /*round*/, const FinishPiece& piece) const {
  // The system's Abseil checks every index into a span, which keeps the compiler from vectorising.
  const float* const center = piece.center.data();
  const float* const sum = piece.sum.data();
  float* const next = piece.next.data();
  for (size_t i = 0; i < piece.next.size(); ++i) next[i] = center[i] + sum[i];
}

void WorkerHalf::Absorb(absl::Span<const float> center, absl::Span<float> parameters) {
  std::copy(center.begin(), center.end(), parameters.begin());
}

}  // namespace paramd
