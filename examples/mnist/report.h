// What a worker process tells the one that started it, and what a launcher tells its user's programs: small JSON
// files.
#ifndef PARAMD_EXAMPLES_MNIST_REPORT_H_
#define PARAMD_EXAMPLES_MNIST_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paramd {

// How far a worker is.
struct WorkerProgress {
  double epoch = 0;    // position in the data
  int64_t epochs = 0;  // in all
  double samples_per_s = 0;
  double loss = 0;      // mean since the last report
  double accuracy = 0;  // the same
};

// What a worker did.
struct WorkerSummary {
  double start_s = 0;  // on this machine's steady clock, when training began
  double wall_s = 0;   // of training
  double exchanging_s = 0;
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t exchanges = 0;
  int64_t epochs = 0;
  double mean_staleness = 0;
  double last_loss = 0;
  bool reached_target_loss = false;
  std::string transport;  // how floats travelled, and as what; empty without a server
  std::string wire;
  std::optional<double> test_accuracy;  // of a worker without a server
};

// A row of the final table.
struct Run {
  std::string algorithm;
  int64_t workers = 0;
  int64_t window = 0;  // minibatches between two exchanges; 0: one exchange an epoch, or none
  int64_t epochs = 0;
  int64_t updates = 0;  // commits applied to the center
  double mean_staleness = 0;
  double wall_s = 0;
  double samples_per_s = 0;  // trained by all workers together
  double test_accuracy = 0;  // in [0, 1]
  // How the workers' floats travelled, and as what; joined by + where workers differ, empty without a server.
  std::string transport;
  std::string wire;
};

std::string ToJson(const WorkerProgress& progress);
std::string ToJson(const WorkerSummary& summary);
// {"runs": [...]}, one object a row, with the names of Run's fields.
std::string ToJson(const std::vector<Run>& runs);

// INVALID_ARGUMENT if `json` is not what ToJson made.
absl::StatusOr<WorkerProgress> ParseWorkerProgress(const std::string& json);
absl::StatusOr<WorkerSummary> ParseWorkerSummary(const std::string& json);

// Replaces the file at once: a reader sees the old content or the new. UNKNOWN, with the system's text, if it can't.
absl::Status WriteFile(const std::string& path, const std::string& content);

// NOT_FOUND if the file can't be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_REPORT_H_
