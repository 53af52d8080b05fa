#include "bench/fleet.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/statistics.h"
#include "bench/worker_process.h"

namespace paramd::bench {
namespace {

constexpr const char* kTransports[] = {"grpc-tcp", "shm", "raw-tcp"};

// The workers, and for each transport its server, to which all are connected, or why it has none.
struct Fleet {
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  std::map<std::string, RunningServer> servers;
  std::map<std::string, std::string> unavailable;
};

absl::StatusOr<Fleet> StartFleet(const Programs& programs, int workers, size_t bytes) {
  Fleet fleet;
  for (int i = 0; i < workers; ++i) {
    auto worker = WorkerProcess::Start(programs, absl::StrCat("worker-", i), bytes);
    if (!worker.ok()) return worker.status();
    fleet.workers.push_back(*std::move(worker));
  }
  for (const char* name : kTransports) {
    auto server = StartServer(FindTransport(name), programs, bytes);
    absl::Status status = server.status();
    for (const auto& worker : fleet.workers) {
      if (status.ok()) status = worker->Connect(name, server->address);
    }
    fleet.unavailable[name] = std::string(status.message());
    if (server.ok()) fleet.servers[name] = *std::move(server);
  }
  return fleet;
}

absl::StatusOr<FleetRow> RunRound(const Fleet& fleet, int workers, const std::string& transport, absl::Duration slice) {
  for (int i = 0; i < workers; ++i) {
    if (auto status = fleet.workers[i]->Begin(transport, Operation::kExchange, slice, 1); !status.ok()) return status;
  }
  std::vector<double> latencies;
  FleetRow row;
  double slowest = 0;
  for (int i = 0; i < workers; ++i) {
    auto ran = fleet.workers[i]->End();
    if (!ran.ok()) return ran.status();
    const double rate =
        static_cast<double>(ran->latencies_us.size()) / (static_cast<double>(ran->end_ns - ran->start_ns) * 1e-9);
    slowest = i == 0 ? rate : std::min(slowest, rate);
    row.exchanges_per_s += rate;
    latencies.insert(latencies.end(), ran->latencies_us.begin(), ran->latencies_us.end());
  }
  row.slowest_over_mean = slowest * workers / row.exchanges_per_s;
  row.p50_us = Quantile(latencies, 0.5);
  row.p99_us = Quantile(latencies, 0.99);
  return row;
}

double MedianOf(const std::vector<FleetRow>& rounds, double FleetRow::*member) {
  std::vector<double> values;
  for (const FleetRow& round : rounds) values.push_back(round.*member);
  return Median(values);
}

}  // namespace

absl::StatusOr<std::vector<FleetRow>> RunFleet(const Programs& programs, const std::vector<int>& workers, size_t bytes,
                                               int rounds, absl::Duration slice) {
  auto fleet = StartFleet(programs, *std::max_element(workers.begin(), workers.end()), bytes);
  if (!fleet.ok()) return fleet.status();
  std::map<std::pair<int, std::string>, std::vector<FleetRow>> results;
  // Round 0 warms up and does not count.
  for (int r = 0; r <= rounds; ++r) {
    for (const int count : workers) {
      for (const char* transport : kTransports) {
        if (!fleet->unavailable[transport].empty()) continue;
        auto round = RunRound(*fleet, count, transport, r == 0 ? slice / 10 : slice);
        if (!round.ok()) return round.status();
        if (r > 0) results[{count, transport}].push_back(*std::move(round));
      }
    }
  }
  std::vector<FleetRow> rows;
  for (const int count : workers) {
    for (const char* transport : kTransports) {
      const std::vector<FleetRow>& result = results[{count, transport}];
      rows.push_back({.workers = count,
                      .transport = transport,
                      .exchanges_per_s = MedianOf(result, &FleetRow::exchanges_per_s),
                      .slowest_over_mean = MedianOf(result, &FleetRow::slowest_over_mean),
                      .p50_us = MedianOf(result, &FleetRow::p50_us),
                      .p99_us = MedianOf(result, &FleetRow::p99_us),
                      .unavailable = fleet->unavailable[transport]});
    }
  }
  return rows;
}

}  // namespace paramd::bench
