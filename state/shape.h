// Shapes of tensors, as numbers and as text.
#ifndef PARAMD_STATE_SHAPE_H_
#define PARAMD_STATE_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace paramd {

// The number of elements; 1 for a scalar (an empty shape). Nothing if a size is negative or the product overflows.
std::optional<int64_t> ElementCount(absl::Span<const int64_t> shape);

// "784x128", or "scalar".
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace paramd

#endif  // PARAMD_STATE_SHAPE_H_
