#include "algorithms/algorithm.h"

#include <algorithm>

namespace paramd {

void ServerHalf::Finish(int64_t /*commits*/, const FinishPiece& piece) const {
  for (size_t i = 0; i < piece.next.size(); ++i) piece.next[i] = piece.center[i] + piece.sum[i];
}

void WorkerHalf::Absorb(absl::Span<const float> center, absl::Span<float> parameters) {
  std::copy(center.begin(), center.end(), parameters.begin());
}

}  // namespace paramd
