#include "bench/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bench/table.h"
#include "bench/targets.h"
#include "proto/version.h"

namespace paramd::bench {
namespace {

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

// Null in a row that was not measured.
template <typename Row, typename Number>
nlohmann::json Measured(const Row& row, Number value) {
  return row.unavailable.empty() ? nlohmann::json(value) : nlohmann::json();
}

Table MatrixTable(std::vector<Row> rows) {
  // Rows of one size beside one another, then of one number of workers.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.bytes, a.workers) < std::pair(b.bytes, b.workers);
  });
  Table table = {.key = "rows",
                 .columns = {{"operation", "operation"},
                             {"bytes", "bytes", true},
                             {"workers", "workers"},
                             {"transport", "transport"},
                             {"wire", "wire"},
                             {"GB/s", "gb_per_s"},
                             {"p50 µs", "p50_us"},
                             {"p99 µs", "p99_us"},
                             {"server CPU s/GB", "server_cpu_s_per_gb"},
                             {"peak/model", "peak_over_model"},
                             {"baseline", "baseline"},
                             {"ratio", "ratio"}}};
  for (const Row& row : rows) {
    table.lines.push_back({{Name(row.operation), row.bytes, row.workers, row.transport, row.wire, Cell(row.gb_per_s),
                            Cell(row.p50_us), Cell(row.p99_us), Cell(row.server_cpu_s_per_gb),
                            Cell(row.peak_over_model), Cell(row.baseline), Cell(row.ratio)},
                           row.unavailable});
  }
  return table;
}

Table FleetTable(const std::vector<FleetRow>& rows) {
  Table table = {.key = "many_workers",
                 .columns = {{"workers, 4 kB model", "workers"},
                             {"transport", "transport"},
                             {"exchanges/s", "exchanges_per_s"},
                             {"slowest/mean", "slowest_over_mean"},
                             {"p50 µs", "p50_us"},
                             {"p99 µs", "p99_us"},
                             {"p99/p50", "p99_over_p50"}}};
  for (const FleetRow& row : rows) {
    table.lines.push_back(
        {{row.workers, row.transport, Measured(row, row.exchanges_per_s), Measured(row, row.slowest_over_mean),
          Measured(row, row.p50_us), Measured(row, row.p99_us), Measured(row, row.p99_us / row.p50_us)},
         row.unavailable});
  }
  return table;
}

Table IdleTable(const std::vector<IdleRow>& rows) {
  Table table = {.key = "idle",
                 .columns = {{"workers", "workers"},
                             {"that are", "what"},
                             {"daemon's share of a core", "cpu_share"},
                             {"its MB beside the model", "resident_mb"}}};
  for (const IdleRow& row : rows) {
    table.lines.push_back(
        {{row.workers, row.what, Measured(row, row.cpu_share), Measured(row, row.resident_mb)}, row.unavailable});
  }
  return table;
}

Table OverlapTable(const std::vector<OverlapRow>& rows) {
  Table table = {.key = "overlap",
                 .columns = {{"bytes", "bytes", true},
                             {"training ms/window", "window_ms"},
                             {"transport", "transport"},
                             {"windows/s alone", "alone_per_s"},
                             {"waiting", "waiting_per_s"},
                             {"overlapped", "overlapped_per_s"},
                             {"exchange ms", "exchange_ms"},
                             {"hidden", "hidden"},
                             {"at best", "hidden_at_best"}}};
  for (const OverlapRow& row : rows) {
    table.lines.push_back({{row.bytes, absl::ToDoubleMilliseconds(row.window), row.transport, Measured(row, row.alone),
                            Measured(row, row.waiting), Measured(row, row.overlapped), Measured(row, row.exchange_ms),
                            Measured(row, row.hidden), Measured(row, row.hidden_at_best)},
                           row.unavailable});
  }
  return table;
}

Table MnistTable(const std::vector<MnistRow>& rows) {
  Table table = {.key = "mnist",
                 .columns = {{"MNIST, workers", "workers"},
                             {"window", "window"},
                             {"transport", "transport"},
                             {"share of time in exchanges", "exchanging"},
                             {"samples/s", "samples_per_s"},
                             {"over workers that never exchange", "over_alone"}}};
  for (const MnistRow& row : rows) {
    table.lines.push_back({{row.workers, row.window, row.transport, Measured(row, row.exchanging),
                            Measured(row, row.samples_per_s), Measured(row, row.over_alone)},
                           row.unavailable});
  }
  return table;
}

Table LinkTable(const std::vector<LinkRow>& rows) {
  Table table = {.key = "link",
                 .columns = {{"bytes, link of 1 Gbit/s", "bytes", true},
                             {"wire", "wire"},
                             {"exchanges/s", "exchanges_per_s"},
                             {"MB/s on the link, both directions", "mb_per_s"},
                             {"over f32", "over_f32"}}};
  for (const LinkRow& row : rows) {
    table.lines.push_back({{row.bytes, row.wire, Measured(row, row.exchanges_per_s), Measured(row, row.megabytes_per_s),
                            Measured(row, row.over_f32)},
                           row.unavailable});
  }
  return table;
}

Table TrainingTable(const std::vector<TrainingRow>& rows) {
  Table table = {.key = "training",
                 .columns = {{"training step, optimizer", "optimizer"},
                             {"µs", "us_per_step"},
                             {"baseline", "baseline"},
                             {"its µs", "baseline_us_per_step"},
                             {"ratio", "ratio"}}};
  for (const TrainingRow& row : rows) {
    table.lines.push_back(
        {{row.optimizer, Cell(row.us_per_step), Cell(row.baseline), Cell(row.baseline_us_per_step), Cell(row.ratio)},
         row.unavailable});
  }
  return table;
}

Table TargetTable(const std::vector<Target>& targets) {
  Table table = {
      .key = "targets",
      .columns = {{"target", "target"}, {"required", "required"}, {"measured", "measured"}, {"reached", "reached"}}};
  for (const Target& target : targets) {
    const bool measured = target.measured.has_value();
    table.lines.push_back({{target.what, target.required, Cell(target.measured),
                            measured ? nlohmann::json(target.met) : nlohmann::json()},
                           target.unavailable});
  }
  return table;
}

std::vector<Table> AllTables(const Results& results) {
  return {TargetTable(CheckTargets(results)),
          MatrixTable(results.rows),
          FleetTable(results.fleet),
          IdleTable(results.idle),
          OverlapTable(results.overlap),
          MnistTable(results.mnist),
          LinkTable(results.link),
          TrainingTable(results.training)};
}

}  // namespace

std::string FormatMarkdown(const Results& results) {
  std::string out = absl::StrCat("paramd ", kVersion, " on ", Machine(), "; ", results.settings, ".\n");
  for (const Table& table : AllTables(results)) {
    if (!table.lines.empty()) absl::StrAppend(&out, "\n", FormatMarkdown(table));
  }
  return out;
}

absl::Status WriteJson(const Results& results, const std::string& path) {
  nlohmann::json all = {{"version", kVersion}, {"machine", Machine()}, {"settings", results.settings}};
  for (const Table& table : AllTables(results)) all[table.key] = ToJson(table);
  std::ofstream file(path);
  file << all.dump(2) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("can't write ", path, "; does its folder exist?"));
  return absl::OkStatus();
}

}  // namespace paramd::bench
