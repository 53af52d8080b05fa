#include "algorithms/algorithm.h"

#include <algorithm>

#include "algorithms/kernel.h"

namespace paramd {
namespace {

PARAMD_KERNEL void Add(const float* a, const float* b, float* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

}  // namespace

void ServerHalf::Merge(const CommitInfo& /*commit*/, const MergePiece& piece) const {
  Add(piece.sum.data(), piece.commit.data(), piece.sum.data(), piece.sum.size());
}

void ServerHalf::Finish(const RoundInfo& /*round*/, const FinishPiece& piece) const {
  Add(piece.center.data(), piece.sum.data(), piece.next.data(), piece.next.size());
}

void WorkerHalf::Absorb(absl::Span<const float> center, absl::Span<float> parameters) {
  std::copy(center.begin(), center.end(), parameters.begin());
}

}  // namespace paramd
