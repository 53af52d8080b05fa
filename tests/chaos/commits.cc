#include "tests/chaos/commits.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace paramd::chaos {

float BodyValue(size_t commit) {
  constexpr float kValues[] = {1, -2, 3, -1, 2, -3};
  return kValues[(commit * 0x9E3779B97F4A7C15u >> 32) % 6];
}

std::string Check(const Layout& layout, absl::Span<const float> center, int64_t version, bool rounded) {
  const bool sums = layout.kind == Kind::kSums;
  double sum = 0;
  int64_t commits = 0;
  for (size_t i = 0; i < layout.cells; ++i) {
    if (center[i] == 0) continue;
    if (sums ? center[i] != 1 : !(center[i] > 0 && center[i] <= 1)) {
      return absl::StrCat("commit ", i, " is in the center ", center[i], " times");
    }
    sum += BodyValue(i);
    ++commits;
  }
  // What is merged twice counts twice.
  if (!rounded && commits != version) {
    return absl::StrCat("the center has ", commits, " commits, and its version is ", version);
  }
  const absl::Span<const float> body = center.subspan(layout.cells);
  const double tolerance = sums ? 0 : 1e-4 * std::max(1.0, std::abs(double{body[0]}));
  for (size_t i = 1; i < body.size(); ++i) {
    if (!(std::abs(double{body[i]} - body[0]) <= tolerance)) {
      return absl::StrCat("float ", i, " of the body is ", body[i], ", its first one ", body[0]);
    }
  }
  if (sums && !rounded && body[0] != sum) {
    return absl::StrCat("the body is ", body[0], ", and its commits add up to ", sum);
  }
  return "";
}

int64_t NowNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace paramd::chaos
