#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("A downpour worker commits the difference, whatever its window was, and takes over the center") {
  const Halves halves = MakeHalves("downpour");
  // δ = [1.5, 1, −1] − [1, 2, −1]
  CHECK(MakeCommit(halves.worker.get(), 1, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(MakeCommit(halves.worker.get(), 7, {1.5, 1, -1}, {1, 2, -1}) == Vector{0.5, -1, 0});
  CHECK(Absorb(halves.worker.get(), {4, 5, 6}, {1.5, 1, -1}) == Vector{4, 5, 6});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("Downpour adds a commit, however stale it is") {
  const Halves halves = MakeHalves("downpour");
  for (const int64_t staleness : {0, 1, 7, 1000}) {
    // θ = [2, 2, 2] + [0.5, −1, 0]
    CHECK(ApplyRound(halves.server.get(), {2, 2, 2}, {{{0.5, -1, 0}, staleness, {}}}) == Vector{2.5, 1, 2});
  }
}

TEST_CASE("A downpour round adds all of its commits") {
  const Halves halves = MakeHalves("downpour");
  // θ = [2, 2] + [0.5, −1] + [1, 4]
  CHECK(ApplyRound(halves.server.get(), {2, 2}, {{{0.5, -1}, 0, {}}, {{1, 4}, 0, {}}}) == Vector{3.5, 5});
}

}  // namespace
}  // namespace paramd::testing
