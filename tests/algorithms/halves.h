// Both halves of an algorithm, called the way the server and the training loop call them.
#ifndef PARAMD_TESTS_ALGORITHMS_HALVES_H_
#define PARAMD_TESTS_ALGORITHMS_HALVES_H_

#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd::testing {

using Vector = std::vector<float>;

struct Halves {
  const Algorithm* algorithm = nullptr;
  Hyperparameters hyperparameters;
  std::unique_ptr<ServerHalf> server;  // null for an algorithm without one
  std::unique_ptr<WorkerHalf> worker;
};

// Fails the test if there is no such algorithm or a hyperparameter is wrong.
Halves MakeHalves(const std::string& name, const Hyperparameters& given = {});

struct Commit {
  Vector update;
  int64_t staleness = 0;
  Vector base;  // empty: the center
};

// The center after one round of `commits`. Also checks that it is the same when the new center is written over the old
// one. `state` is the server half's, all zero at first; it is made if it is empty.
Vector ApplyRound(ServerHalf* server, const Vector& center, const std::vector<Commit>& commits,
                  std::vector<Vector>* state = nullptr);

// What the worker commits after `minibatches` that took it from `pulled` to `parameters`. Also checks that it is the
// same when it is written over `pulled`.
Vector MakeCommit(WorkerHalf* worker, int64_t minibatches, const Vector& parameters, const Vector& pulled);

// The worker's parameters once it has received `center`.
Vector Absorb(WorkerHalf* worker, const Vector& center, Vector parameters);

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_ALGORITHMS_HALVES_H_
