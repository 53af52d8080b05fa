// What is measured: paramd over each of its transports, and what that is compared with.
#ifndef PARAMD_BENCH_TRANSPORT_H_
#define PARAMD_BENCH_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/child.h"
#include "bench/worker_process.h"

namespace paramd::bench {

struct Transport {
  std::string name;         // as in the table
  std::string peer_kind;    // of PeerAddress
  bool paramd = false;      // else a baseline
  std::string baseline;     // name of the transport it is compared with; empty: none
  std::string unavailable;  // not empty: why it can't be measured
  int copies = 0;           // of the model that worker and server make of one exchange, at worst
};

// In the table's order.
const std::vector<Transport>& Transports();
const Transport& FindTransport(const std::string& name);

// What the benchmark starts, and with what settings.
struct Programs {
  std::string self;     // this benchmark
  std::string paramd;   // the daemon
  std::string scratch;  // a folder of this run's own, for sockets
  std::string algorithm;
  std::vector<std::string> paramd_flags;
  bool tune_malloc = false;  // of workers
};

// The server's side of a transport, listening.
struct RunningServer {
  std::unique_ptr<Child> child;  // null for a transport that has no server
  PeerAddress address;
};

absl::StatusOr<RunningServer> StartServer(const Transport& transport, const Programs& programs, size_t bytes);

// The server's side of the baselines, within its own process: `kind` is socket or unary. Returns only on an error.
absl::Status ServeBaseline(const std::string& kind, const std::string& listen, size_t bytes);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TRANSPORT_H_
