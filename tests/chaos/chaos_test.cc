#include <catch2/catch.hpp>
#include <iostream>

#include "tests/chaos/run.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

namespace paramd::chaos {
namespace {

void CheckRun(const Options& options) {
  INFO("seed " << options.seed);
  const Report report = Run(options);
  if (!report.skipped.empty()) return testing::Skip(report.skipped);
  std::cout << report.figures << std::endl;
  CHECK(report.wrong == std::vector<std::string>());
}

TEST_CASE("what was acknowledged is in the center exactly once, whatever is killed, stopped or cut off meanwhile") {
  const uint64_t seed = testing::Seeds(1)[0];
  CheckRun({.seed = seed, .kills = 10, .tls = seed % 2 == 0, .durability = "journal"});
}

TEST_CASE(
    "with tokens and certificates that are replaced meanwhile, and a disk that is full now and then, all the same") {
  CheckRun({.seed = testing::Seeds(1)[0],
            .kills = 8,
            .tls = true,
            .credentials = true,
            .small_disk = true,
            .durability = "journal"});
}

TEST_CASE("without the journal no more is lost than what came after the last checkpoint") {
  const uint64_t seed = testing::Seeds(1)[0];
  CheckRun({.seed = seed, .kills = 8, .tls = seed % 2 == 1, .durability = "checkpoint"});
}

TEST_CASE("a daemon that is killed while it writes checkpoints finds a good one") {
  CheckRun({.seed = testing::Seeds(1)[0],
            .kills = 5,
            .durability = "checkpoint",
            .only_daemon = true,
            .checkpoint_every = "10ms"});
}

}  // namespace
}  // namespace paramd::chaos
