#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("Single has no server and never exchanges") {
  const Halves halves = MakeHalves("single");
  CHECK(halves.server == nullptr);
  CHECK(halves.worker->exchange_point() == ExchangePoint::kNever);
}

TEST_CASE("Single leaves the optimizer's steps as they are") {
  const Halves halves = MakeHalves("single");
  Vector w = {1, 2};
  for (int i = 0; i < 3; ++i) {
    halves.worker->BeforeStep({absl::MakeSpan(w)});
    w[0] -= 0.25F;
    w[1] += 0.5F;
    halves.worker->AfterStep({absl::MakeSpan(w)});
  }
  CHECK(w == Vector{0.25, 3.5});  // [1, 2] + 3·[−0.25, 0.5]
}

}  // namespace
}  // namespace paramd::testing
