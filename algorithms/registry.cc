#include "algorithms/registry.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/user_code.h"
#include "sync/mutex.h"

namespace paramd {
namespace {

constexpr char kCommunicationWindow[] = "communication_window";
constexpr char kLearningRate[] = "learning_rate";

using AlgorithmsByName = std::map<std::string, std::shared_ptr<const Algorithm>>;

// Thread-safe. Two locks, so that nothing else waits while a plugin is being loaded; loading_mutex comes first.
struct Registry {
  Mutex loading_mutex;
  std::map<void*, absl::Status> plugins ABSL_GUARDED_BY(loading_mutex);  // what loading each handle came to

  Mutex mutex;
  AlgorithmsByName by_name ABSL_GUARDED_BY(mutex);  // aliases, too
};

// Made at first use, because algorithms register themselves before main in no particular order, and never destroyed.
Registry& GetRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

// What the plugin that this thread is loading has registered so far.
struct PluginContents {
  std::vector<Algorithm> algorithms;
  absl::Status status;
};

thread_local PluginContents* plugin_contents = nullptr;

bool InRange(const HyperparameterSpec& spec, double value) { return value >= spec.min && value <= spec.max; }

std::string Range(const HyperparameterSpec& spec) { return absl::StrCat("[", spec.min, ", ", spec.max, "]"); }

absl::Status CheckWellFormed(const Algorithm& algorithm) {
  if (algorithm.name.empty()) return absl::InvalidArgumentError("an algorithm has no name: set Algorithm::name");
  if (!algorithm.make_worker) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm ", algorithm.name, " has no worker half: set Algorithm::make_worker"));
  }
  std::set<std::string> names;
  for (const HyperparameterSpec& spec : HyperparameterSpecs(algorithm)) {
    if (spec.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("algorithm ", algorithm.name, " has an unnamed hyperparameter"));
    }
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("algorithm ", algorithm.name, " has two hyperparameters ", spec.name, ": rename one"));
    }
    if (!InRange(spec, spec.default_value)) {
      return absl::InvalidArgumentError(absl::StrCat("algorithm ", algorithm.name, ": the default of ", spec.name, ", ",
                                                     spec.default_value, ", is out of its range ", Range(spec)));
    }
  }
  return absl::OkStatus();
}

// Adds all or none.
absl::Status AddAlgorithms(std::vector<Algorithm> algorithms) {
  AlgorithmsByName added;
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mutex);
  for (Algorithm& algorithm : algorithms) {
    if (absl::Status status = CheckWellFormed(algorithm); !status.ok()) return status;
    const auto shared = std::make_shared<const Algorithm>(std::move(algorithm));
    std::vector<std::string> names = shared->aliases;
    names.push_back(shared->name);
    for (const std::string& name : names) {
      if (registry.by_name.count(name) > 0 || !added.emplace(name, shared).second) {
        return absl::AlreadyExistsError(
            absl::StrCat("algorithm ", shared->name, ": the name ", name,
                         " is already taken by another algorithm or alias: give yours another name"));
      }
    }
  }
  registry.by_name.merge(added);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name) {
  {
    Registry& registry = GetRegistry();
    MutexLock lock(&registry.mutex);
    const auto found = registry.by_name.find(std::string(name));
    if (found != registry.by_name.end()) return found->second.get();
  }
  const std::string known = absl::StrJoin(ListAlgorithms(), ", ", [](std::string* out, const Algorithm* algorithm) {
    absl::StrAppend(out, algorithm->name);
    if (!algorithm->aliases.empty()) absl::StrAppend(out, " (", absl::StrJoin(algorithm->aliases, ", "), ")");
  });
  return absl::NotFoundError(absl::StrCat("no algorithm \"", name, "\"; there are ", known,
                                          ". One of your own must be linked in or loaded with --plugin"));
}

std::vector<const Algorithm*> ListAlgorithms() {
  std::vector<const Algorithm*> algorithms;
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mutex);
  for (const auto& [name, algorithm] : registry.by_name) {
    if (name == algorithm->name) algorithms.push_back(algorithm.get());
  }
  return algorithms;
}

