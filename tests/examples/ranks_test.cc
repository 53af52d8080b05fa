#include "examples/mpi/ranks.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace paramd {
namespace {

std::string Environment(const std::vector<std::string>& entries) {
  std::string block;
  for (const std::string& entry : entries) block += entry + std::string(1, '\0');
  return block;
}

void RequireRanks(const std::vector<std::string>& environments, int rank, int size) {
  const auto ranks = RanksFrom(environments);
  INFO(ranks.status());
  REQUIRE(ranks.ok());
  CHECK(std::pair(ranks->rank, ranks->size) == std::pair(rank, size));
}

const std::vector<std::string> kBatch = {"SLURM_PROCID=0", "SLURM_NTASKS=4"};

TEST_CASE("each launcher's variables tell rank and size") {
  RequireRanks({Environment({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"})}, 1, 2);
  RequireRanks({Environment({"HOME=/", "PMI_RANK=2", "PMI_SIZE=3"})}, 2, 3);
  RequireRanks({Environment({"SLURM_PROCID=3", "SLURM_NTASKS=4"})}, 3, 4);
}

TEST_CASE("without variables it is one rank of one, and a rank without a size is refused") {
  RequireRanks({}, 0, 1);
  RequireRanks({Environment({"HOME=/"})}, 0, 1);
  // As in a batch system's allocation, outside of its launches.
  RequireRanks({Environment({"SLURM_NTASKS=3"})}, 0, 1);
  const auto half = RanksFrom({Environment({"PMI_RANK=2", "MY_PMI_SIZE=3"})});
  REQUIRE_FALSE(half.ok());
  CHECK_THAT(std::string(half.status().message()), Catch::Contains("PMI_RANK=2, but not PMI_SIZE"));
}

TEST_CASE("a batch system's variables around another launcher's make no rank") {
  RequireRanks({Environment({"SLURM_PROCID=0", "SLURM_NTASKS=4", "PMI_RANK=3", "PMI_SIZE=4"})}, 3, 4);
  RequireRanks({Environment({"SLURM_PROCID=0", "SLURM_NTASKS=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}),
                Environment(kBatch), Environment({})},
               1, 2);
}

TEST_CASE("the innermost of nested launchers wins, whichever it is") {
  const std::string outer = Environment({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"});
  SECTION("a launcher of PMI in one of Open MPI") {
    RequireRanks({Environment({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMI_RANK=2", "PMI_SIZE=4"}), outer},
                 2, 4);
  }
  SECTION("srun in one of Open MPI") {
    RequireRanks(
        {Environment({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=2", "SLURM_NTASKS=4"}), outer},
        2, 4);
  }
  SECTION("srun in a job of the same batch system, in a launcher of PMI, in a wrapper") {
    const std::string own = Environment({"SLURM_PROCID=1", "SLURM_NTASKS=2", "PMI_RANK=0", "PMI_SIZE=1"});
    RequireRanks(
        {own, own, Environment({"SLURM_PROCID=0", "SLURM_NTASKS=4", "PMI_RANK=0", "PMI_SIZE=1"}), Environment(kBatch)},
        1, 2);
  }
}

TEST_CASE("a rank that can't be is refused, naming the variables") {
  const std::string size = GENERATE("2", "many", "-1", "99999999999");
  const auto ranks = RanksFrom({Environment({"PMI_RANK=2", "PMI_SIZE=" + size})});
  REQUIRE_FALSE(ranks.ok());
  CHECK(ranks.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(ranks.status().message()), Catch::Contains("PMI_RANK=2 and PMI_SIZE=" + size));
}

TEST_CASE("a negative rank is refused") { CHECK_FALSE(RanksFrom({Environment({"PMI_RANK=-1", "PMI_SIZE=2"})}).ok()); }

}  // namespace
}  // namespace paramd
