// The results as a page for people (Markdown) and as JSON for programs.
#ifndef PARAMD_BENCH_REPORT_H_
#define PARAMD_BENCH_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/fleet.h"
#include "bench/matrix.h"

namespace paramd::bench {

struct Results {
  std::string settings;  // of the run, one line
  std::vector<Row> rows;
  std::vector<FleetRow> fleet;
  std::optional<IdleResult> idle;
};

std::string FormatMarkdown(const Results& results);

// UNAVAILABLE if the file can't be written.
absl::Status WriteJson(const Results& results, const std::string& path);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_REPORT_H_
