#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("An adag worker divides by the minibatches of its window and takes over the center") {
  const Halves halves = MakeHalves("adag", {{"communication_window", 4}});
  // δ = ([3, −3, 1] − [1, 1, 1])/4
  CHECK(MakeCommit(halves.worker.get(), 4, {3, -3, 1}, {1, 1, 1}) == Vector{0.5, -1, 0});
  CHECK(Absorb(halves.worker.get(), {4, 5, 6}, {3, -3, 1}) == Vector{4, 5, 6});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("An adag worker divides a partial window by the minibatches that it really trained") {
  const Halves halves = MakeHalves("adag", {{"communication_window", 4}});
  // δ = ([3, −3, 1] − [1, 1, 1])/2, and /1
  CHECK(MakeCommit(halves.worker.get(), 2, {3, -3, 1}, {1, 1, 1}) == Vector{1, -2, 0});
  CHECK(MakeCommit(halves.worker.get(), 1, {3, -3, 1}, {1, 1, 1}) == Vector{2, -4, 0});
}

TEST_CASE("Adag adds a commit, however stale it is") {
  const Halves halves = MakeHalves("adag");
  for (const int64_t staleness : {0, 1, 7, 1000}) {
    // θ = [2, 2, 2] + [0.5, −1, 0]
    CHECK(ApplyRound(halves.server.get(), {2, 2, 2}, {{{0.5, -1, 0}, staleness, {}}}) == Vector{2.5, 1, 2});
  }
}

TEST_CASE("An adag round adds all of its commits") {
  const Halves halves = MakeHalves("adag");
  // θ = [2, 2] + [0.5, −1] + [1, 4]
  CHECK(ApplyRound(halves.server.get(), {2, 2}, {{{0.5, -1}, 0, {}}, {{1, 4}, 0, {}}}) == Vector{3.5, 5});
}

TEST_CASE("Agn is adag") { CHECK(MakeHalves("agn").algorithm == MakeHalves("adag").algorithm); }

}  // namespace
}  // namespace paramd::testing
