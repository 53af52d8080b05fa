// The algorithms this process knows: those linked in and those loaded from plugins.
#ifndef PARAMD_ALGORITHMS_REGISTRY_H_
#define PARAMD_ALGORITHMS_REGISTRY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/algorithm.h"

namespace paramd {

// All functions are thread-safe. Registered algorithms are never removed.

// The algorithm of this name or alias. NOT_FOUND names those there are.
absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name);

// Sorted by name.
std::vector<const Algorithm*> ListAlgorithms();

// Of a model, and of a worker that has one of its own.
inline constexpr double kMaxLearningRate = 1e6;

// What an algorithm takes: its own hyperparameters after communication_window and learning_rate, which all have.
std::vector<HyperparameterSpec> HyperparameterSpecs(const Algorithm& algorithm);

// `given` completed with the defaults. INVALID_ARGUMENT names an unknown hyperparameter, one out of its range, a
// communication_window that isn't whole, or says what the algorithm's own `validate` found; INTERNAL if that throws.
absl::StatusOr<Hyperparameters> CompleteHyperparameters(const Algorithm& algorithm, const Hyperparameters& given);

// Adds an algorithm. ALREADY_EXISTS if the name or an alias is taken; INVALID_ARGUMENT if it has no name, no worker
// half, two hyperparameters of one name, or a default out of its range.
absl::Status RegisterAlgorithm(Algorithm algorithm);

// Loads a shared object whose algorithms were registered with REGISTER_ALGORITHM. Only ever on the word of the person
// who starts the process, never on a peer's. The program must export its symbols (link it with -rdynamic). All of a
// plugin's algorithms are registered, or none. It stays loaded until the process ends; loading it again returns what
// the first time did.
//   FAILED_PRECONDITION  it was built for another interface version
//   INTERNAL             it throws while it registers its algorithms
//   INVALID_ARGUMENT     it can't be loaded, registers nothing, or an algorithm of it is malformed
//   ALREADY_EXISTS       a name or alias is taken
absl::Status LoadPlugin(const std::string& path);

namespace registry_internal {
// `make` is only called if `interface_version` is this process's own, so a plugin built against other headers runs
// none of its code. In a plugin a failure is what LoadPlugin returns; in linked-in code it aborts at start-up.
struct Registration {
  Registration(int interface_version, Algorithm (*make)());
};
}  // namespace registry_internal

}  // namespace paramd

// Once in an algorithm's file, at namespace scope: REGISTER_ALGORITHM({.name = "downpour", ...});
#define REGISTER_ALGORITHM(...)                                               \
  static const ::paramd::registry_internal::Registration kParamdRegistration( \
      ::paramd::kAlgorithmInterfaceVersion, +[]() -> ::paramd::Algorithm { return __VA_ARGS__; })

#endif  // PARAMD_ALGORITHMS_REGISTRY_H_
