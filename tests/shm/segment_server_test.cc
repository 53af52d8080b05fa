// The handshake, with peers of all kinds.
#include "shm/segment_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shm/handshake.h"
#include "tests/support/await.h"
#include "tests/support/skip.h"

namespace paramd {
namespace {

constexpr uint64_t kBytes = 8192;
constexpr absl::Duration kTimeout = absl::Seconds(30);

std::unique_ptr<SegmentServer> Start(uint64_t max_bytes = 4 * kBytes, absl::Duration request_timeout = kTimeout,
                                     size_t max_connections = 16) {
  auto server = SegmentServer::Start({.max_bytes = max_bytes,
                                      .max_segment_bytes = [] { return 2 * kBytes; },
                                      .max_connections = max_connections,
                                      .request_timeout = request_timeout});
  INFO(server.status());
  REQUIRE(server.ok());
  return *std::move(server);
}

FileDescriptor Connect(const SegmentServer& server) {
  FileDescriptor connected(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = MakeAbstractAddress(server.socket_name());
  REQUIRE(address.has_value());
  REQUIRE(connect(connected.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) == 0);
  return connected;
}

GrantedSegment Request(const SegmentServer& server, uint64_t bytes = kBytes) {
  auto granted = RequestSegment(server.socket_name(), bytes, kTimeout);
  INFO(granted.status());
  REQUIRE(granted.ok());
  return *std::move(granted);
}

absl::Status Refused(const SegmentServer& server, uint64_t bytes = kBytes) {
  return RequestSegment(server.socket_name(), bytes, kTimeout).status();
}

Segment Map(const GrantedSegment& granted) {
  auto mapped = Segment::Map(granted.memory, kBytes);
  REQUIRE(mapped.ok());
  return *std::move(mapped);
}

// What comes back, until the server closes.
std::string ReadToEnd(const FileDescriptor& socket) {
  std::string all;
  char bytes[kMaxSegmentAnswerBytes];
  while (true) {
    const ssize_t n = recv(socket.get(), bytes, sizeof(bytes), 0);
    if (n <= 0) return all;
    all.append(bytes, static_cast<size_t>(n));
  }
}

size_t OpenFiles() {
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) ++files;
  return files;
}

TEST_CASE("a worker and the daemon see the same segment until the worker's connection ends") {
  const auto server = Start();
  auto granted = std::make_optional(Request(*server));
  std::optional<Segment> theirs = Map(*granted);
  auto ours = server->Find(granted->id, {});
  REQUIRE(ours != nullptr);
  theirs->StoreCommitWord(42);
  CHECK(ours->LoadCommitWord() == 42);
  CHECK(server->segments() == 1);
  CHECK(server->bytes() == kBytes);
  CHECK(LinkAlive(granted->link));
  CHECK(server->Find(granted->id + 1, {}) == nullptr);
  CHECK(server->Find(0, {}) == nullptr);

  const uint64_t id = granted->id;
  granted.reset();
  CHECK(Await([&] { return server->segments() == 0; }));
  CHECK(server->Find(id, {}) == nullptr);
  // An exchange that is under way keeps the memory, which counts for as long.
  CHECK(server->bytes() == kBytes);
  ours->Floats(4096, 1)[0] = 1;
  ours.reset();
  CHECK(server->bytes() == kBytes);
  theirs.reset();
  CHECK(server->bytes() == 0);
}

TEST_CASE("memory counts for as long as a peer holds it, though it has closed its connection") {
  const auto server = Start(2 * kBytes);
  std::vector<FileDescriptor> kept;
  std::vector<Segment> mapped;
  GrantedSegment first = Request(*server);
  kept.push_back(std::move(first.memory));
  GrantedSegment second = Request(*server);
  mapped.push_back(Map(second));
  second.memory = FileDescriptor();
  first.link = FileDescriptor();
  second.link = FileDescriptor();
  REQUIRE(Await([&] { return server->segments() == 0; }));
  CHECK(server->bytes() == 2 * kBytes);
  CHECK(Refused(*server).code() == absl::StatusCode::kResourceExhausted);
  mapped.clear();
  CHECK(server->bytes() == kBytes);
  const GrantedSegment third = Request(*server);
  CHECK(Refused(*server).code() == absl::StatusCode::kResourceExhausted);
  kept.clear();
  CHECK(Request(*server).id != third.id);
}

TEST_CASE("memory that a peer keeps by a path alone is emptied before it counts no longer") {
  const auto server = Start();
  std::vector<FileDescriptor> paths;
  for (int i = 0; i < 12; ++i) {
    GrantedSegment granted = Request(*server);
    const Segment mapped = Map(granted);
    const std::string name = "/proc/self/fd/" + std::to_string(granted.memory.get());
    paths.emplace_back(open(name.c_str(), O_PATH | O_CLOEXEC));
    REQUIRE(paths.back().valid());
    granted = {};
    REQUIRE(Await([&] { return server->segments() == 0; }));
  }
  CHECK(Await([&] { return server->bytes() == 0; }));
  for (const FileDescriptor& path : paths) {
    struct stat file {};
    REQUIRE(fstat(path.get(), &file) == 0);
    CHECK(file.st_blocks == 0);
  }
}

TEST_CASE("memory that a peer lets go of late is let go of by the server without being asked") {
  const auto server = Start();
  const size_t before = OpenFiles();
  GrantedSegment granted = Request(*server);
  granted.link = FileDescriptor();
  REQUIRE(Await([&] { return server->segments() == 0; }));
  // The peer's memory and the server's watch.
  CHECK(Await([&] { return OpenFiles() == before + 2; }));
  granted.memory = FileDescriptor();
  CHECK(Await([&] { return OpenFiles() == before; }));
}

TEST_CASE("who keeps many small segments is refused more, and uses up no files") {
  const auto server = Start(uint64_t{1} << 40, kTimeout, 3);
  std::vector<FileDescriptor> kept;
  for (size_t i = 0; i < 3; ++i) {
    GrantedSegment granted = Request(*server);
    kept.push_back(std::move(granted.memory));
    granted.link = FileDescriptor();
    REQUIRE(Await([&] { return server->segments() == 0; }));
  }
  const absl::Status refused = Refused(*server);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("somebody still holds"));
  kept.pop_back();
  CHECK(Request(*server).id != 0);
}

TEST_CASE("signals, however many, keep no worker from its segment") {
  const auto server = Start(uint64_t{64} * kBytes, kTimeout, 64);
  // As a profiler does it; only of this thread, which waits.
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  const pthread_t self = pthread_self();
  std::atomic<bool> over = false;
  std::thread profiler([&] {
    while (!over) pthread_kill(self, SIGUSR1);
  });
  int failed = 0;
  for (int i = 0; i < 200; ++i) failed += RequestSegment(server->socket_name(), kBytes, kTimeout).ok() ? 0 : 1;
  // Nor does it wait for longer than it may.
  FileDescriptor silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = MakeAbstractAddress(server->socket_name() + "-silent");
  REQUIRE(bind(silent.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) == 0);
  REQUIRE(listen(silent.get(), 1) == 0);
  const absl::Status none = RequestSegment(server->socket_name() + "-silent", kBytes, absl::Milliseconds(50)).status();
  over = true;
  profiler.join();
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  CHECK(failed == 0);
  CHECK(none.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a worker that dies loses its segment, though a child of it lives on") {
  const auto server = Start();
  int go[2];
  int ready[2];
  REQUIRE(pipe2(go, O_CLOEXEC) == 0);
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t worker = fork();
  if (worker == 0) {
    close(go[1]);
    auto granted = RequestSegment(server->socket_name(), kBytes, kTimeout);
    if (!granted.ok()) _exit(1);
    const auto mapped = Segment::Map(granted->memory, kBytes);
    if (!mapped.ok()) _exit(2);
    const pid_t child = fork();
    if (child == 0) {
      char byte;
      _exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    _exit(write(ready[1], "x", 1) == 1 ? 0 : 3);
  }
  int status = 0;
  REQUIRE(waitpid(worker, &status, 0) == worker);
  REQUIRE(status == 0);
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(Await([&] { return server->segments() == 0 && server->bytes() == 0; }));
  for (const int fd : {go[0], go[1], ready[0], ready[1]}) close(fd);
}

TEST_CASE("what belongs to a worker or a model that is gone is given up, and its connection ended") {
  const auto server = Start();
  const GrantedSegment a1 = Request(*server);
  const GrantedSegment a2 = Request(*server);
  const GrantedSegment b = Request(*server);
  const GrantedSegment unused = Request(*server);
  CHECK(server->Find(a1.id, {.model_id = 7, .worker = "a", .incarnation = 1}) != nullptr);
  CHECK(server->Find(a2.id, {.model_id = 7, .worker = "a", .incarnation = 2}) != nullptr);
  CHECK(server->Find(b.id, {.model_id = 7, .worker = "b", .incarnation = 1}) != nullptr);
  server->Release({.model_id = 7, .worker = "a", .incarnation = 1});
  CHECK(server->segments() == 3);
  CHECK(server->bytes() == 4 * kBytes);  // its worker has not noticed yet
  CHECK(Await([&] { return !LinkAlive(a1.link); }));
  CHECK(LinkAlive(a2.link));
  server->Release({.model_id = 8});
  CHECK(server->segments() == 3);
  server->Release({.model_id = 7});
  CHECK(server->segments() == 1);
  CHECK(Await([&] { return !LinkAlive(a2.link) && !LinkAlive(b.link); }));
  CHECK(LinkAlive(unused.link));
}

TEST_CASE("nothing is left when the segments and the server are gone") {
  const size_t before = OpenFiles();
  {
    const auto server = Start();
    std::vector<GrantedSegment> granted;
    for (int i = 0; i < 3; ++i) granted.push_back(Request(*server));
    granted.pop_back();
    CHECK(Await([&] { return server->segments() == 2; }));
    // The server keeps two files a segment: the connection, and the watch over the memory.
    CHECK(Await([&] { return OpenFiles() == before + 2 + 2 * 2 + 2 * 2; }));
  }
  CHECK(OpenFiles() == before);
}

TEST_CASE("a worker notices that the server is gone") {
  auto server = Start();
  const GrantedSegment granted = Request(*server);
  CHECK(LinkAlive(granted.link));
  const std::string name = server->socket_name();
  server.reset();
  CHECK(Await([&] { return !LinkAlive(granted.link); }));
  const absl::Status gone = RequestSegment(name, kBytes, kTimeout).status();
  CHECK(gone.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(gone.message()), Catch::Contains(name) && Catch::Contains("network namespace"));

  // In the middle of the handover.
  const FileDescriptor dying(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = MakeAbstractAddress(name);
  REQUIRE(bind(dying.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) == 0);
  REQUIRE(listen(dying.get(), 1) == 0);
  std::thread end([&] {
    const FileDescriptor link(accept(dying.get(), nullptr, nullptr));
    char byte = 0;
    recv(link.get(), &byte, 1, 0);
  });
  const absl::Status cut = RequestSegment(name, kBytes, kTimeout).status();
  end.join();
  CHECK(cut.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(cut.message()), Catch::Contains("the daemon has ended"));
}

TEST_CASE("segments beyond the cap are refused until others end") {
  const auto server = Start(2 * kBytes);
  auto first = std::make_optional(Request(*server));
  const GrantedSegment second = Request(*server);
  const absl::Status refused = Refused(*server);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("16384 bytes") && Catch::Contains("raise --max_shared_bytes"));
  CHECK(server->segments() == 2);
  first.reset();
  CHECK(Await([&] { return server->bytes() == kBytes; }));
  const GrantedSegment third = Request(*server);
  CHECK(third.id != second.id);
}

TEST_CASE("a segment larger than any model needs is refused") {
  const auto server = Start(uint64_t{1} << 60);
  for (const uint64_t bytes : {uint64_t{0}, 2 * kBytes + 1, ~uint64_t{0}}) {
    CHECK(Refused(*server, bytes).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(server->bytes() == 0);
  CHECK(Request(*server, 2 * kBytes).id != 0);
}

TEST_CASE("peers that say nothing hold up nobody, and are let go after a while") {
  const auto server = Start(4 * kBytes, absl::Milliseconds(50));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(Connect(*server));
  const GrantedSegment granted = Request(*server);
  for (const FileDescriptor& peer : silent) CHECK(ReadToEnd(peer).empty());
  // Who has asked may be silent for ever.
  CHECK(LinkAlive(granted.link));
  CHECK(server->segments() == 1);
}

TEST_CASE("more peers than allowed are refused, not left waiting") {
  const auto server = Start(4 * kBytes, kTimeout, 2);
  auto first = std::make_optional(Request(*server));
  const FileDescriptor silent = Connect(*server);
  const absl::Status refused = Refused(*server);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("2 workers"));
  first.reset();
  CHECK(Await([&] { return Refused(*server).ok(); }));
}

TEST_CASE("messages that are no request are refused, and change nothing") {
  const auto server = Start();
  const std::string request = EncodeSegmentRequest(kBytes);
  std::string other_version = request;
  other_version[7] = '2';
  for (const std::string& bytes : {std::string("x"), request.substr(0, 15), request + "x", other_version,
                                   std::string(100'000, 'P'), std::string(16, '\0')}) {
    const FileDescriptor peer = Connect(*server);
    REQUIRE(send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    const auto answer = DecodeSegmentAnswer(ReadToEnd(peer));
    CHECK(answer.status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(server->segments() == 0);
  CHECK(server->bytes() == 0);
}

TEST_CASE("an answer that is none of ours is refused, wherever it ends") {
  const std::string good = EncodeSegmentAnswer(7, absl::OkStatus());
  REQUIRE(*DecodeSegmentAnswer(good) == 7);
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(DecodeSegmentAnswer(good.substr(0, size)).ok());
  std::string strange = good;
  strange[0] = 'X';
  CHECK_FALSE(DecodeSegmentAnswer(strange).ok());
}

TEST_CASE("descriptors that a peer sends along are dropped") {
  const auto server = Start();
  const size_t start = OpenFiles();
  const GrantedSegment kept = Request(*server);
  // The connection's two ends, the worker's descriptor and the server's watch.
  const size_t before = start + 4;
  {
    const FileDescriptor peer = Connect(*server);
    REQUIRE(SendMessage(peer.get(), EncodeSegmentRequest(1), kept.memory.get()));
    CHECK(Await([&] { return server->segments() == 2; }));
    CHECK(Await([&] { return OpenFiles() == before + 3; }));
  }
  CHECK(Await([&] { return OpenFiles() == before; }));
}

TEST_CASE("a second request on a connection ends it") {
  const auto server = Start();
  const GrantedSegment granted = Request(*server);
  REQUIRE(SendMessage(granted.link.get(), EncodeSegmentRequest(kBytes), -1));
  CHECK(Await([&] { return !LinkAlive(granted.link); }));
  CHECK(Await([&] { return server->segments() == 0; }));
}

TEST_CASE("workers come and go at once") {
  const auto server = Start(uint64_t{64} * kBytes, kTimeout, 64);
  std::atomic<int> failed = 0;
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          const auto granted = RequestSegment(server->socket_name(), kBytes, kTimeout);
          if (!granted.ok() || server->Find(granted->id, {}) == nullptr) ++failed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(failed == 0);
  CHECK(Await([&] { return server->segments() == 0 && server->bytes() == 0; }));
}

TEST_CASE("a name that can't be a socket's is an error") {
  CHECK(RequestSegment("", kBytes, kTimeout).status().code() == absl::StatusCode::kInternal);
  CHECK(RequestSegment(std::string(108, 'x'), kBytes, kTimeout).status().code() == absl::StatusCode::kInternal);
}

// Whether `work` was done by another user, in a thread. Only root may, outside of a sandbox of one user.
template <typename Work>
bool AsAnotherUser(const Work& work) {
  bool became_another = false;
  std::thread([&] {
    // Of this thread alone, unlike the library's function.
    became_another = syscall(SYS_setresuid, -1, 65534, -1) == 0;
    if (became_another) work();
  }).join();
  if (!became_another) testing::Skip("only root may become another user");
  return became_another;
}

TEST_CASE("a worker of another user is refused") {
  const auto server = Start();
  absl::Status refused;
  if (!AsAnotherUser([&] { refused = Refused(*server); })) return;
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("user 65534") && Catch::Contains("as the same user"));
  CHECK(server->segments() == 0);
}

TEST_CASE("a worker takes nothing from another user's socket") {
  std::unique_ptr<SegmentServer> server;
  if (!AsAnotherUser([&] { server = Start(); })) return;
  const absl::Status refused = Refused(*server);
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("served by user 65534") && Catch::Contains("as the same user"));
}

}  // namespace
}  // namespace paramd
