#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("A dynsgd worker commits the difference, whatever its window was, and takes over the center") {
  const Halves halves = MakeHalves("dynsgd");
  // δ = [1.5, 1, −1] − [1, 2, −1]
  CHECK(MakeCommit(halves.worker.get(), 1, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(MakeCommit(halves.worker.get(), 7, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(Absorb(halves.worker.get(), {4, 5, 6}, {1.5, 1, -1}) == Vector{4, 5, 6});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("Dynsgd divides a commit by its staleness plus one") {
  const Halves halves = MakeHalves("dynsgd");
  const auto apply = [&](int64_t staleness) {
    return ApplyRound(halves.server.get(), {1, 1}, {{{6, -12}, staleness, {}}});
  };
  CHECK(apply(0) == Vector{7, -11});  // [1, 1] + [6, −12]/1
  CHECK(apply(1) == Vector{4, -5});   // [1, 1] + [6, −12]/2
  CHECK(apply(2) == Vector{3, -3});   // [1, 1] + [6, −12]/3
  CHECK(apply(5) == Vector{2, -1});   // [1, 1] + [6, −12]/6
}

TEST_CASE("In a dynsgd round every commit is divided by its own staleness plus one") {
  const Halves halves = MakeHalves("dynsgd");
  // θ = [1, 1] + [6, −12]/1 + [9, 3]/3
  CHECK(ApplyRound(halves.server.get(), {1, 1}, {{{6, -12}, 0, {}}, {{9, 3}, 2, {}}}) == Vector{10, -10});
}

}  // namespace
}  // namespace paramd::testing
