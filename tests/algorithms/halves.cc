#include "tests/algorithms/halves.h"

#include <catch2/catch.hpp>
#include <utility>

namespace paramd::testing {
namespace {

std::vector<absl::Span<float>> Spans(std::vector<Vector>* vectors) {
  std::vector<absl::Span<float>> spans;
  for (Vector& vector : *vectors) spans.push_back(absl::MakeSpan(vector));
  return spans;
}

}  // namespace

Halves MakeHalves(const std::string& name, const Hyperparameters& given) {
  const auto algorithm = FindAlgorithm(name);
  INFO(algorithm.status().ToString());
  REQUIRE(algorithm.ok());
  const auto complete = CompleteHyperparameters(**algorithm, given);
  INFO(complete.status().ToString());
  REQUIRE(complete.ok());
  Halves halves;
  halves.algorithm = *algorithm;
  halves.hyperparameters = *complete;
  if (halves.algorithm->make_server) halves.server = halves.algorithm->make_server(*complete);
  halves.worker = halves.algorithm->make_worker(*complete);
  return halves;
}

Vector ApplyRound(ServerHalf* server, const Vector& center, const std::vector<Commit>& commits,
                  std::vector<Vector>* state) {
  constexpr int64_t kVersion = 100;
  const RoundInfo round{.commits = static_cast<int64_t>(commits.size())};
  Vector sum(center.size());
  for (const Commit& commit : commits) {
    MergePiece piece;
    piece.commit = commit.update;
    piece.center = center;
    if (server->needs_base()) piece.base = commit.base.empty() ? center : commit.base;
    piece.sum = absl::MakeSpan(sum);
    server->Merge({.version = kVersion, .base_version = kVersion - commit.staleness, .staleness = commit.staleness},
                  piece);
  }
  std::vector<Vector> own_state;
  if (state == nullptr) state = &own_state;
  state->resize(server->state_vectors(), Vector(center.size()));
  std::vector<Vector> state_in_place = *state;
  Vector next(center.size());
  Vector in_place = center;
  server->Finish(round, {.center = center, .sum = sum, .next = absl::MakeSpan(next), .state = Spans(state)});
  server->Finish(round,
                 {.center = in_place, .sum = sum, .next = absl::MakeSpan(in_place), .state = Spans(&state_in_place)});
  REQUIRE(in_place == next);
  REQUIRE(state_in_place == *state);
  return next;
}

Vector MakeCommit(WorkerHalf* worker, int64_t minibatches, const Vector& parameters, const Vector& pulled) {
  Vector commit(parameters.size());
  worker->MakeCommit(minibatches, parameters, pulled, absl::MakeSpan(commit));
  Vector in_place = pulled;
  worker->MakeCommit(minibatches, parameters, in_place, absl::MakeSpan(in_place));
  REQUIRE(in_place == commit);
  return commit;
}

Vector Absorb(WorkerHalf* worker, const Vector& center, Vector parameters) {
  worker->Absorb(center, absl::MakeSpan(parameters));
  return parameters;
}

}  // namespace paramd::testing
