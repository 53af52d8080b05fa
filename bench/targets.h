// What paramd is to reach, against what one run of the benchmark measured.
#ifndef PARAMD_BENCH_TARGETS_H_
#define PARAMD_BENCH_TARGETS_H_

#include <optional>
#include <string>
#include <vector>

#include "bench/results.h"

namespace paramd::bench {

struct Target {
  std::string what;
  std::string required;
  std::optional<double> measured;
  bool met = false;
  std::string unavailable;  // why it was not measured, if so
};

// Of those modes that the results are of.
std::vector<Target> CheckTargets(const Results& results);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TARGETS_H_
