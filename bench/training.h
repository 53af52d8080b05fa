// A training step of the example's network beside PyTorch's, which scripts/training_bench.sh measures.
#ifndef PARAMD_BENCH_TRAINING_H_
#define PARAMD_BENCH_TRAINING_H_

#include <optional>
#include <string>
#include <vector>

namespace paramd::bench {

struct TrainingRow {
  std::string optimizer;
  std::optional<double> us_per_step;
  std::string baseline;
  std::optional<double> baseline_us_per_step;
  std::optional<double> ratio;  // of the times, the median over pairs of rounds
  std::string unavailable;      // why there is no ratio, if so
};

// What the script wrote to `path` as JSON.
std::vector<TrainingRow> ReadTraining(const std::string& path);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TRAINING_H_
