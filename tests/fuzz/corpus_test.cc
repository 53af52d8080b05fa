// What fuzzers found worth keeping, and what is nearly that.
#include <catch2/catch.hpp>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/targets.h"
#include "tests/support/process.h"
#include "tests/support/seed.h"

namespace paramd {
namespace {

TEST_CASE("what fuzzers found ends no process") {
  CHECK(FuzzTargets().size() >= 6);
  for (const auto& [name, target] : FuzzTargets()) {
    std::vector<std::string> inputs;
    for (const auto& file : std::filesystem::directory_iterator("tests/fuzz/corpus/" + name)) {
      inputs.push_back(ReadFile(file.path().string()));
      target(inputs.back());
    }
    INFO(name);
    REQUIRE_FALSE(inputs.empty());
    for (const uint64_t seed : testing::Seeds(200)) {
      INFO("PARAMD_SEED=" << seed);
      std::mt19937_64 random(seed);
      std::string input = inputs[random() % inputs.size()];
      Mutate(&random, &input);
      target(input);
    }
  }
}

}  // namespace
}  // namespace paramd
