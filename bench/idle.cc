#include "bench/idle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/worker_process.h"

namespace paramd::bench {
namespace {

constexpr absl::Duration kSettle = absl::Seconds(2);

absl::StatusOr<IdleRow> Measure(const Programs& programs, const std::string& peer_kind, int workers, size_t bytes,
                                absl::Duration time) {
  auto server = StartServer(FindTransport("grpc-tcp"), programs, bytes);
  if (!server.ok()) return server.status();
  auto process = WorkerProcess::Start(programs, "idle", bytes);
  if (!process.ok()) return process.status();
  for (int i = 0; i < workers; ++i) {
    const PeerAddress address = {.kind = peer_kind, .address = server->address.address};
    if (auto status = (*process)->Connect(absl::StrCat(i), address); !status.ok()) return status;
  }
  absl::SleepFor(kSettle);
  const double cpu = server->child->CpuSeconds();
  const absl::Time start = absl::Now();
  absl::SleepFor(time);
  IdleRow row;
  row.cpu_share = (server->child->CpuSeconds() - cpu) / absl::ToDoubleSeconds(absl::Now() - start);
  const uint64_t resident = server->child->StatusBytes("VmRSS");
  row.resident_mb = static_cast<double>(resident - std::min<uint64_t>(resident, bytes)) * 1e-6;
  return row;
}

}  // namespace

std::vector<IdleRow> RunIdle(const Programs& programs, int workers, size_t bytes, absl::Duration time) {
  std::vector<IdleRow> rows;
  for (const auto& [what, peer_kind] : {std::pair("idle", "grpc"), std::pair("waiting", "waiting")}) {
    auto measured = Measure(programs, peer_kind, workers, bytes, time);
    IdleRow row = measured.ok() ? *measured : IdleRow{.unavailable = std::string(measured.status().message())};
    row.what = what;
    row.workers = workers;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace paramd::bench
