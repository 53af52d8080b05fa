// Many workers of a small model: how many exchanges a second, and how fairly.
#ifndef PARAMD_BENCH_FLEET_H_
#define PARAMD_BENCH_FLEET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/transport.h"

namespace paramd::bench {

struct FleetRow {
  int workers = 0;  // that exchange; as many as the largest number have joined
  std::string transport;
  double exchanges_per_s = 0;    // all workers together; as all below, the median over rounds
  double slowest_over_mean = 0;  // the slowest worker's rate over the mean rate
  double p50_us = 0;
  double p99_us = 0;
  std::string unavailable;  // why nothing was measured, if so
};

// In each of the rounds, for each number of workers in turns: they exchange as fast as they can for the time of
// `slice`.
absl::StatusOr<std::vector<FleetRow>> RunFleet(const Programs& programs, const std::vector<int>& workers, size_t bytes,
                                               int rounds, absl::Duration slice);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_FLEET_H_