std::vector<HyperparameterSpec> HyperparameterSpecs(const Algorithm& algorithm) {
  std::vector<HyperparameterSpec> specs = {
      {.name = kCommunicationWindow,
       .default_value = static_cast<double>(algorithm.default_communication_window),
       .min = 1,
       .max = 1e6,
       .description = "minibatches between two exchanges (whole number)"},
      {.name = kLearningRate,
       .default_value = algorithm.default_learning_rate,
       .min = 1e-12,
       .max = kMaxLearningRate,
       .description = "learning rate of the worker's optimizer"},
  };
  specs.insert(specs.end(), algorithm.hyperparameters.begin(), algorithm.hyperparameters.end());
  return specs;
}

absl::StatusOr<Hyperparameters> CompleteHyperparameters(const Algorithm& algorithm, const Hyperparameters& given) {
  const std::vector<HyperparameterSpec> specs = HyperparameterSpecs(algorithm);
  Hyperparameters complete;
  for (const HyperparameterSpec& spec : specs) complete[spec.name] = spec.default_value;
  for (const auto& [name, value] : given) {
    const auto found = complete.find(name);
    if (found == complete.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          algorithm.name, " has no hyperparameter \"", name, "\"; it has ",
          absl::StrJoin(specs, ", ", [](std::string* out, const HyperparameterSpec& s) { out->append(s.name); })));
    }
    found->second = value;
  }
  for (const HyperparameterSpec& spec : specs) {
    const double value = complete[spec.name];
    if (!InRange(spec, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(algorithm.name, ": ", spec.name, " = ", value, " is out of range; it must be in ", Range(spec)));
    }
  }
  const double window = complete[kCommunicationWindow];
  if (window != std::floor(window)) {
    return absl::InvalidArgumentError(absl::StrCat(algorithm.name, ": ", kCommunicationWindow, " = ", window,
                                                   " is not a whole number; it counts minibatches"));
  }
  if (algorithm.validate) {
    absl::Status status = CallUserCode([&] { return algorithm.validate(complete); }, "validate");
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(algorithm.name, ": ", status.message()));
    }
  }
  return complete;
}

absl::Status RegisterAlgorithm(Algorithm algorithm) {
  std::vector<Algorithm> algorithms;
  algorithms.push_back(std::move(algorithm));
  return AddAlgorithms(std::move(algorithms));
}

absl::Status LoadPlugin(const std::string& path) {
  // dlopen would look for a bare name in the system's library folders.
  const std::string file = path.find('/') == std::string::npos ? absl::StrCat("./", path) : path;
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.loading_mutex);
  PluginContents contents;
  plugin_contents = &contents;
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  plugin_contents = nullptr;
  if (handle == nullptr) {
    const char* const error = dlerror();
    return absl::InvalidArgumentError(absl::StrCat("can't load plugin ", path, ": ",
                                                   error != nullptr ? error : "unknown error",
                                                   ". Check the path; if a paramd symbol is undefined, rebuild the "
                                                   "plugin against this release's headers, and link "
                                                   "the program that loads it with -rdynamic"));
  }
  // The loader runs a shared object's initializers only the first time.
  const auto [plugin, is_new] = registry.plugins.try_emplace(handle);
  if (!is_new) return plugin->second;
  absl::Status status = contents.status;
  if (status.ok() && contents.algorithms.empty()) {
    status = absl::InvalidArgumentError(
        "it registers no algorithm. Is it a paramd plugin? One has REGISTER_ALGORITHM in it, and isn't linked into the "
        "program already");
  }
  if (status.ok()) status = AddAlgorithms(std::move(contents.algorithms));
  if (!status.ok()) status = absl::Status(status.code(), absl::StrCat("plugin ", path, ": ", status.message()));
  plugin->second = status;
  return status;
}

namespace registry_internal {

Registration::Registration(int interface_version, Algorithm (*make)()) {
  absl::Status status;
  if (interface_version != kAlgorithmInterfaceVersion) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "it was built for version ", interface_version, " of the algorithm interface, this program has version ",
        kAlgorithmInterfaceVersion, ": rebuild it against this release's algorithms/algorithm.h"));
  }
  if (plugin_contents != nullptr) {
    if (status.ok()) {
      status = RunUserCode([&] { plugin_contents->algorithms.push_back(make()); }, "what registers an algorithm");
    }
    plugin_contents->status.Update(status);
    return;
  }
  if (status.ok()) status = RegisterAlgorithm(make());
  if (!status.ok()) {
    std::fprintf(stderr, "paramd: can't register an algorithm that is linked in: %s\n", status.ToString().c_str());
    std::abort();
  }
}

}  // namespace registry_internal
}  // namespace paramd
