#include "algorithms/registry.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/algorithms/halves.h"

namespace paramd {
namespace {

using Catch::Matchers::Contains;

constexpr char kCustomAlgorithm[] = "examples/custom_algorithm/libcustom_algorithm.so";

std::string Plugin(const std::string& name) { return "tests/algorithms/plugins/lib" + name + ".so"; }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class NoCommit : public WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

Algorithm WorkerOnly(const std::string& name) {
  return {.name = name, .make_worker = [](const Hyperparameters&) { return std::make_unique<NoCommit>(); }};
}

const Algorithm& Find(const std::string& name) { return **FindAlgorithm(name); }

TEST_CASE("An algorithm is found by its name and by its alias") {
  REQUIRE(FindAlgorithm("adag").ok());
  REQUIRE(FindAlgorithm("agn").ok());
  CHECK(*FindAlgorithm("adag") == *FindAlgorithm("agn"));
  CHECK((*FindAlgorithm("agn"))->name == "adag");
}

TEST_CASE("An unknown algorithm is refused with the names of those there are") {
  const absl::Status status = FindAlgorithm("adagg").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Message(status), Contains("\"adagg\"") && Contains("adag (agn)") && Contains("downpour") &&
                                  Contains("easgd") && Contains("--plugin"));
}

TEST_CASE("The list is sorted, names each algorithm once and has all that paramd ships") {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : ListAlgorithms()) names.push_back(algorithm->name);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  for (const char* shipped : {"adag", "adaptive_adag", "aeasgd", "averaging", "downpour", "dynsgd", "eamsgd", "easgd",
                              "ensemble", "single"}) {
    CHECK_THAT(names, Catch::Matchers::VectorContains(std::string(shipped)));
  }
}

TEST_CASE("Every algorithm has the two common hyperparameters first, with its own defaults") {
  const auto specs = HyperparameterSpecs(Find("aeasgd"));
  REQUIRE(specs.size() == 3);
  CHECK(specs[0].name == "communication_window");
  CHECK(specs[0].default_value == Find("aeasgd").default_communication_window);
  CHECK(specs[0].min == 1);
  CHECK(specs[0].max == 1e6);
  CHECK(specs[1].name == "learning_rate");
  CHECK(specs[1].default_value == Find("aeasgd").default_learning_rate);
  CHECK(specs[1].min == 1e-12);
  CHECK(specs[1].max == 1e6);
  CHECK(specs[2].name == "rho");
}

TEST_CASE("Hyperparameters that aren't given get their defaults") {
  const auto complete = CompleteHyperparameters(Find("aeasgd"), {{"rho", 1.5}});
  REQUIRE(complete.ok());
  CHECK(complete->size() == 3);
  CHECK(complete->at("rho") == 1.5);
  CHECK(complete->at("learning_rate") == Find("aeasgd").default_learning_rate);
}

