// How many connections and calls a server lets anybody have, and for how long.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "shm/file_descriptor.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

// A connection that says nothing, from that address of this host. Invalid if it was not made.
FileDescriptor ConnectSilently(const std::string& server, const std::string& from = "127.0.0.1") {
  sockaddr_in own{.sin_family = AF_INET};
  inet_pton(AF_INET, from.c_str(), &own.sin_addr);
  sockaddr_in other{.sin_family = AF_INET};
  inet_pton(AF_INET, "127.0.0.1", &other.sin_addr);
  int port = 0;
  REQUIRE(absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &port));
  other.sin_port = htons(static_cast<uint16_t>(port));
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(connection.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  const bool made = connect(connection.get(), reinterpret_cast<const sockaddr*>(&other), sizeof(other)) == 0;
  return made ? std::move(connection) : FileDescriptor();
}

// Whether the server ends it in time. What it sends before that is passed over.
bool Ends(const FileDescriptor& connection, absl::Duration timeout = kAwaitTimeout) {
  return Await(
      [&] {
        char ignored[256];
        const ssize_t received = recv(connection.get(), ignored, sizeof(ignored), MSG_DONTWAIT);
        return received == 0 || (received < 0 && errno != EAGAIN);
      },
      timeout);
}

bool Answers(const std::string& server, absl::Duration timeout) {
  auto admin = Admin::Connect(server, timeout);
  return admin.ok() && (*admin)->GetStatus().ok();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("a daemon short of descriptors refuses connections, says so once, and accepts again when some are free") {
  // The soft limit alone would have room for none.
  Daemon daemon({}, {"/usr/bin/prlimit", "--nofile=20:80"});
  const auto before = Connect(daemon.address());
  REQUIRE(before->GetStatus().ok());
  {
    std::vector<FileDescriptor> flood;
    for (int i = 0; i < 150; ++i) flood.push_back(ConnectSilently(daemon.address()));
    CHECK(Ends(flood.back()));
    CHECK_FALSE(Answers(daemon.address(), absl::Milliseconds(200)));
    // Who is there already goes on, and files can still be opened.
    const auto status = before->GetStatus();
    REQUIRE(status.ok());
    CHECK(status->connections() > 20);
    CHECK(status->connections() < 80 - 24);
    CHECK(status->refused_connections() > 70);
    CHECK(status->resident_bytes() > 0);
  }
  CHECK(Answers(daemon.address(), kCallTimeout));
  CHECK(Await([&] { return absl::StrContains(daemon.process().Err(), "event=accepting refused="); }));
  CHECK(Count(daemon.process().Err(), "event=refusing_connections reason=\"of 80 files") == 1);
}

TEST_CASE("a limit on open files carries as many workers as the documentation says") {
  constexpr int kLimit = 100;
  const std::string transport = GENERATE("grpc", "auto");
  Daemon daemon({}, {"/usr/bin/prlimit", absl::StrCat("--nofile=", kLimit)});
  CreateModel(daemon.address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  std::vector<std::unique_ptr<Worker>> workers;
  absl::Status failed;
  while (failed.ok() && workers.size() < kLimit) {
    auto worker = Worker::Join({.server = daemon.address(),
                                .model = "m",
                                .worker = absl::StrCat("w", workers.size()),
                                .join_timeout = absl::Milliseconds(500),
                                .transport = transport == "grpc" ? Transport::kGrpc : Transport::kAuto});
    failed = worker.status();
    if (failed.ok()) failed = (*worker)->Commit(std::vector<float>(4, 1), absl::Milliseconds(500)).status();
    if (failed.ok()) workers.push_back(*std::move(worker));
  }
  INFO(workers.size() << " workers; " << failed);
  CHECK(workers.size() >= (kLimit - 44) / (transport == "grpc" ? 2 : 4));
  CHECK_FALSE(failed.ok());
  // Who leaves makes room.
  workers.resize(workers.size() / 2);
  const auto worker = Join(daemon.address(), "m", "late");
  CHECK(worker->Commit(std::vector<float>(4, 1), kCallTimeout).ok());
}

TEST_CASE("a daemon that may open next to nothing does not start, and says why") {
  const std::string files = GENERATE("8", "32");
  Process daemon("/usr/bin/prlimit", {"--nofile=" + files, "server/paramd", "--listen=127.0.0.1:0"});
  CHECK(daemon.Wait() == 1);
  CHECK_THAT(daemon.Err(), Catch::Contains("may open " + files + " files, which leaves none for connections"));
}

TEST_CASE("connections are bounded in all and for each peer, and count only while they are open") {
  const auto server = StartServer({.listen = "127.0.0.1:0",
                                   .max_connections = 5,
                                   .max_connections_per_peer = 3,
                                   .handshake_timeout = kCallTimeout});
  std::vector<FileDescriptor> first;
  for (int i = 0; i < 3; ++i) first.push_back(ConnectSilently(server->address()));
  REQUIRE(Await([&] { return server->GetStatus().connections() == 3; }));
  CHECK(Ends(ConnectSilently(server->address())));
  std::vector<FileDescriptor> second;
  for (int i = 0; i < 2; ++i) second.push_back(ConnectSilently(server->address(), "127.0.0.2"));
  REQUIRE(Await([&] { return server->GetStatus().connections() == 5; }));
  CHECK(Ends(ConnectSilently(server->address(), "127.0.0.2")));
  CHECK(server->GetStatus().refused_connections() == 2);
  first.clear();
  CHECK(Answers(server->address(), kCallTimeout));
}

TEST_CASE("a connection that says nothing, and one that asks for nothing, are closed") {
  const auto server = StartServer(
      {.listen = "127.0.0.1:0", .handshake_timeout = absl::Milliseconds(50), .idle_timeout = absl::Milliseconds(50)});
  CHECK(Ends(ConnectSilently(server->address())));
  const auto channel = OpenChannel(server->address());
  v1::ParameterServer::Stub stub(channel);
  CreateModel(server->address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  // A stream keeps its connection, however long nothing is said in it.
  StubSession session(&stub);
  REQUIRE(session.Send(PullHeader("m")));
  REQUIRE(session.Receive().has_value());
  const auto idle = Connect(server->address());
  REQUIRE(idle->GetStatus().ok());
  CHECK(Await([&] { return server->GetStatus().connections() == 1; }));
  REQUIRE(session.Send(PullHeader("m")));
  CHECK(session.Receive().has_value());
  // Its client opens another one.
  CHECK(idle->GetStatus().ok());
}

TEST_CASE("calls of one connection beyond the bound wait, and too much metadata is refused") {
  const auto server = StartServer({.max_streams_per_connection = 2});
  CreateModel(server->address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<std::unique_ptr<StubSession>> sessions;
  for (int i = 0; i < 2; ++i) {
    sessions.push_back(std::make_unique<StubSession>(&stub));
    REQUIRE(sessions.back()->Send(PullHeader("m")));
    REQUIRE(sessions.back()->Receive().has_value());
  }
  const auto list = [&](absl::Duration timeout, size_t metadata_bytes) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    context.AddMetadata("note", std::string(metadata_bytes, 'x'));
    v1::ListModelsReply reply;
    return stub.ListModels(&context, {}, &reply).error_code();
  };
  CHECK(list(absl::Milliseconds(100), 1) == grpc::StatusCode::DEADLINE_EXCEEDED);
  sessions.pop_back();
  CHECK(list(kCallTimeout, 1) == grpc::StatusCode::OK);
  CHECK(list(kCallTimeout, 16 << 10) == grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace paramd
