// Rows of which few features are not 0, as the first layer's input.
#ifndef PARAMD_CLIENT_MLP_SPARSE_ROWS_H_
#define PARAMD_CLIENT_MLP_SPARSE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/trainable.h"

namespace paramd {

// Row i has values[k] in column columns[k], for k from starts[i] up to starts[i + 1].
struct SparseRows {
  absl::Span<const int32_t> starts;
  absl::Span<const int32_t> columns;
  absl::Span<const float> values;

  int64_t rows() const { return static_cast<int64_t>(starts.size()) - 1; }
};

// Whether a batch has its features in its inputs.
inline bool HasSparseRows(const Batch& batch) { return batch.features.empty() && !batch.inputs.empty(); }

// Of a batch whose inputs are starts and columns, int32, and values, float. INVALID_ARGUMENT unless they are rows of
// `columns` columns. The rows refer to the batch.
absl::StatusOr<SparseRows> SparseRowsOf(const Batch& batch, int64_t columns);

// rows · right + bias. `right`, [columns, outputs], and the result, [rows, outputs], are row-major.
void Multiply(const SparseRows& rows, const float* right, const float* bias, int64_t outputs, float* result);

// The rows of a matrix that are not 0: those of the columns that sparse rows have. Thread-compatible.
class TouchedRows {
 public:
  explicit TouchedRows(int64_t rows) : seen_(rows) {}

  int64_t rows() const { return static_cast<int64_t>(seen_.size()); }

  // rowsᵀ · right into `result`, [columns, outputs], of which only the rows of indices() are written. `right` is
  // [rows, outputs].
  void MultiplyTransposed(const SparseRows& rows, const float* right, int64_t outputs, float* result);

  // In the order in which they were first seen.
  absl::Span<const int32_t> indices() const { return indices_; }

 private:
  std::vector<uint32_t> seen_;  // in which call a row was last seen
  uint32_t call_ = 0;
  std::vector<int32_t> indices_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_MLP_SPARSE_ROWS_H_
