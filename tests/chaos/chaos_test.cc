#include <catch2/catch.hpp>
#include <iostream>

#include "tests/chaos/run.h"
#include "tests/support/seed.h"

namespace paramd::chaos {
namespace {

void CheckRun(const Options& options) {
  INFO("seed " << options.seed);
  const Report report = Run(options);
  std::cout << report.figures << std::endl;
  CHECK(report.wrong == std::vector<std::string>());
}

TEST_CASE("commits count exactly once whatever workers and networks die in the middle") {
  for (const uint64_t seed : testing::Seeds(1)) {
    CheckRun({.seed = seed, .kills = 8, .tls = seed % 2 == 0});
  }
}

}  // namespace
}  // namespace paramd::chaos
