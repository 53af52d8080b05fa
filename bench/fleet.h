// Many workers of a small model: how many exchanges a second, how fairly, and what they cost while they do nothing.
#ifndef PARAMD_BENCH_FLEET_H_
#define PARAMD_BENCH_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/transport.h"

namespace paramd::bench {

struct FleetRow {
  int workers = 0;
  std::string transport;
  double exchanges_per_s = 0;    // all workers together; as all below, the median over rounds
  double slowest_over_mean = 0;  // the slowest worker's rate over the mean rate
  double p50_us = 0;
  double p99_us = 0;
};

// Every worker exchanges as fast as it can for the time of `slice`, in each of the rounds.
absl::StatusOr<std::vector<FleetRow>> RunFleet(const Programs& programs, const std::vector<int>& workers, size_t bytes,
                                               int rounds, absl::Duration slice);

struct IdleResult {
  int workers = 0;
  size_t model_bytes = 0;
  double cpu_share = 0;  // of one core
  uint64_t resident_bytes = 0;
  std::string unavailable;  // why nothing was measured, if so
};

// A daemon with so many workers that have joined and pulled once, watched for `time`.
IdleResult RunIdle(const Programs& programs, int workers, size_t bytes, absl::Duration time);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_FLEET_H_