TEST_CASE("An unknown hyperparameter is refused with the names of those there are") {
  const absl::Status status = CompleteHyperparameters(Find("aeasgd"), {{"roh", 1}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(status),
             Contains("aeasgd has no hyperparameter \"roh\"") && Contains("communication_window, learning_rate, rho"));
}

TEST_CASE("A hyperparameter out of its range is refused with its value and the range") {
  const auto refusal = [](const Hyperparameters& given) {
    const absl::Status status = CompleteHyperparameters(Find("eamsgd"), given).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  CHECK_THAT(refusal({{"momentum", 1.5}}), Contains("eamsgd: momentum = 1.5") && Contains("[0, 0.9999]"));
  CHECK_THAT(refusal({{"momentum", -0.1}}), Contains("momentum = -0.1"));
  CHECK_THAT(refusal({{"learning_rate", 0}}), Contains("learning_rate = 0") && Contains("[1e-12, 1e+06]"));
  CHECK_THAT(refusal({{"learning_rate", std::nan("")}}), Contains("learning_rate = nan"));
  CHECK_THAT(refusal({{"learning_rate", std::numeric_limits<double>::infinity()}}), Contains("learning_rate = inf"));
  CHECK_THAT(refusal({{"communication_window", 0}}), Contains("communication_window = 0"));
  CHECK_THAT(refusal({{"communication_window", 2e6}}), Contains("communication_window = 2e+06"));
}

TEST_CASE("A communication window must be whole") {
  const absl::Status status = CompleteHyperparameters(Find("adag"), {{"communication_window", 2.5}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(status), Contains("communication_window = 2.5") && Contains("whole number"));
  CHECK(CompleteHyperparameters(Find("adag"), {{"communication_window", 1e6}}).ok());
}

TEST_CASE("What an algorithm's own check finds is returned with the algorithm's name") {
  const absl::Status status = CompleteHyperparameters(Find("easgd"), {{"rho", 5}, {"learning_rate", 0.5}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(status), Contains("easgd: rho = 5 times learning_rate = 0.5 is 2.5") && Contains("below 1"));
}

TEST_CASE("A malformed algorithm is not registered") {
  const auto refusal = [](Algorithm algorithm) {
    const absl::Status status = RegisterAlgorithm(std::move(algorithm));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  CHECK_THAT(refusal(WorkerOnly("")), Contains("no name"));
  CHECK_THAT(refusal({.name = "malformed"}), Contains("malformed has no worker half"));

  Algorithm unnamed = WorkerOnly("malformed");
  unnamed.hyperparameters = {{.max = 1}};
  CHECK_THAT(refusal(unnamed), Contains("unnamed hyperparameter"));

  Algorithm twice = WorkerOnly("malformed");
  twice.hyperparameters = {{.name = "learning_rate", .max = 1}};
  CHECK_THAT(refusal(twice), Contains("two hyperparameters learning_rate"));

  Algorithm out_of_range = WorkerOnly("malformed");
  out_of_range.hyperparameters = {{.name = "gamma", .default_value = 2, .max = 1}};
  CHECK_THAT(refusal(out_of_range), Contains("default of gamma, 2, is out of its range [0, 1]"));

  CHECK(FindAlgorithm("malformed").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("A name or alias that is taken is refused, and nothing of that algorithm is kept") {
  CHECK(RegisterAlgorithm(WorkerOnly("downpour")).code() == absl::StatusCode::kAlreadyExists);
  CHECK(RegisterAlgorithm(WorkerOnly("agn")).code() == absl::StatusCode::kAlreadyExists);

  Algorithm alias_taken = WorkerOnly("newcomer");
  alias_taken.aliases = {"nobodys", "adag"};
  const absl::Status status = RegisterAlgorithm(alias_taken);
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(Message(status), Contains("newcomer") && Contains("the name adag is already taken"));
  CHECK_FALSE(FindAlgorithm("newcomer").ok());
  CHECK_FALSE(FindAlgorithm("nobodys").ok());

  Algorithm own_alias = WorkerOnly("newcomer");
  own_alias.aliases = {"newcomer"};
  CHECK(RegisterAlgorithm(own_alias).code() == absl::StatusCode::kAlreadyExists);
}

TEST_CASE("Of many threads that register one name, one wins while others read") {
  constexpr int kThreads = 8;
  std::atomic<int> registered = 0;
  std::atomic<int> unreadable = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      if (RegisterAlgorithm(WorkerOnly("contended")).ok()) ++registered;
      if (!FindAlgorithm("contended").ok() || ListAlgorithms().empty()) ++unreadable;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(registered == 1);
  CHECK(unreadable == 0);
}

TEST_CASE("A plugin's algorithm is found and computes once the plugin is loaded") {
  REQUIRE(LoadPlugin(kCustomAlgorithm) == absl::OkStatus());
  const testing::Halves halves = testing::MakeHalves("server_momentum", {{"momentum", 0.5}});

  // δ = (W − W₁)/λ = ([3, 0] − [1, 2])/2
  CHECK(testing::MakeCommit(halves.worker.get(), 2, {3, 0}, {1, 2}) == testing::Vector{1, -1});
  CHECK(testing::Absorb(halves.worker.get(), {5, 6}, {3, 0}) == testing::Vector{5, 6});

  // v = 0.5·[0, 0] + [1, −1], θ = [1, 2] + v
  std::vector<testing::Vector> state;
  testing::Vector center = testing::ApplyRound(halves.server.get(), {1, 2}, {{.update = {1, -1}}}, &state);
  CHECK(center == testing::Vector{2, 1});
  // v = 0.5·[1, −1] + ([1, 1] + [3, 0])/2 = [2.5, 0], θ = [2, 1] + v
  center = testing::ApplyRound(halves.server.get(), center, {{.update = {1, 1}}, {.update = {3, 0}}}, &state);
  CHECK(center == testing::Vector{4.5, 1});
  CHECK(state == std::vector<testing::Vector>{{2.5, 0}});
}

TEST_CASE("Loading a plugin again returns what the first time did") {
  CHECK(LoadPlugin(kCustomAlgorithm) == absl::OkStatus());
  CHECK(LoadPlugin(kCustomAlgorithm) == absl::OkStatus());
  const absl::Status refused = LoadPlugin(Plugin("name_clash"));
  CHECK_FALSE(refused.ok());
  CHECK(LoadPlugin(Plugin("name_clash")) == refused);
}

TEST_CASE("A plugin that throws while it registers its algorithm is refused") {
  setenv("PARAMD_TEST_THROW_IN_REGISTRATION", "1", /*overwrite=*/1);
  const absl::Status status = LoadPlugin(Plugin("throwing"));
  unsetenv("PARAMD_TEST_THROW_IN_REGISTRATION");
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains(Plugin("throwing")) && Contains("out of magic"));
  CHECK_FALSE(FindAlgorithm("throwing").ok());
}

TEST_CASE("A plugin for another interface version is refused and none of its code is asked for an algorithm") {
  const absl::Status status = LoadPlugin(Plugin("other_version"));
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(status), Contains(Plugin("other_version")) &&
                                  Contains("version " + std::to_string(kAlgorithmInterfaceVersion + 1)) &&
                                  Contains("version " + std::to_string(kAlgorithmInterfaceVersion) + ":") &&
                                  Contains("rebuild"));
}

TEST_CASE("A plugin whose name clashes is refused whole") {
  const absl::Status status = LoadPlugin(Plugin("name_clash"));
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(Message(status), Contains(Plugin("name_clash")) && Contains("the name downpour is already taken"));
  CHECK_FALSE(FindAlgorithm("beside_a_clash").ok());
}

TEST_CASE("A shared object that registers nothing is refused") {
  const absl::Status status = LoadPlugin(Plugin("no_plugin"));
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(status), Contains(Plugin("no_plugin")) && Contains("registers no algorithm"));
}

TEST_CASE("A file that is missing or no shared object is refused") {
  const absl::Status missing = LoadPlugin("no/such/plugin.so");
  CHECK(missing.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(missing), Contains("can't load plugin no/such/plugin.so") && Contains("No such file"));

  const absl::Status bare_name = LoadPlugin("libc.so.6");
  CHECK(bare_name.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(bare_name), Contains("No such file"));

  CHECK(LoadPlugin("/dev/null").code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace paramd
