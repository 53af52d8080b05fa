#include "bench/matrix.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/statistics.h"
#include "bench/worker_process.h"

namespace paramd::bench {
namespace {

constexpr int kLeastRounds = 3;
// Of a smaller model the process itself outweighs the peak.
constexpr size_t kLeastPeakBytes = 4'000'000;
constexpr int kPeakOperations = 4;

struct Cell {
  Operation operation;
  size_t bytes;
  int workers;

  double gigabytes(size_t operations) const {
    return static_cast<double>(operations) * static_cast<double>(bytes) * (Pulls(operation) + Commits(operation)) *
           1e-9;
  }
};

using Workers = std::vector<std::unique_ptr<WorkerProcess>>;

// One round of one transport.
struct Round {
  double gb_per_s = 0;
  double gigabytes = 0;
  double server_cpu_s = 0;
  std::vector<double> latencies_us;
};

absl::StatusOr<Round> RunRound(const Cell& cell, const std::string& key, const RunningServer& server,
                               const Workers& workers, absl::Duration slice, int min_operations) {
  const double cpu = server.child != nullptr ? server.child->CpuSeconds() : 0;
  absl::Status status;
  int begun = 0;
  while (begun < cell.workers && status.ok()) {
    status = workers[begun]->Begin(key, cell.operation, slice, min_operations);
    if (status.ok()) ++begun;
  }
  Round round;
  int64_t start = INT64_MAX;
  int64_t end = 0;
  // Also after an error: an answer that is not read would be taken for that of the next round.
  for (int i = 0; i < begun; ++i) {
    auto ran = workers[i]->End();
    if (!ran.ok()) {
      status.Update(ran.status());
      continue;
    }
    start = std::min(start, ran->start_ns);
    end = std::max(end, ran->end_ns);
    round.gigabytes += cell.gigabytes(ran->latencies_us.size());
    round.latencies_us.insert(round.latencies_us.end(), ran->latencies_us.begin(), ran->latencies_us.end());
  }
  if (!status.ok()) return status;
  round.gb_per_s = round.gigabytes / (static_cast<double>(end - start) * 1e-9);
  if (server.child != nullptr) round.server_cpu_s = server.child->CpuSeconds() - cpu;
  return round;
}

uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  uint64_t kilobytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kilobytes) break;
  }
  return kilobytes << 10;
}

// Not empty if the cell would need too much of this machine's memory.
std::string TooLarge(const Cell& cell, const Transport& transport) {
  const uint64_t needed = static_cast<uint64_t>(cell.workers) * cell.bytes * static_cast<uint64_t>(transport.copies);
  const uint64_t available = AvailableMemory();
  if (needed <= available / 4 * 3) return "";
  return absl::StrCat("it may need ", needed >> 20, " MiB, more than three quarters of the ", available >> 20, " MiB available");
}

// The peak of a daemon that has done nothing else.
absl::StatusOr<double> MeasurePeak(const Cell& cell, const Transport& transport, const MatrixOptions& options,
                                   const Workers& workers) {
  const std::string key = "peak";
  auto server = StartServer(transport, options.programs, cell.bytes);
  if (!server.ok()) return server.status();
  absl::Status status;
  for (int i = 0; i < cell.workers; ++i) status.Update(workers[i]->Connect(key, server->address));
  if (status.ok()) status = RunRound(cell, key, *server, workers, 2 * options.slice, kPeakOperations).status();
  const uint64_t peak = server->child->StatusBytes("VmHWM");
  for (int i = 0; i < cell.workers; ++i) status.Update(workers[i]->Disconnect(key));
  if (!status.ok()) return status;
  return static_cast<double>(peak) / static_cast<double>(cell.bytes);
}

std::vector<double> Rates(const std::vector<Round>& rounds) {
  std::vector<double> rates;
  for (const Round& round : rounds) rates.push_back(round.gb_per_s);
  return rates;
}

// Of each round, the latency that the part `q` of operations stay within.
std::vector<double> Latencies(const std::vector<Round>& rounds, double q) {
  std::vector<double> latencies;
  for (const Round& round : rounds) latencies.push_back(Quantile(round.latencies_us, q));
  return latencies;
}

// All measurements of one size: servers and workers stay for all of them.
class SizeRun {
 public:
  SizeRun(const MatrixOptions& options, size_t bytes) : options_(options), bytes_(bytes) {
    std::vector<int> counts = options.workers;
    std::sort(counts.begin(), counts.end());
    for (const Transport& transport : Transports()) {
      Connected& connected = connected_[transport.key()];
      auto server = StartServer(transport, options_.programs, bytes_);
      absl::Status status = server.status();
      if (server.ok()) connected.server = *std::move(server);
      for (const int count : counts) {
        const std::string too_large = TooLarge({Operation::kExchange, bytes_, count}, transport);
        if (status.ok() && !too_large.empty()) status = absl::ResourceExhaustedError(too_large);
        while (status.ok() && connected.workers < count) {
          status = Connect(transport, connected.server.address, connected.workers);
          if (status.ok()) ++connected.workers;
        }
      }
      connected.why_no_more = std::string(status.message());
    }
  }

