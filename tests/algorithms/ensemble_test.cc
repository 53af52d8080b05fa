#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("Every worker of an ensemble has a center of its own") {
  CHECK(MakeHalves("ensemble").server->own_centers());
}

TEST_CASE("An ensemble worker commits the difference, whatever its window was, and takes over its center") {
  const Halves halves = MakeHalves("ensemble");
  // δ = [1.5, 1, −1] − [1, 2, −1]
  CHECK(MakeCommit(halves.worker.get(), 1, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(MakeCommit(halves.worker.get(), 7, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(Absorb(halves.worker.get(), {1.5, 1, -1}, {1.5, 1, -1}) == Vector{1.5, 1, -1});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("The center of an ensemble's worker becomes that worker's parameters") {
  const Halves halves = MakeHalves("ensemble");
  for (const int64_t staleness : {0, 1, 7}) {
    // θ = W₁ + δ = [1, 2, −1] + [0.5, −1, 0]
    CHECK(ApplyRound(halves.server.get(), {1, 2, -1}, {{{0.5, -1, 0}, staleness, {}}}) == Vector{1.5, 1, -1});
  }
}

TEST_CASE("A round of an ensemble's center adds all of its commits") {
  const Halves halves = MakeHalves("ensemble");
  // θ = [2, 2] + [0.5, −1] + [1, 4]
  CHECK(ApplyRound(halves.server.get(), {2, 2}, {{{0.5, -1}, 0, {}}, {{1, 4}, 0, {}}}) == Vector{3.5, 5});
}

}  // namespace
}  // namespace paramd::testing
