#include "bench/worker_process.h"

#include <chrono>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/baseline_memcpy.h"
#include "bench/baseline_socket.h"
#include "bench/baseline_tls.h"
#include "bench/baseline_unary.h"
#include "bench/paramd_peer.h"

namespace paramd::bench {
namespace {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(const PeerAddress& address, const std::string& algorithm,
                                               const std::string& worker, Buffers buffers) {
  if (address.kind == "memcpy") return MakeMemcpyPeer(buffers, /*fresh_pages=*/false);
  if (address.kind == "memcpy-fresh") return MakeMemcpyPeer(buffers, /*fresh_pages=*/true);
  if (address.kind == "socket") return ConnectSocketPeer(address.address, buffers);
  if (address.kind == "tls") return ConnectTlsPeer(address.address, buffers);
  if (address.kind == "unary") return ConnectUnaryPeer(address.address, buffers);
  if (address.kind == "waiting") return ConnectWaitingPeer(address.address, worker, buffers);
  return ConnectParamdPeer(address.kind, address.address, algorithm, worker, buffers);
}

absl::StatusOr<Ran> RunRound(Peer* peer, Operation operation, int64_t slice_ns, size_t min_operations) {
  Ran ran;
  ran.start_ns = ran.end_ns = Now();
  while (ran.end_ns - ran.start_ns < slice_ns || ran.latencies_us.size() < min_operations) {
    const int64_t before = ran.end_ns;
    if (auto status = peer->Run(operation); !status.ok()) return status;
    ran.end_ns = Now();
    ran.latencies_us.push_back(static_cast<double>(ran.end_ns - before) * 1e-3);
  }
  return ran;
}

std::string Format(const absl::StatusOr<Ran>& ran) {
  if (!ran.ok()) {
    return absl::StrCat("error ", absl::StrReplaceAll(ran.status().ToString(), {{"\n", " "}}));
  }
  std::ostringstream out;
  out << "ran " << ran->start_ns << " " << ran->end_ns;
  for (const double latency : ran->latencies_us) out << " " << latency;
  return out.str();
}

}  // namespace

absl::Status ServeWorker(size_t bytes, const std::string& algorithm) {
  const std::vector<float> update(bytes / sizeof(float), 0.001f);
  std::vector<float> center(update.size());
  const Buffers buffers = {.update = update, .center = absl::MakeSpan(center)};
  std::map<std::string, std::unique_ptr<Peer>> peers;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string verb;
    std::string key;
    in >> verb >> key;
    absl::StatusOr<Ran> ran = Ran{};
    if (verb == "connect") {
      PeerAddress address;
      std::string worker;
      in >> address.kind >> address.address >> worker;
      auto peer = MakePeer(address, algorithm, worker, buffers);
      if (peer.ok()) {
        peers[key] = *std::move(peer);
      } else {
        ran = peer.status();
      }
    } else if (verb == "disconnect") {
      peers.erase(key);
    } else {
      int operation = 0;
      int64_t slice_ns = 0;
      size_t min_operations = 0;
      in >> operation >> slice_ns >> min_operations;
      ran = RunRound(peers.at(key).get(), static_cast<Operation>(operation), slice_ns, min_operations);
    }
    std::cout << Format(ran) << std::endl;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const Programs& programs, const std::string& name,
                                                                    size_t bytes) {
  std::vector<std::string> command = programs.enter_worker;
  command.insert(command.end(), {programs.self, "--role=worker", absl::StrCat("--role_bytes=", bytes),
                                 absl::StrCat("--algorithm=", programs.algorithm),
                                 absl::StrCat("--tune_workers=", programs.tune_workers)});
  auto child = Child::Start(command);
  if (!child.ok()) return child.status();
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(*std::move(child), name));
}

WorkerProcess::WorkerProcess(std::unique_ptr<Child> child, std::string name)
    : child_(std::move(child)), name_(std::move(name)) {}

absl::StatusOr<std::string> WorkerProcess::Answer() {
  auto line = child_->ReadLine();
  if (line.ok() && absl::StartsWith(*line, "error ")) {
    return absl::UnavailableError(absl::StrCat("worker ", name_, ": ", line->substr(6)));
  }
  return line;
}

absl::Status WorkerProcess::Connect(const std::string& key, const PeerAddress& address) {
  // One process may hold several workers of one model.
  auto status =
      child_->WriteLine(absl::StrCat("connect ", key, " ", address.kind, " ", address.address, " ", name_, "-", key));
  return status.ok() ? Answer().status() : status;
}

absl::Status WorkerProcess::Disconnect(const std::string& key) {
  auto status = child_->WriteLine(absl::StrCat("disconnect ", key));
  return status.ok() ? Answer().status() : status;
}

absl::Status WorkerProcess::Begin(const std::string& key, Operation operation, absl::Duration slice,
                                  int min_operations) {
  return child_->WriteLine(absl::StrCat("run ", key, " ", static_cast<int>(operation), " ",
                                        absl::ToInt64Nanoseconds(slice), " ", min_operations));
}

absl::StatusOr<Ran> WorkerProcess::End() {
  auto line = Answer();
  if (!line.ok()) return line.status();
  Ran ran;
  std::string verb;
  std::istringstream in(*line);
  in >> verb >> ran.start_ns >> ran.end_ns;
  for (double latency; in >> latency;) ran.latencies_us.push_back(latency);
  return ran;
}

}  // namespace paramd::bench
