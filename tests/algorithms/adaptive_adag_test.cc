#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("An adaptive_adag worker divides by the minibatches that it really trained and takes over the center") {
  const Halves halves = MakeHalves("adaptive_adag", {{"communication_window", 4}});
  CHECK(MakeCommit(halves.worker.get(), 4, {3, -3}, {1, 1}) == Vector{0.5, -1});  // ([3, −3] − [1, 1])/4
  CHECK(MakeCommit(halves.worker.get(), 2, {3, -3}, {1, 1}) == Vector{1, -2});    // ([3, −3] − [1, 1])/2
  CHECK(Absorb(halves.worker.get(), {4, 5}, {3, -3}) == Vector{4, 5});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("Adaptive_adag takes less where the center has moved since the worker's pull, however stale it is") {
  const Halves halves = MakeHalves("adaptive_adag", {{"eta", 1}});
  REQUIRE(halves.server->needs_base());
  for (const int64_t staleness : {1, 7, 1000}) {
    // θ − θ_base = [3, 1, 0] − [1, 1, −3] = [2, 0, 3]; 1 + its square/1 = [5, 1, 10]
    // θ = [3, 1, 0] + [5, 5, −10]/[5, 1, 10]
    CHECK(ApplyRound(halves.server.get(), {3, 1, 0}, {{{5, 5, -10}, staleness, {1, 1, -3}}}) == Vector{4, 6, -1});
  }
}

TEST_CASE("Adaptive_adag adds a fresh commit as it is") {
  const Halves halves = MakeHalves("adaptive_adag");
  CHECK(ApplyRound(halves.server.get(), {3, 1}, {{{5, -2}, 0, {3, 1}}}) == Vector{8, -1});
}

TEST_CASE("A larger eta damps less") {
  const Halves halves = MakeHalves("adaptive_adag", {{"eta", 4}});
  // 1 + [2, 0, 6]²/4 = [2, 1, 10]; θ = [3, 1, 0] + [5, 5, 20]/[2, 1, 10]
  CHECK(ApplyRound(halves.server.get(), {3, 1, 0}, {{{5, 5, 20}, 1, {1, 1, -6}}}) == Vector{5.5, 6, 2});
}

TEST_CASE("Eta is the learning rate unless it is given") {
  const Halves halves = MakeHalves("adaptive_adag", {{"learning_rate", 0.5}});
  // 1 + [2, 0, 3]²/0.5 = [9, 1, 19]; θ = [3, 1, 0] + [18, 1, 19]/[9, 1, 19]
  CHECK(ApplyRound(halves.server.get(), {3, 1, 0}, {{{18, 1, 19}, 1, {1, 1, -3}}}) == Vector{5, 2, 1});
}

TEST_CASE("With the smallest eta a parameter that moved takes nothing, and one that did not takes all") {
  const Halves halves = MakeHalves("adaptive_adag", {{"eta", 1e-300}});
  CHECK(ApplyRound(halves.server.get(), {3, 1}, {{{5, 5}, 1, {1, 1}}}) == Vector{3, 6});
}

TEST_CASE("An adaptive_adag round measures every commit against the center before the round") {
  const Halves halves = MakeHalves("adaptive_adag", {{"eta", 1}});
  // θ = [3, 1] + [1, 1]/(1 + [0, 0]²) + [5, 5]/(1 + [2, 0]²)
  CHECK(ApplyRound(halves.server.get(), {3, 1}, {{{1, 1}, 0, {3, 1}}, {{5, 5}, 1, {1, 1}}}) == Vector{5, 7});
}

}  // namespace
}  // namespace paramd::testing
