#include <catch2/catch.hpp>

#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

// Takes `worker` through one local step of an optimizer that adds `step`.
Vector Step(WorkerHalf* worker, Vector parameters, const Vector& step) {
  worker->BeforeStep({absl::MakeSpan(parameters)});
  for (size_t i = 0; i < step.size(); ++i) parameters[i] += step[i];
  worker->AfterStep({absl::MakeSpan(parameters)});
  return parameters;
}

TEST_CASE("An eamsgd worker steps from where its momentum takes it, also after an exchange") {
  const Halves halves = MakeHalves("eamsgd", {{"momentum", 0.5}, {"rho", 2}, {"learning_rate", 0.25}});
  WorkerHalf* const worker = halves.worker.get();
  Vector w = {1, 2};

  // v = 0: steps from W. W = [1, 2] + [−0.5, −1], v = [−0.5, −1]
  w = Step(worker, w, {-0.5, -1});
  CHECK(w == Vector{0.5, 1});

  // Steps from W + μv = [0.5, 1] + 0.5·[−0.5, −1]
  worker->BeforeStep({absl::MakeSpan(w)});
  CHECK(w == Vector{0.25, 0.5});
  w = {0.125, 0.5};  // a step of [−0.125, 0]
  worker->AfterStep({absl::MakeSpan(w)});
  // v = 0.5·[−0.5, −1] + [−0.125, 0] = [−0.375, −0.5]; W = [0.5, 1] + v
  CHECK(w == Vector{0.125, 0.5});

  // α = 2·0.25; W = [0.125, 0.5] − 0.5·([0.125, 0.5] − [1.125, −0.5])
  w = Absorb(worker, {1.125, -0.5}, w);
  CHECK(w == Vector{0.625, 0});

  // v is still [−0.375, −0.5]: steps from [0.625, 0] + 0.5·v
  worker->BeforeStep({absl::MakeSpan(w)});
  CHECK(w == Vector{0.4375, -0.25});
}

TEST_CASE("An eamsgd worker without momentum makes the optimizer's own steps") {
  const Halves halves = MakeHalves("eamsgd", {{"momentum", 0}});
  Vector w = {1, 2};
  for (int i = 0; i < 3; ++i) w = Step(halves.worker.get(), w, {-0.25, 0.5});
  CHECK(w == Vector{0.25, 3.5});  // [1, 2] + 3·[−0.25, 0.5]
}

TEST_CASE("An eamsgd worker commits its parameters") {
  const Halves halves = MakeHalves("eamsgd");
  REQUIRE(halves.worker->commits_parameters());
  CHECK(halves.worker->exchange_point() == ExchangePoint::kWindow);
  CHECK(MakeCommit(halves.worker.get(), 3, {3, 2, 0}, {9, 9, 9}) == Vector{3, 2, 0});
}

TEST_CASE("The eamsgd center moves towards the worker by alpha, however stale that is") {
  const Halves halves = MakeHalves("eamsgd", {{"rho", 3}, {"learning_rate", 0.25}});
  REQUIRE(halves.server->answers_before_commit());
  for (const int64_t staleness : {0, 1, 7, 1000}) {
    // α = 3·0.25; θ = [1, 2, −4] + 0.75·([3, 2, 0] − [1, 2, −4])
    CHECK(ApplyRound(halves.server.get(), {1, 2, -4}, {{{3, 2, 0}, staleness, {}}}) == Vector{2.5, 2, -1});
  }
}

TEST_CASE("An eamsgd round measures every commit against the center before the round") {
  const Halves halves = MakeHalves("eamsgd", {{"rho", 1}, {"learning_rate", 0.25}});
  // θ = [0, 4] + 0.25·([4, 4] − [0, 4]) + 0.25·([8, 0] − [0, 4])
  CHECK(ApplyRound(halves.server.get(), {0, 4}, {{{4, 4}, 0, {}}, {{8, 0}, 0, {}}}) == Vector{3, 3});
}

}  // namespace
}  // namespace paramd::testing