  std::vector<Row> Measure(const Cell& cell) {
    std::map<std::string, std::vector<Round>> rounds;
    std::map<std::string, std::string> problems;
    std::vector<const Transport*> running;
    for (const Transport& transport : Transports()) {
      std::string& problem = problems[transport.key()];
      const Connected& connected = connected_[transport.key()];
      problem = cell.workers > connected.workers ? connected.why_no_more : TooLarge(cell, transport);
      if (problem.empty()) running.push_back(&transport);
    }
    std::map<std::string, absl::Duration> spent;
    std::minstd_rand random;
    // Round 0 warms up and does not count.
    for (int r = 0; r <= options_.rounds; ++r) {
      // Nobody always comes after the same one.
      std::shuffle(running.begin(), running.end(), random);
      std::vector<const Transport*> still;
      for (const Transport* transport : running) {
        const std::string key = transport->key();
        const absl::Time start = absl::Now();
        auto round = RunRound(cell, key, connected_[key].server, WorkersOf(*transport),
                              r == 0 ? options_.slice / 10 : options_.slice, 1);
        if (!round.ok()) {
          problems[key] = std::string(round.status().message());
          continue;
        }
        spent[key] += absl::Now() - start;
        if (r > 0) rounds[key].push_back(*std::move(round));
        if (r < kLeastRounds || spent[key] < options_.budget) still.push_back(transport);
      }
      running = std::move(still);
    }
    std::vector<Row> rows;
    for (const Transport& transport : Transports()) {
      rows.push_back(MakeRow(cell, transport, rounds, problems[transport.key()]));
    }
    return rows;
  }

 private:
  struct Connected {
    RunningServer server;
    int workers = 0;  // the first ones are connected to it
    std::string why_no_more;
  };

  Workers& WorkersOf(const Transport& transport) { return transport.untuned ? untuned_ : workers_; }

  // Worker `i`, which may be the first that is not there yet.
  absl::Status Connect(const Transport& transport, const PeerAddress& address, size_t i) {
    Workers& workers = WorkersOf(transport);
    if (i == workers.size()) {
      Programs programs = options_.programs;
      programs.tune_workers &= !transport.untuned;
      auto worker = WorkerProcess::Start(programs, absl::StrCat("worker-", i), bytes_);
      if (!worker.ok()) return worker.status();
      workers.push_back(*std::move(worker));
    }
    return workers[i]->Connect(transport.key(), address);
  }

  Row MakeRow(const Cell& cell, const Transport& transport, std::map<std::string, std::vector<Round>>& rounds,
              const std::string& problem) {
    Row row = {.operation = cell.operation,
               .bytes = cell.bytes,
               .workers = cell.workers,
               .transport = transport.name,
               .wire = transport.wire,
               .baseline = transport.baseline,
               .unavailable = problem};
    if (!problem.empty()) return row;
    std::vector<double> latencies;
    double gigabytes = 0;
    double cpu_s = 0;
    const std::vector<Round>& own = rounds[transport.key()];
    const std::vector<Round>& theirs = rounds[Transport::Key(transport.baseline, "f32")];
    for (const Round& round : own) {
      latencies.insert(latencies.end(), round.latencies_us.begin(), round.latencies_us.end());
      gigabytes += round.gigabytes;
      cpu_s += round.server_cpu_s;
    }
    row.gb_per_s = Median(Rates(own));
    row.p50_us = Quantile(latencies, 0.5);
    row.p99_us = Quantile(latencies, 0.99);
    if (connected_[transport.key()].server.child != nullptr) row.server_cpu_s_per_gb = cpu_s / gigabytes;
    if (!theirs.empty()) {
      row.ratio = MedianRatio(Rates(own), Rates(theirs));
      row.p50_ratio = MedianRatio(Latencies(own, 0.5), Latencies(theirs, 0.5));
      row.p99_ratio = MedianRatio(Latencies(own, 0.99), Latencies(theirs, 0.99));
    }
    if (transport.paramd && cell.bytes >= kLeastPeakBytes) {
      auto peak = MeasurePeak(cell, transport, options_, workers_);
      if (peak.ok()) row.peak_over_model = *peak;
    }
    return row;
  }

  const MatrixOptions& options_;
  const size_t bytes_;
  Workers workers_;
  Workers untuned_;
  std::map<std::string, Connected> connected_;  // by the transport's key
};

std::string FormatBytes(size_t bytes) {
  return bytes < 1'000'000 ? absl::StrCat(bytes / 1000, " kB") : absl::StrCat(bytes / 1'000'000, " MB");
}

}  // namespace

std::vector<Row> RunMatrix(const MatrixOptions& options) {
  std::vector<Row> rows;
  for (const size_t bytes : options.sizes) {
    SizeRun run(options, bytes);
    for (const Operation operation : kOperations) {
      for (const int workers : options.workers) {
        options.progress(absl::StrCat(Name(operation), ", ", FormatBytes(bytes), ", ", workers, " workers"));
        for (Row& row : run.Measure({operation, bytes, workers})) rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace paramd::bench
