#include "client/mlp/sparse_rows.h"

#include <Eigen/Core>
#include <algorithm>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// to += factor × from
void Add(float factor, const float* from, int64_t count, float* to) {
  Eigen::Map<Eigen::ArrayXf>(to, count) += factor * Eigen::Map<const Eigen::ArrayXf>(from, count);
}

}  // namespace

absl::StatusOr<SparseRows> SparseRowsOf(const Batch& batch, int64_t columns) {
  if (batch.inputs.size() != 3 || !std::holds_alternative<std::vector<int32_t>>(batch.inputs[0].values) ||
      !std::holds_alternative<std::vector<int32_t>>(batch.inputs[1].values) ||
      !std::holds_alternative<std::vector<float>>(batch.inputs[2].values)) {
    return absl::InvalidArgumentError(
        "a batch without features has inputs that are no sparse rows: give the rows' starts and the columns, both "
        "int32, and the values, float");
  }
  const SparseRows rows{.starts = std::get<std::vector<int32_t>>(batch.inputs[0].values),
                        .columns = std::get<std::vector<int32_t>>(batch.inputs[1].values),
                        .values = std::get<std::vector<float>>(batch.inputs[2].values)};
  const auto count = static_cast<int64_t>(rows.values.size());
  if (rows.rows() != batch.rows || rows.columns.size() != rows.values.size() || rows.starts.front() != 0 ||
      rows.starts.back() != count || !std::is_sorted(rows.starts.begin(), rows.starts.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.rows, " sparse rows has ", rows.starts.size(), " starts, ",
                     rows.columns.size(), " columns and ", count,
                     " values: starts must ascend from 0 to the number of values, one more than there are rows"));
  }
  for (const int32_t column : rows.columns) {
    if (column < 0 || column >= columns) {
      return absl::InvalidArgumentError(absl::StrCat("a sparse row has column ", column, ", but this network takes ",
                                                     columns, " features: check the size of the first layer"));
    }
  }
  return rows;
}

void Multiply(const SparseRows& rows, const float* right, const float* bias, int64_t outputs, float* result) {
  for (int64_t i = 0; i < rows.rows(); ++i) {
    float* const row = result + i * outputs;
    std::copy_n(bias, outputs, row);
    for (int32_t k = rows.starts[i]; k < rows.starts[i + 1]; ++k) {
      Add(rows.values[k], right + rows.columns[k] * outputs, outputs, row);
    }
  }
}

void TouchedRows::MultiplyTransposed(const SparseRows& rows, const float* right, int64_t outputs, float* result) {
  indices_.clear();
  if (++call_ == 0) {
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  for (int64_t i = 0; i < rows.rows(); ++i) {
    for (int32_t k = rows.starts[i]; k < rows.starts[i + 1]; ++k) {
      const int32_t column = rows.columns[k];
      float* const row = result + column * outputs;
      if (seen_[column] != call_) {
        seen_[column] = call_;
        indices_.push_back(column);
        std::fill_n(row, outputs, 0.0f);
      }
      Add(rows.values[k], right + i * outputs, outputs, row);
    }
  }
}

}  // namespace paramd
