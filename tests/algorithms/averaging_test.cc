#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("Averaging exchanges after every epoch and is synchronous unless told otherwise") {
  const Halves halves = MakeHalves("averaging");
  CHECK(halves.worker->exchange_point() == ExchangePoint::kEpoch);
  CHECK(halves.algorithm->default_consistency == "sync");
  CHECK_FALSE(halves.server->answers_before_commit());
}

TEST_CASE("An averaging worker commits its parameters and takes over the center") {
  const Halves halves = MakeHalves("averaging");
  REQUIRE(halves.worker->commits_parameters());
  CHECK(MakeCommit(halves.worker.get(), 469, {3, 2, 0}, {9, 9, 9}) == Vector{3, 2, 0});
  CHECK(Absorb(halves.worker.get(), {4, 5, 6}, {3, 2, 0}) == Vector{4, 5, 6});
}

TEST_CASE(
    "The averaging center becomes the mean of the round's parameters, wherever it was and however stale they are") {
  const Halves halves = MakeHalves("averaging");
  for (const int64_t staleness : {0, 1, 7}) {
    // One worker: θ = W
    CHECK(ApplyRound(halves.server.get(), {10, -10}, {{{1, 2}, staleness, {}}}) == Vector{1, 2});
    // ([1, 2] + [3, 6])/2; as computed: [10, −10] + ([−9, 12] + [−7, 16])/2
    CHECK(ApplyRound(halves.server.get(), {10, -10}, {{{1, 2}, staleness, {}}, {{3, 6}, 0, {}}}) == Vector{2, 4});
    // ([1, 2] + [3, 6] + [2, 1])/3
    CHECK(ApplyRound(halves.server.get(), {10, -10}, {{{1, 2}, staleness, {}}, {{3, 6}, 0, {}}, {{2, 1}, 0, {}}}) ==
          Vector{2, 3});
  }
}

}  // namespace
}  // namespace paramd::testing
