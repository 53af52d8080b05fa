// Minibatches on both sides of the C ABI.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/c/handles.h"

namespace paramd::c {
namespace {

paramd_type TypeOf(const std::vector<float>&) { return PARAMD_FLOAT32; }
paramd_type TypeOf(const std::vector<double>&) { return PARAMD_FLOAT64; }
paramd_type TypeOf(const std::vector<int32_t>&) { return PARAMD_INT32; }
paramd_type TypeOf(const std::vector<int64_t>&) { return PARAMD_INT64; }
paramd_type TypeOf(const std::vector<uint8_t>&) { return PARAMD_UINT8; }

// Keeps the memory of values that have the type already.
template <typename T>
void Assign(const paramd_input& input, Input* to) {
  if (!std::holds_alternative<std::vector<T>>(to->values)) to->values = std::vector<T>();
  const T* const values = static_cast<const T*>(input.values);
  std::get<std::vector<T>>(to->values).assign(values, values + input.count);
}

absl::Status CopyInput(size_t index, const paramd_input& input, Input* to) {
  if ((input.values == nullptr && input.count > 0) || (input.shape == nullptr && input.rank > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", index, " of a batch has its values or shape at a null pointer"));
  }
  to->shape.assign(input.shape, input.shape + input.rank);
  // It may be any number, as C has it.
  int type = 0;
  static_assert(sizeof(type) == sizeof(input.type));
  std::memcpy(&type, &input.type, sizeof(type));
  switch (type) {
    case PARAMD_FLOAT32:
      Assign<float>(input, to);
      return absl::OkStatus();
    case PARAMD_FLOAT64:
      Assign<double>(input, to);
      return absl::OkStatus();
    case PARAMD_INT32:
      Assign<int32_t>(input, to);
      return absl::OkStatus();
    case PARAMD_INT64:
      Assign<int64_t>(input, to);
      return absl::OkStatus();
    case PARAMD_UINT8:
      Assign<uint8_t>(input, to);
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("input ", index, " of a batch has type ", type, ", which is none of paramd_type"));
}

}  // namespace

paramd_batch View(const Batch& batch, std::vector<paramd_input>* inputs) {
  inputs->clear();
  for (const Input& input : batch.inputs) {
    inputs->push_back({.shape = input.shape.data(), .rank = input.shape.size()});
    std::visit(
        [&](const auto& values) {
          inputs->back().type = TypeOf(values);
          inputs->back().values = values.data();
          inputs->back().count = values.size();
        },
        input.values);
  }
  return {.rows = batch.rows,
          .features = batch.features.data(),
          .feature_floats = batch.features.size(),
          .labels = batch.labels.data(),
          .label_floats = batch.labels.size(),
          .inputs = inputs->data(),
          .input_count = inputs->size()};
}

absl::Status CopyFloats(const paramd_batch& view, Batch* batch) {
  if (view.rows <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch has ", view.rows, " rows, but must have at least 1; an epoch ends with *more = 0"));
  }
  // A bound keeps the count of all rows within its range.
  constexpr int64_t kMaxRows = int64_t{1} << 40;
  if (view.rows > kMaxRows || (view.feature_floats > 0 && static_cast<size_t>(view.rows) > view.feature_floats)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch has ", view.rows, " rows, but only ", view.feature_floats, " features"));
  }
  if ((view.features == nullptr && view.feature_floats > 0) || (view.labels == nullptr && view.label_floats > 0)) {
    return absl::InvalidArgumentError("a batch has features or labels at a null pointer");
  }
  batch->rows = view.rows;
  batch->features.assign(view.features, view.features + view.feature_floats);
  batch->labels.assign(view.labels, view.labels + view.label_floats);
  return absl::OkStatus();
}

absl::Status Copy(const paramd_batch& view, Batch* batch) {
  if (absl::Status status = CopyFloats(view, batch); !status.ok()) return status;
  if (view.inputs == nullptr && view.input_count > 0) {
    return absl::InvalidArgumentError("a batch has inputs at a null pointer");
  }
  batch->inputs.resize(view.input_count);
  for (size_t i = 0; i < view.input_count; ++i) {
    if (absl::Status status = CopyInput(i, view.inputs[i], &batch->inputs[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace paramd::c
