#include "bench/transport.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/baseline_socket.h"
#include "bench/baseline_tls.h"
#include "bench/baseline_unary.h"
#include "client/job_secrets.h"

namespace paramd::bench {

const std::vector<Transport>& Transports() {
  static const auto* const transports = new std::vector<Transport>{
      {.name = "grpc-tcp", .peer_kind = "grpc", .paramd = true, .baseline = "raw-tcp", .copies = 2},
      {.name = "grpc-tcp", .wire = "f16", .peer_kind = "grpc-f16", .paramd = true, .baseline = "raw-tcp", .copies = 2},
      {.name = "grpc-tcp",
       .wire = "bf16",
       .peer_kind = "grpc-bf16",
       .paramd = true,
       .baseline = "raw-tcp",
       .copies = 2},
      {.name = "grpc-tls", .peer_kind = "grpc-tls", .paramd = true, .baseline = "raw-tls", .copies = 2},
      {.name = "grpc-unix", .peer_kind = "grpc", .paramd = true, .baseline = "raw-unix", .copies = 2},
      {.name = "shm", .peer_kind = "shm", .paramd = true, .baseline = "memcpy", .copies = 2},
      {.name = "shm-inplace", .peer_kind = "shm-inplace", .paramd = true, .baseline = "memcpy", .copies = 2},
      {.name = "raw-tcp", .peer_kind = "socket", .baseline = "memcpy"},
      {.name = "raw-tls", .peer_kind = "tls", .baseline = "raw-tcp"},
      {.name = "raw-unix", .peer_kind = "socket", .baseline = "memcpy"},
      {.name = "unary-grpc", .peer_kind = "unary", .baseline = "raw-tcp", .untuned = true, .copies = 8},
      {.name = "memcpy", .peer_kind = "memcpy", .copies = 1},
      {.name = "memcpy-fresh", .peer_kind = "memcpy-fresh", .baseline = "memcpy", .copies = 1},
  };
  return *transports;
}

const Transport& FindTransport(const std::string& name, const std::string& wire) {
  return *std::find_if(Transports().begin(), Transports().end(),
                       [&](const auto& t) { return t.name == name && t.wire == wire; });
}

int FloatBytes(const std::string& wire) { return wire == "f32" ? 4 : 2; }

namespace {

// Certificates in that folder. The daemon's flags for them; workers are told the authority by the environment that they
// inherit (bench/paramd_peer.h).
absl::StatusOr<std::vector<std::string>> MakeTls(const std::string& folder) {
  const auto secrets = MakeJobSecrets({"127.0.0.1"});
  if (!secrets.ok()) return secrets.status();
  for (const auto& [file, text] : {std::pair("/tls_cert", &secrets->tls_cert), std::pair("/tls_key", &secrets->tls_key),
                                   std::pair("/tls_ca", &secrets->tls_ca)}) {
    if (!(std::ofstream(folder + file) << *text).flush()) {
      return absl::UnavailableError(absl::StrCat("can't write ", folder, file));
    }
  }
  return std::vector<std::string>{absl::StrCat("--tls_cert=", folder, "/tls_cert"),
                                  absl::StrCat("--tls_key=", folder, "/tls_key")};
}

}  // namespace

absl::StatusOr<RunningServer> StartServer(const Transport& transport, const Programs& programs, size_t bytes) {
  RunningServer server;
  server.address = {.kind = transport.peer_kind, .address = "-"};
  if (absl::StartsWith(transport.peer_kind, "memcpy")) return server;
  static int sockets = 0;
  const bool unix_socket = absl::EndsWith(transport.name, "-unix");
  const std::string path = absl::StrCat("unix:", programs.scratch, "/", sockets++);
  std::vector<std::string> command;
  if (transport.paramd) {
    command = programs.enter_server;
    command.insert(command.end(), {programs.paramd, "--log_level=warning",
                                   absl::StrCat("--listen=", unix_socket ? path : programs.listen)});
    command.insert(command.end(), programs.paramd_flags.begin(), programs.paramd_flags.end());
    if (absl::EndsWith(transport.name, "-tls")) {
      auto flags = MakeTls(programs.scratch);
      if (!flags.ok()) return flags.status();
      command.insert(command.end(), flags->begin(), flags->end());
    }
  } else {
    command = {programs.self, absl::StrCat("--role=", transport.peer_kind), absl::StrCat("--role_bytes=", bytes),
               absl::StrCat("--role_address=", unix_socket ? path : "tcp")};
  }
  auto child = Child::Start(command);
  if (!child.ok()) return child.status();
  auto line = (*child)->ReadLine();
  if (!line.ok()) return line.status();
  const std::string listens = "listens on ";
  const size_t at = line->find(listens);
  if (at == std::string::npos) return absl::InternalError(absl::StrCat(command[0], " says '", *line, "'"));
  server.child = *std::move(child);
  server.address.address = line->substr(at + listens.size());
  return server;
}

absl::Status ServeBaseline(const std::string& kind, const std::string& listen, size_t bytes) {
  if (kind == "socket") return ServeSocket(listen, bytes);
  if (kind == "tls") return ServeTls(bytes);
  if (kind == "unary") return ServeUnary(bytes);
  return absl::InvalidArgumentError(absl::StrCat("no role ", kind));
}

}  // namespace paramd::bench
