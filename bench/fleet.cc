#include "bench/fleet.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/statistics.h"
#include "bench/worker_process.h"

namespace paramd::bench {
namespace {

constexpr const char* kTransports[] = {"grpc-tcp", "raw-tcp"};
constexpr absl::Duration kSettle = absl::Seconds(1);

struct Fleet {
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  std::map<std::string, RunningServer> servers;
};

absl::StatusOr<Fleet> StartFleet(const Programs& programs, int workers, size_t bytes) {
  Fleet fleet;
  for (const char* name : kTransports) {
    auto server = StartServer(FindTransport(name), programs, bytes);
    if (!server.ok()) return server.status();
    fleet.servers[name] = *std::move(server);
  }
  for (int i = 0; i < workers; ++i) {
    auto worker = WorkerProcess::Start(programs.self, absl::StrCat("worker-", i), bytes, programs.algorithm,
                                       programs.tune_malloc);
    if (!worker.ok()) return worker.status();
    for (const char* name : kTransports) {
      if (auto status = (*worker)->Connect(name, fleet.servers[name].address); !status.ok()) return status;
    }
    fleet.workers.push_back(*std::move(worker));
  }
  return fleet;
}

absl::StatusOr<FleetRow> RunRound(const Fleet& fleet, const std::string& transport, absl::Duration slice) {
  for (const auto& worker : fleet.workers) {
    if (auto status = worker->Begin(transport, Operation::kExchange, slice, 1); !status.ok()) return status;
  }
  std::vector<double> latencies;
  FleetRow row;
  double slowest = 0;
  for (const auto& worker : fleet.workers) {
    auto ran = worker->End();
    if (!ran.ok()) return ran.status();
    const double rate =
        static_cast<double>(ran->latencies_us.size()) / (static_cast<double>(ran->end_ns - ran->start_ns) * 1e-9);
    slowest = row.exchanges_per_s == 0 ? rate : std::min(slowest, rate);
    row.exchanges_per_s += rate;
    latencies.insert(latencies.end(), ran->latencies_us.begin(), ran->latencies_us.end());
  }
  row.slowest_over_mean = slowest * static_cast<double>(fleet.workers.size()) / row.exchanges_per_s;
  row.p50_us = Quantile(latencies, 0.5);
  row.p99_us = Quantile(latencies, 0.99);
  return row;
}

double MedianOf(const std::vector<FleetRow>& rounds, double FleetRow::*member) {
  std::vector<double> values;
  for (const FleetRow& round : rounds) values.push_back(round.*member);
  return Median(values);
}

absl::StatusOr<IdleResult> MeasureIdle(const Programs& programs, int workers, size_t bytes, absl::Duration time) {
  auto server = StartServer(FindTransport("grpc-tcp"), programs, bytes);
  if (!server.ok()) return server.status();
  auto process = WorkerProcess::Start(programs.self, "idle", bytes, programs.algorithm, programs.tune_malloc);
  if (!process.ok()) return process.status();
  for (int i = 0; i < workers; ++i) {
    if (auto status = (*process)->Connect(absl::StrCat(i), server->address); !status.ok()) return status;
  }
  absl::SleepFor(kSettle);
  const double cpu = server->child->CpuSeconds();
  const absl::Time start = absl::Now();
  absl::SleepFor(time);
  IdleResult result;
  result.cpu_share = (server->child->CpuSeconds() - cpu) / absl::ToDoubleSeconds(absl::Now() - start);
  result.resident_bytes = server->child->StatusBytes("VmRSS");
  return result;
}

}  // namespace

absl::StatusOr<std::vector<FleetRow>> RunFleet(const Programs& programs, const std::vector<int>& workers, size_t bytes,
                                               int rounds, absl::Duration slice) {
  std::vector<FleetRow> rows;
  for (const int count : workers) {
    auto fleet = StartFleet(programs, count, bytes);
    if (!fleet.ok()) return fleet.status();
    std::map<std::string, std::vector<FleetRow>> results;
    // Round 0 warms up and does not count.
    for (int r = 0; r <= rounds; ++r) {
      for (const char* transport : kTransports) {
        auto round = RunRound(*fleet, transport, r == 0 ? slice / 10 : slice);
        if (!round.ok()) return round.status();
        if (r > 0) results[transport].push_back(*round);
      }
    }
    for (const char* transport : kTransports) {
      const std::vector<FleetRow>& result = results[transport];
      rows.push_back({.workers = count,
                      .transport = transport,
                      .exchanges_per_s = MedianOf(result, &FleetRow::exchanges_per_s),
                      .slowest_over_mean = MedianOf(result, &FleetRow::slowest_over_mean),
                      .p50_us = MedianOf(result, &FleetRow::p50_us),
                      .p99_us = MedianOf(result, &FleetRow::p99_us)});
    }
  }
  return rows;
}

IdleResult RunIdle(const Programs& programs, int workers, size_t bytes, absl::Duration time) {
  auto measured = MeasureIdle(programs, workers, bytes, time);
  IdleResult result;
  if (measured.ok()) {
    result = *measured;
  } else {
    result.unavailable = std::string(measured.status().message());
  }
  result.workers = workers;
  result.model_bytes = bytes;
  return result;
}

}  // namespace paramd::bench
