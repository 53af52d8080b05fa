#include "bench/link.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/statistics.h"
#include "bench/worker_process.h"

namespace paramd::bench {
namespace {

constexpr const char* kAddresses[] = {"10.0.0.1", "10.0.0.2"};
constexpr const char* kWires[] = {"f32", "f16", "bf16"};

// $1 and $2: processes, each in a network namespace of its own. The bucket holds 2 ms of the rate; the queue behind it
// holds what TCP has on its way.
constexpr char kConnect[] = R"(
  exec 2>&1
  PATH=$PATH:/usr/sbin:/sbin
  ip link add paramd-bench netns "$1" type veth peer name paramd-bench netns "$2"
  address=$3
  for pid in "$1" "$2"; do
    nsenter --net="/proc/$pid/ns/net" sh -ec "
      ip address add $address/30 dev paramd-bench
      ip link set lo up
      ip link set paramd-bench up
      tc qdisc add dev paramd-bench root tbf rate 1gbit burst 256kb limit 8mb"
    address=$4
  done)";

// Two network namespaces with a link between them. They have no names and belong to a process each: when these end,
// for whatever reason, the system removes them and the link.
class Link {
 public:
  static absl::StatusOr<std::unique_ptr<Link>> Make() {
    if (geteuid() != 0) return absl::UnavailableError("it needs root, to make network namespaces");
    auto link = std::make_unique<Link>();
    for (auto& end : link->ends_) {
      auto child = Child::Start({"/usr/bin/unshare", "--net", "cat"});
      if (!child.ok()) return child.status();
      end = *std::move(child);
      // An echo comes from within the namespace.
      if (auto status = end->WriteLine("ready"); !status.ok()) return status;
      if (auto line = end->ReadLine(); !line.ok()) return line.status();
    }
    auto connect = Child::Start({"/bin/sh", "-ec", kConnect, "sh", absl::StrCat(link->ends_[0]->pid()),
                                 absl::StrCat(link->ends_[1]->pid()), kAddresses[0], kAddresses[1]});
    if (!connect.ok()) return connect.status();
    const auto complaint = (*connect)->ReadLine();
    if (auto status = (*connect)->Wait(); !status.ok()) {
      return absl::UnavailableError(absl::StrCat("no link between network namespaces, which needs ip, tc and nsenter: ",
                                                 complaint.ok() ? *complaint : std::string(status.message())));
    }
    return link;
  }

  // What a command begins with to run at one end.
  std::vector<std::string> Enter(int end) const {
    return {"/usr/bin/nsenter", absl::StrCat("--net=/proc/", ends_[end]->pid(), "/ns/net")};
  }

 private:
  std::unique_ptr<Child> ends_[2];
};

struct Measurement {
  std::vector<double> rates;  // exchanges/s of each round
  std::string unavailable;
};

absl::StatusOr<std::map<std::string, Measurement>> Measure(const Programs& here, size_t bytes, int rounds,
                                                           absl::Duration slice) {
  auto link = Link::Make();
  if (!link.ok()) return link.status();
  Programs programs = here;
  programs.enter_server = (*link)->Enter(0);
  programs.enter_worker = (*link)->Enter(1);
  programs.listen = absl::StrCat(kAddresses[0], ":0");
  programs.paramd_flags.push_back("--insecure");
  auto worker = WorkerProcess::Start(programs, "worker", bytes);
  if (!worker.ok()) return worker.status();
  std::map<std::string, Measurement> results;
  std::map<std::string, RunningServer> servers;
  // Round 0 connects and does not count.
  for (int r = 0; r <= rounds; ++r) {
    for (const char* wire : kWires) {
      Measurement& result = results[wire];
      if (!result.unavailable.empty()) continue;
      absl::Status status;
      if (r == 0) {
        auto server = StartServer(FindTransport("grpc-tcp", wire), programs, bytes);
        status = server.status();
        if (server.ok()) servers[wire] = *std::move(server);
        if (status.ok()) status = (*worker)->Connect(wire, servers[wire].address);
      }
      if (status.ok()) status = (*worker)->Begin(wire, Operation::kExchange, r == 0 ? absl::ZeroDuration() : slice, 1);
      auto ran = status.ok() ? (*worker)->End() : status;
      if (!ran.ok()) {
        result.unavailable = std::string(ran.status().message());
      } else if (r > 0) {
        result.rates.push_back(static_cast<double>(ran->latencies_us.size()) /
                               (static_cast<double>(ran->end_ns - ran->start_ns) * 1e-9));
      }
    }
  }
  return results;
}

}  // namespace

std::vector<LinkRow> RunLink(const Programs& programs, size_t bytes, int rounds, absl::Duration slice) {
  auto measured = Measure(programs, bytes, rounds, slice);
  std::vector<LinkRow> rows;
  for (const char* wire : kWires) {
    LinkRow row = {.bytes = bytes, .wire = wire};
    if (!measured.ok()) {
      row.unavailable = std::string(measured.status().message());
    } else if (const Measurement& own = (*measured)[wire]; !own.unavailable.empty()) {
      row.unavailable = own.unavailable;
    } else {
      const std::vector<double>& f32 = (*measured)["f32"].rates;
      row.exchanges_per_s = Median(own.rates);
      row.megabytes_per_s = 2e-6 * row.exchanges_per_s * static_cast<double>(bytes) * FloatBytes(wire) / sizeof(float);
      row.over_f32 = MedianRatio(own.rates, f32);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace paramd::bench
