#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

TEST_CASE("An aeasgd worker commits its parameters and moves towards the center by alpha") {
  const Halves halves = MakeHalves("aeasgd", {{"rho", 2}, {"learning_rate", 0.25}});
  REQUIRE(halves.worker->commits_parameters());
  CHECK(MakeCommit(halves.worker.get(), 3, {3, 2, 0}, {9, 9, 9}) == Vector{3, 2, 0});
  // α = 2·0.25; W = [3, 2, 0] − 0.5·([3, 2, 0] − [1, 2, −4])
  CHECK(Absorb(halves.worker.get(), {1, 2, -4}, {3, 2, 0}) == Vector{2, 2, -2});
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
}

TEST_CASE("The aeasgd center moves towards the worker by alpha, however stale that is") {
  const Halves halves = MakeHalves("aeasgd", {{"rho", 3}, {"learning_rate", 0.25}});
  REQUIRE(halves.server->answers_before_commit());
  for (const int64_t staleness : {0, 1, 7, 1000}) {
    // α = 3·0.25; θ = [1, 2, −4] + 0.75·([3, 2, 0] − [1, 2, −4])
    CHECK(ApplyRound(halves.server.get(), {1, 2, -4}, {{{3, 2, 0}, staleness, {}}}) == Vector{2.5, 2, -1});
  }
}

TEST_CASE("Both halves of aeasgd move by the same number") {
  const Halves halves = MakeHalves("aeasgd", {{"rho", 3}, {"learning_rate", 0.25}});
  const Vector center = {1, 2, -4};
  const Vector parameters = {3, 2, 0};
  const Vector center_after = ApplyRound(halves.server.get(), center, {{parameters, 0, {}}});
  const Vector parameters_after = Absorb(halves.worker.get(), center, parameters);
  for (size_t i = 0; i < center.size(); ++i) {
    CHECK(center_after[i] + parameters_after[i] == center[i] + parameters[i]);
  }
}

TEST_CASE("An aeasgd round measures every commit against the center before the round") {
  const Halves halves = MakeHalves("aeasgd", {{"rho", 1}, {"learning_rate", 0.25}});
  // θ = [0, 4] + 0.25·([4, 4] − [0, 4]) + 0.25·([8, 0] − [0, 4])
  CHECK(ApplyRound(halves.server.get(), {0, 4}, {{{4, 4}, 0, {}}, {{8, 0}, 0, {}}}) == Vector{3, 3});
}

TEST_CASE("Elastic algorithms refuse an alpha of one or more") {
  for (const char* name : {"aeasgd", "eamsgd", "easgd"}) {
    INFO(name);
    const Algorithm& algorithm = **FindAlgorithm(name);
    CHECK(CompleteHyperparameters(algorithm, {{"rho", 3.75}, {"learning_rate", 0.25}}).ok());
    for (const double rho : {4.0, 100.0}) {
      const absl::Status status = CompleteHyperparameters(algorithm, {{"rho", rho}, {"learning_rate", 0.25}}).status();
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK_THAT(std::string(status.message()), Catch::Contains(name) && Catch::Contains("times learning_rate"));
    }
    // Below 1 as a double, but not as the float that both halves compute with.
    CHECK_FALSE(CompleteHyperparameters(algorithm, {{"rho", 0.99999999}, {"learning_rate", 1}}).ok());
    CHECK(CompleteHyperparameters(algorithm, {{"rho", 0.9999999}, {"learning_rate", 1}}).ok());
  }
}

}  // namespace
}  // namespace paramd::testing
