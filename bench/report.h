// The results as a page for people (Markdown) and as JSON for programs.
#ifndef PARAMD_BENCH_REPORT_H_
#define PARAMD_BENCH_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "bench/results.h"

namespace paramd::bench {

std::string FormatMarkdown(const Results& results);

// UNAVAILABLE if the file can't be written.
absl::Status WriteJson(const Results& results, const std::string& path);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_REPORT_H_
