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
#include "bench/peer.h"

namespace paramd::bench {

struct Transport {
  std::string name;          // as in the table
  std::string wire = "f32";  // how a float travels
  std::string peer_kind;     // of PeerAddress
  bool paramd = false;       // else a baseline
  std::string baseline;      // name of the transport it is compared with, over which floats are f32; empty: none
  bool untuned = false;      // its workers' processes are as the system sets them up
  int copies = 0;            // of the model that worker and server make of one exchange, at worst

  std::string key() const { return Key(name, wire); }  // no other one has it
  static std::string Key(const std::string& name, const std::string& wire) { return name + "/" + wire; }
};

// In the table's order.
const std::vector<Transport>& Transports();
const Transport& FindTransport(const std::string& name, const std::string& wire = "f32");

// What one float takes on the wire.
int FloatBytes(const std::string& wire);

// What the benchmark starts, and with what settings.
struct Programs {
  std::string self;     // this benchmark
  std::string paramd;   // the daemon
  std::string scratch;  // a folder of this run's own, for sockets
  std::string algorithm;
  std::vector<std::string> paramd_flags;
  bool tune_workers = false;           // by TuneProcess
  std::string listen = "127.0.0.1:0";  // of a daemon, unless a transport says otherwise
  // What the commands of daemons and of workers begin with, to run somewhere else; empty: here.
  std::vector<std::string> enter_server;
  std::vector<std::string> enter_worker;
};

// The server's side of a transport, listening.
struct RunningServer {
  std::unique_ptr<Child> child;  // null for a transport that has no server
  PeerAddress address;
};

absl::StatusOr<RunningServer> StartServer(const Transport& transport, const Programs& programs, size_t bytes);

// The server's side of the baselines, within its own process: `kind` is socket, tls or unary. Returns only on an error.
absl::Status ServeBaseline(const std::string& kind, const std::string& listen, size_t bytes);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TRANSPORT_H_
