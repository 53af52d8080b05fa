// What one run of the benchmark found. What was not asked for is empty.
#ifndef PARAMD_BENCH_RESULTS_H_
#define PARAMD_BENCH_RESULTS_H_

#include <string>
#include <vector>

#include "bench/fleet.h"
#include "bench/idle.h"
#include "bench/link.h"
#include "bench/matrix.h"
#include "bench/mnist.h"
#include "bench/overlap.h"
#include "bench/training.h"

namespace paramd::bench {

struct Results {
  std::string settings;  // of the run, one line
  std::vector<Row> rows;
  std::vector<FleetRow> fleet;
  std::vector<IdleRow> idle;
  std::vector<OverlapRow> overlap;
  std::vector<MnistRow> mnist;
  std::vector<LinkRow> link;
  std::vector<TrainingRow> training;
};

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_RESULTS_H_
