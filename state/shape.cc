#include "state/shape.h"

#include "absl/strings/str_join.h"

namespace paramd {

std::optional<int64_t> ElementCount(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

std::string ShapeText(absl::Span<const int64_t> shape) { return shape.empty() ? "scalar" : absl::StrJoin(shape, "x"); }

}  // namespace paramd
