#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("Easgd is synchronous unless told otherwise") {
  CHECK(MakeHalves("easgd").algorithm->default_consistency == "sync");
}

TEST_CASE("An easgd worker commits its parameters and moves towards the center by alpha") {
  const Halves halves = MakeHalves("easgd", {{"rho", 2}, {"learning_rate", 0.25}});
  REQUIRE(halves.worker->commits_parameters());
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
  CHECK(MakeCommit(halves.worker.get(), 3, {3, 2, 0}, {9, 9, 9}) == Vector{3, 2, 0});
  // α = 2·0.25; W = [3, 2, 0] − 0.5·([3, 2, 0] − [1, 2, −4])
  CHECK(Absorb(halves.worker.get(), {1, 2, -4}, {3, 2, 0}) == Vector{2, 2, -2});
}

TEST_CASE("An easgd round moves the center towards all workers, each measured against the center before the round") {
  const Halves halves = MakeHalves("easgd", {{"rho", 1}, {"learning_rate", 0.25}});
  REQUIRE(halves.server->answers_before_commit());
  // θ = [0, 4] + 0.25·([4, 4] − [0, 4]) + 0.25·([8, 0] − [0, 4]) = [0, 4] + [1, 0] + [2, −1]
  CHECK(ApplyRound(halves.server.get(), {0, 4}, {{{4, 4}, 0, {}}, {{8, 0}, 0, {}}}) == Vector{3, 3});
  // The same commits, one round each: θ = [1, 4], then [1, 4] + 0.25·([8, 0] − [1, 4])
  const Vector first = ApplyRound(halves.server.get(), {0, 4}, {{{4, 4}, 0, {}}});
  CHECK(first == Vector{1, 4});
  CHECK(ApplyRound(halves.server.get(), first, {{{8, 0}, 1, {}}}) == Vector{2.75, 3});
}

}  // namespace
}  // namespace paramd::testing
