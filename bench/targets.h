// What paramd is to reach, against what one run of the benchmark measured.
#ifndef PARAMD_BENCH_TARGETS_H_
#define PARAMD_BENCH_TARGETS_H_

#include <optional>
#include <string>
#include <vector>

#include "bench/fleet.h"
#include "bench/matrix.h"

namespace paramd::bench {

struct Target {
  std::string what;
  std::string required;
  std::optional<double> measured;  // absent: not measured in this run
  bool met = false;
};

std::vector<Target> CheckTargets(const std::vector<Row>& rows, const std::vector<FleetRow>& fleet,
                                 const std::optional<IdleResult>& idle);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TARGETS_H_
