// Shapes of tensors, as numbers and as text.
#ifndef PARAMD_CLIENT_CLI_SHAPE_H_
#define PARAMD_CLIENT_CLI_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace paramd::cli {

// The number of elements; 1 for a scalar (an empty shape). Nothing if a size is negative or the product overflows.
std::optional<int64_t> ElementCount(absl::Span<const int64_t> shape);

// "784x128", or "scalar".
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_SHAPE_H_
