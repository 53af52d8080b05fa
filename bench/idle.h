// What workers cost that do nothing.
#ifndef PARAMD_BENCH_IDLE_H_
#define PARAMD_BENCH_IDLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/transport.h"

namespace paramd::bench {

struct IdleRow {
  std::string what;  // idle: they have joined and pulled once; waiting: in a pull, for a first center
  int workers = 0;
  double cpu_share = 0;     // of one core
  double resident_mb = 0;   // of the daemon, beside the model
  std::string unavailable;  // why nothing was measured, if so
};

// A daemon with so many workers, watched for `time`, once for each kind.
std::vector<IdleRow> RunIdle(const Programs& programs, int workers, size_t bytes, absl::Duration time);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_IDLE_H_
