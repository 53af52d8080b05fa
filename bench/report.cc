#include "bench/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bench/targets.h"
#include "proto/version.h"

namespace paramd::bench {
namespace {

constexpr char kNone[] = "–";

// Three digits.
std::string Format(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : magnitude >= 1 ? 2 : 3;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string Format(const std::optional<double>& value) { return value.has_value() ? Format(*value) : kNone; }

std::string FormatBytes(size_t bytes) {
  return bytes < 100'000 ? absl::StrCat(Format(static_cast<double>(bytes) * 1e-3), " kB")
                         : absl::StrCat(Format(static_cast<double>(bytes) * 1e-6), " MB");
}

void AppendTable(const std::vector<std::vector<std::string>>& lines, std::string* out) {
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(out, "| ", absl::StrJoin(lines[i], " | "), " |\n");
    if (i == 0) absl::StrAppend(out, "|", absl::StrJoin(std::vector<std::string>(lines[0].size(), "---"), "|"), "|\n");
  }
}

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && line.rfind("model name", 0) == 0) return std::string(absl::StripAsciiWhitespace(parts[1]));
  }
  return "an unnamed processor";
}

std::string Machine() {
  utsname system = {};
  uname(&system);
  return absl::StrCat(Processor(), ", ", std::thread::hardware_concurrency(), " threads, ", system.sysname, " ",
                      system.release);
}

// Rows of one size beside one another, then of one number of workers.
std::vector<Row> Sorted(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.bytes, a.workers) < std::pair(b.bytes, b.workers);
  });
  return rows;
}

nlohmann::json Json(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json Text(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

}  // namespace

std::string FormatMarkdown(const Results& results) {
  std::string out = absl::StrCat("paramd ", kVersion, " on ", Machine(), "; ", results.settings, ".\n");
  if (!results.rows.empty()) {
    std::vector<std::vector<std::string>> lines = {{"operation", "bytes", "workers", "transport", "wire", "GB/s",
                                                    "p50 µs", "p99 µs", "server CPU s/GB", "peak/model", "baseline",
                                                    "ratio"}};
    for (const Row& row : Sorted(results.rows)) {
      const std::string rate =
          row.unavailable.empty() ? Format(row.gb_per_s) : absl::StrCat("not measured: ", row.unavailable);
      lines.push_back({Name(row.operation), FormatBytes(row.bytes), absl::StrCat(row.workers), row.transport, row.wire,
                       rate, Format(row.p50_us), Format(row.p99_us), Format(row.server_cpu_s_per_gb),
                       Format(row.peak_over_model), row.baseline.empty() ? kNone : row.baseline, Format(row.ratio)});
    }
    absl::StrAppend(&out, "\n");
    AppendTable(lines, &out);
  }
  if (!results.fleet.empty()) {
    std::vector<std::vector<std::string>> lines = {
        {"workers, 4 kB model", "transport", "exchanges/s", "slowest/mean", "p50 µs", "p99 µs", "p99/p50"}};
    for (const FleetRow& row : results.fleet) {
      lines.push_back({absl::StrCat(row.workers), row.transport, Format(row.exchanges_per_s),
                       Format(row.slowest_over_mean), Format(row.p50_us), Format(row.p99_us),
                       Format(row.p99_us / row.p50_us)});
    }
    absl::StrAppend(&out, "\n");
    AppendTable(lines, &out);
  }
  if (results.idle.has_value()) {
    absl::StrAppend(&out, "\nA daemon with ", results.idle->workers, " joined, idle workers: ");
    if (results.idle->unavailable.empty()) {
      absl::StrAppend(&out, Format(100 * results.idle->cpu_share), " % of a core, ",
                      Format(static_cast<double>(results.idle->resident_bytes) * 1e-6), " MB resident.\n");
    } else {
      absl::StrAppend(&out, "not measured: ", results.idle->unavailable, "\n");
    }
  }
  std::vector<std::vector<std::string>> lines = {{"target", "required", "measured", "met"}};
  for (const Target& target : CheckTargets(results.rows, results.fleet, results.idle)) {
    lines.push_back({target.what, target.required,
                     target.measured.has_value() ? Format(*target.measured) : "not measured",
                     !target.measured.has_value() ? kNone
                     : target.met                 ? "yes"
                                                  : "no"});
  }
  absl::StrAppend(&out, "\n");
  AppendTable(lines, &out);
  return out;
}

absl::Status WriteJson(const Results& results, const std::string& path) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : Sorted(results.rows)) {
    rows.push_back({{"operation", Name(row.operation)},
                    {"bytes", row.bytes},
                    {"workers", row.workers},
                    {"transport", row.transport},
                    {"wire", row.wire},
                    {"gb_per_s", Json(row.gb_per_s)},
                    {"p50_us", Json(row.p50_us)},
                    {"p99_us", Json(row.p99_us)},
                    {"server_cpu_s_per_gb", Json(row.server_cpu_s_per_gb)},
                    {"peak_over_model", Json(row.peak_over_model)},
                    {"baseline", Text(row.baseline)},
                    {"ratio", Json(row.ratio)},
                    {"not_measured", Text(row.unavailable)}});
  }
  nlohmann::json fleet = nlohmann::json::array();
  for (const FleetRow& row : results.fleet) {
    fleet.push_back({{"workers", row.workers},
                     {"transport", row.transport},
                     {"exchanges_per_s", row.exchanges_per_s},
                     {"slowest_over_mean", row.slowest_over_mean},
                     {"p50_us", row.p50_us},
                     {"p99_us", row.p99_us}});
  }
  nlohmann::json idle;
  if (results.idle.has_value()) {
    const bool measured = results.idle->unavailable.empty();
    idle = {{"workers", results.idle->workers},
            {"model_bytes", results.idle->model_bytes},
            {"cpu_share", measured ? nlohmann::json(results.idle->cpu_share) : nlohmann::json()},
            {"resident_bytes", measured ? nlohmann::json(results.idle->resident_bytes) : nlohmann::json()},
            {"not_measured", Text(results.idle->unavailable)}};
  }
  nlohmann::json targets = nlohmann::json::array();
  for (const Target& target : CheckTargets(results.rows, results.fleet, results.idle)) {
    targets.push_back({{"target", target.what},
                       {"required", target.required},
                       {"measured", Json(target.measured)},
                       {"met", target.measured.has_value() ? nlohmann::json(target.met) : nlohmann::json()}});
  }
  std::ofstream file(path);
  file << nlohmann::json({{"version", kVersion},
                          {"machine", Machine()},
                          {"settings", results.settings},
                          {"rows", rows},
                          {"many_workers", fleet},
                          {"idle", idle},
                          {"targets", targets}})
              .dump(2)
       << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("can't write ", path, "; does its folder exist?"));
  return absl::OkStatus();
}

}  // namespace paramd::bench
