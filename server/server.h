// A parameter server, in this process.
//
//   auto server = paramd::Server::Start({.listen = "127.0.0.1:0"});
//   if (!server.ok()) return server.status();
//   std::cout << (*server)->address() << std::endl;
//   ...
//   (*server)->Shutdown(absl::Seconds(10));
#ifndef PARAMD_SERVER_SERVER_H_
#define PARAMD_SERVER_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/paramd.pb.h"
#include "server/model_event.h"
#include "server/reflect.h"
#include "server/state_options.h"
#include "shm/segment_server.h"
#include "sync/clock.h"

namespace paramd {

struct ServerOptions {
  // HOST:PORT or unix:PATH. Port 0: the system chooses one.
  std::string listen = "127.0.0.1:5000";
  // PEM files of the certificate to speak TLS with, and of its key; empty: no TLS. They may be replaced meanwhile.
  std::string tls_cert;
  std::string tls_key;
  // PEM file of authorities: only clients with a certificate of theirs are let in. Needs tls_cert.
  std::string tls_client_ca;
  // File of tokens (security/tokens.h), which may be replaced meanwhile: only calls with one of them are let in. Empty:
  // whoever can connect may do everything.
  std::string token_file;
  // Allows to listen beyond loopback without TLS, or for everybody: whoever reaches the port, or is on the way to it,
  // can read and change every model.
  bool insecure = false;
  // Threads that serve: one talks to the workers while the others apply large commits. More than there are cores is of
  // no use.
  int threads = 2;
  // Threads that apply one commit to a model of 4 MiB or more; all models share them. 0: one a core, at most 4.
  int apply_threads = 0;
  // How long a worker may be silent before the others stop waiting for it. Every RPC and every chunk renews it.
  absl::Duration lease = absl::Seconds(30);
  // Bytes of commits being received, of centers on the wire and of answers that may be asked for again, of all models
  // together. 0: 64 MiB. Never less than two commits of the largest model that has a center. More lets more workers
  // exchange at once, at the price of memory.
  uint64_t max_in_flight_bytes = 0;
  // How long an exchange may hold some of them without going on, before it is ended so that others can.
  absl::Duration stall_timeout = absl::Seconds(60);
  // Of memory shared with workers on this host, which spares them the socket: each takes twice its model. 0: none.
  uint64_t max_shared_bytes = DefaultMaxSharedBytes();
  // Connections at once. 0: as many as the limit on open files carries.
  size_t max_connections = 0;
  // From one address. 0: three quarters of them, and from this host all.
  size_t max_connections_per_peer = 0;
  // Calls at once on a connection; HTTP/2 has further ones wait.
  size_t max_streams_per_connection = 1000;
  // How long a connection may take to say that it speaks HTTP/2 (and TLS).
  absl::Duration handshake_timeout = absl::Seconds(10);
  // How long a connection may be without a call.
  absl::Duration idle_timeout = absl::Hours(1);
  // A larger model is refused.
  uint64_t max_model_bytes = uint64_t{64} << 30;
  size_t max_models = 1024;
  size_t max_workers = 10'000;          // of each model, live or remembered
  size_t max_history_records = 10'000;  // of each worker; older ones are dropped
  // Of all histories together. Past it those of workers that left are dropped, and then the oldest of the longest.
  uint64_t max_history_bytes = uint64_t{256} << 20;
  StateOptions state;                    // what is kept on disk, and where
  const Clock* clock = Clock::Steady();  // for leases
  Reflect reflect;                       // null: no reflection service
  // Is told, as key=value, who changed what, who was refused, and what became of new certificates and tokens; null:
  // nobody is. Thread-safe.
  std::function<void(const std::string& line)> security_log;
  EventSink* events = nullptr;  // is told what happens to models; null: nobody is
  // Is told what happens to the server itself, as a line of key=value, on any thread. Null: nobody is.
  std::function<void(const std::string& line)> log;
};

// INVALID_ARGUMENT says which option makes no sense. Start checks the same.
absl::Status CheckOptions(const ServerOptions& options);

// Thread-safe.
class Server {
 public:
  // Listens when it returns. INVALID_ARGUMENT for options that make no sense, UNAVAILABLE if the address can't be
  // listened on, with the system's reason.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);

  // Shutdown without grace, if nobody did.
  ~Server();

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;  // 0 for a unix socket
  // What clients connect to: HOST:PORT with the real port, or unix:PATH.
  const std::string& address() const;

  v1::ServerStatus GetStatus() const;

  // Refuses new exchanges, answers those that wait with UNAVAILABLE, and gives those on the wire up to `grace`; then
  // ends their connections. Returns when all is over, also if another call began it.
  void Shutdown(absl::Duration grace);

  // Whether all that is to outlive the server is on disk, as a shutdown ends by seeing to it. Always, where nothing is.
  bool saved() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_SERVER_H_
