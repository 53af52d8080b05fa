// Workers on the daemon's host: how they come by shared memory, what becomes of it, and their buffers in it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "shm/segment.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr size_t kFloats = (6 << 20) + 5;  // more than is copied at a time

// What on_event was told.
class Events {
 public:
  std::function<void(absl::string_view)> Listener() {
    return [this](absl::string_view event) {
      MutexLock lock(&mutex_);
      events_.emplace_back(event);
    };
  }
  int Count(const std::string& part) {
    MutexLock lock(&mutex_);
    return static_cast<int>(std::count_if(events_.begin(), events_.end(),
                                          [&](const auto& event) { return absl::StrContains(event, part); }));
  }

 private:
  Mutex mutex_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
};

void CreateZeroModel(const std::string& address, size_t floats) {
  CreateModel(address, Spec("m", "downpour", floats), std::vector<float>(floats, 0));
}

bool All(absl::Span<const float> floats, float value) {
  return std::all_of(floats.begin(), floats.end(), [value](float f) { return f == value; });
}

// Of a process: mappings and open files of segments.
int SegmentsHeld(pid_t pid) {
  int held = 0;
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) held += absl::StrContains(line, "memfd:paramd");
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    held += absl::StrContains(std::filesystem::read_symlink(file, error).string(), "memfd:paramd");
  }
  return held;
}

// Which segment an address of this process is in.
std::string SegmentAt(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // Range, permissions, offset, device, inode, name.
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    const std::vector<std::string> range = absl::StrSplit(fields[0], '-');
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (std::stoull(range[0], nullptr, 16) <= at && at < std::stoull(range[1], nullptr, 16)) return fields[4];
  }
  return "";
}

int OpenFiles(pid_t pid) {
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", pid, "/fd"));
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST_CASE("a worker on the daemon's host gets shared memory unless it says otherwise, and gives it back") {
  const auto server = StartServer();
  CreateZeroModel(server->address(), 1000);
  Events events;
  auto worker =
      *Worker::Join({.server = server->address(), .model = "m", .worker = "a", .on_event = events.Listener()});
  CHECK(worker->transport() == Transport::kShm);
  const v1::ServerStatus status = server->GetStatus();
  CHECK(status.segments() == 1);
  CHECK(status.shared_bytes() == LayOutSegment(1000).bytes);
  CHECK(status.max_shared_bytes() > 0);
  const auto other =
      *Worker::Join({.server = server->address(), .model = "m", .worker = "b", .transport = Transport::kGrpc});
  CHECK(other->transport() == Transport::kGrpc);
  CHECK(server->GetStatus().segments() == 1);
  CHECK(events.Count("gRPC") == 0);
  worker.reset();
  CHECK(Await([&] { return server->GetStatus().segments() == 0 && server->GetStatus().shared_bytes() == 0; }));
}

TEST_CASE("a worker that can't have shared memory uses gRPC and says why, or fails if it wants nothing else") {
  struct Case {
    uint64_t max_shared_bytes;
    absl::StatusCode code;
    std::string why;
  };
  const Case& c = GENERATE(values<Case>({
      {0, absl::StatusCode::kUnavailable, "shares no memory (--max_shared_bytes=0)"},
      {4096, absl::StatusCode::kResourceExhausted, "raise --max_shared_bytes"},
  }));
  const auto server = StartServer({.max_shared_bytes = c.max_shared_bytes});
  CreateZeroModel(server->address(), 1000);
  Events events;
  const auto worker =
      *Worker::Join({.server = server->address(), .model = "m", .worker = "a", .on_event = events.Listener()});
  CHECK(worker->transport() == Transport::kGrpc);
  CHECK(events.Count("exchanges go over gRPC") == 1);
  CHECK(events.Count(c.why) == 1);
  CHECK(worker->Commit(std::vector<float>(1000, 1), kCallTimeout).ok());

  const auto failed =
      Worker::Join({.server = server->address(), .model = "m", .worker = "b", .transport = Transport::kShm});
  CHECK(failed.status().code() == c.code);
  CHECK_THAT(std::string(failed.status().message()), Catch::Contains("no shared memory with the daemon") &&
                                                         Catch::Contains(c.why) &&
                                                         Catch::Contains("use the transport grpc, or auto"));
  CHECK(FindWorker(server->GetStatus().models(0), "b").state() == v1::WorkerInfo::FAILED);
}

TEST_CASE("a daemon whose files are limited shares no memory, says why, and lives") {
  Daemon daemon;
  CreateZeroModel(daemon.address(), 1000);
  const rlimit limit{4096, 4096};
  REQUIRE(prlimit(daemon.process().pid(), RLIMIT_FSIZE, &limit, nullptr) == 0);
  Events events;
  const auto worker =
      *Worker::Join({.server = daemon.address(), .model = "m", .worker = "a", .on_event = events.Listener()});
  CHECK(worker->transport() == Transport::kGrpc);
  CHECK(events.Count("ulimit -f") == 1);
  CHECK(worker->Commit(std::vector<float>(1000, 1), kCallTimeout).ok());
  CHECK(daemon.process().Running());
}

TEST_CASE("shared memory does not narrow floats") {
  CHECK(
      Worker::Join(
          {.server = "127.0.0.1:1", .model = "m", .worker = "a", .transport = Transport::kShm, .wire = Wire::kFloat16})
          .status()
          .code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("exchanges in the worker's own buffers and in others mix") {
  const Transport transport = GENERATE(Transport::kShm, Transport::kGrpc);
  const auto server = StartServer();
  CreateZeroModel(server->address(), kFloats);
  const auto worker = Join({.server = server->address(), .model = "m", .worker = "a", .transport = transport});
  const absl::Span<float> commit = worker->commit_buffer();
  const absl::Span<float> center = worker->center_buffer();
  REQUIRE(commit.size() == kFloats);
  REQUIRE(center.size() == kFloats);
  std::fill(commit.begin(), commit.end(), 1.0f);
  REQUIRE(worker->Exchange(commit, center, kCallTimeout).ok());
  CHECK(All(center, 1));
  CHECK(All(commit, 1));
  const std::vector<float> twos(kFloats, 2);
  std::vector<float> pulled(kFloats);
  REQUIRE(worker->Exchange(twos, absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(All(pulled, 3));
  REQUIRE(worker->Exchange(twos, center, kCallTimeout).ok());
  CHECK(All(center, 5));
  REQUIRE(worker->Commit(twos, kCallTimeout).ok());
  // What the caller wrote there stays, whatever is committed from elsewhere.
  CHECK(All(commit, 1));
  // From one buffer to the other is a copy like any.
  REQUIRE(worker->Pull(center, kCallTimeout).ok());
  REQUIRE(worker->Commit(center, kCallTimeout).ok());
  REQUIRE(worker->Pull(commit, kCallTimeout).ok());
  CHECK(All(commit, 14));
  CHECK(All(ReadCenter(server->address(), "m").first, 14));
  CHECK(worker->commit_buffer().data() == commit.data());
}

TEST_CASE("a commit in place that has failed is not applied when its memory has changed") {
  Daemon daemon;
  CreateZeroModel(daemon.address(), kFloats);
  const auto worker = Join({.server = daemon.address(), .model = "m", .worker = "a", .transport = Transport::kShm});
  const absl::Span<float> commit = worker->commit_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  REQUIRE(worker->Commit(commit, kCallTimeout).ok());
  daemon.process().Stop();
  const absl::Status failed = worker->Commit(commit, absl::Seconds(1)).status();
  INFO(failed);
  CHECK(failed.code() == absl::StatusCode::kDeadlineExceeded);
  std::fill(commit.begin(), commit.end(), 7.0f);
  daemon.process().Signal(SIGCONT);
  const auto committed = worker->Commit(commit, kCallTimeout);
  INFO(committed.status());
  REQUIRE(committed.ok());
  CHECK(committed->version == 2);
  CHECK(All(ReadCenter(daemon.address(), "m").first, 8));
}

TEST_CASE("after a break the worker gets another segment, where its buffers were") {
  const auto server = StartServer();
  CreateZeroModel(server->address(), kFloats);
  TcpProxy proxy(server->address());
  Events events;
  const auto worker = Join({.server = proxy.address(),
                            .model = "m",
                            .worker = "a",
                            .transport = Transport::kShm,
                            .on_event = events.Listener()});
  const absl::Span<float> commit = worker->commit_buffer();
  const absl::Span<float> center = worker->center_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  std::set<std::string> segments;
  for (int i = 1; i <= 3; ++i) {
    const auto exchanged = worker->Exchange(commit, center, kCallTimeout);
    INFO(exchanged.status());
    REQUIRE(exchanged.ok());
    CHECK(exchanged->version == i);
    CHECK(All(center, static_cast<float>(i)));
    CHECK(All(commit, 1));
    segments.insert(SegmentAt(commit.data()));
    proxy.Cut();
  }
  CHECK(events.Count("exchange: ") >= 2);
  // The daemon might still have written to the old one.
  CHECK(segments.size() == 3);
  // What a call does not write stays, too.
  REQUIRE(worker->Commit(commit, kCallTimeout).ok());
  CHECK(All(center, 3));
  CHECK(worker->commit_buffer().data() == commit.data());
  CHECK(worker->transport() == Transport::kShm);
  CHECK(Await([&] {
    return server->GetStatus().segments() == 1 && server->GetStatus().shared_bytes() == LayOutSegment(kFloats).bytes;
  }));
}

TEST_CASE("buffers outlive the daemon, and the next one does not touch them") {
  const std::string address = "unix:" + TemporaryPath("socket");
  auto server = StartServer({.listen = address});
  CreateZeroModel(address, kFloats);
  const auto worker = *Worker::Join({.server = address, .model = "m", .worker = "a"});
  REQUIRE(worker->transport() == Transport::kShm);
  const absl::Span<float> commit = worker->commit_buffer();
  const absl::Span<float> center = worker->center_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  std::fill(center.begin(), center.end(), 1.0f);
  REQUIRE(worker->Commit(commit, kCallTimeout).ok());
  server.reset();
  const absl::Status gone = worker->Commit(commit, absl::Milliseconds(500)).status();
  INFO(gone);
  CHECK(gone.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(All(commit, 1));
  CHECK(All(center, 1));

  server = StartServer({.listen = address});
  CreateZeroModel(address, kFloats);
  const absl::Status other = worker->Exchange(commit, center, kCallTimeout).status();
  INFO(other);
  CHECK(other.code() == absl::StatusCode::kAborted);
  CHECK_THAT(std::string(other.message()), Catch::Contains("another daemon"));
  CHECK(All(commit, 1));
  CHECK(All(center, 1));
  CHECK(ReadCenter(address, "m").second == 0);
}

TEST_CASE("nothing of a segment is left in the daemon when workers leave, nor in a worker when the daemon is killed") {
  Daemon daemon;
  CreateZeroModel(daemon.address(), 1000);
  const pid_t pid = daemon.process().pid();
  const auto admin = Connect(daemon.address());
  const auto join = [&](int w) {
    return Join({.server = daemon.address(), .model = "m", .worker = absl::StrCat(w), .transport = Transport::kShm});
  };
  {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int w = 0; w < 4; ++w) workers.push_back(join(w));
    for (const auto& worker : workers) REQUIRE(worker->Commit(std::vector<float>(1000, 1), kCallTimeout).ok());
    // Mapped, and watched by one open file each; the worker keeps none.
    CHECK(Await([&] { return SegmentsHeld(pid) == 2 * 4; }));
    CHECK(SegmentsHeld(getpid()) == 4);
  }
  CHECK(Await([&] { return SegmentsHeld(pid) == 0; }));
  CHECK(admin->GetStatus()->segments() == 0);
  CHECK(SegmentsHeld(getpid()) == 0);
  // gRPC lets go of its connections a little later.
  int files = 0;
  const auto come_and_go = [&] {
    const auto worker = join(0);
    REQUIRE(worker->Commit(std::vector<float>(1000, 1), kCallTimeout).ok());
  };
  CHECK(Await([&] { return admin->GetStatus()->sessions() == 0; }));
  come_and_go();
  CHECK(Await([&] { return SegmentsHeld(pid) == 0 && admin->GetStatus()->sessions() == 0; }));
  files = OpenFiles(pid);
  for (int i = 0; i < 10; ++i) come_and_go();
  CHECK(Await([&] { return OpenFiles(pid) <= files; }));

  auto worker = join(5);
  daemon.process().Signal(SIGKILL);
  REQUIRE(daemon.process().Wait() == 128 + SIGKILL);
  const absl::Span<float> commit = worker->commit_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  CHECK_FALSE(worker->Commit(commit, absl::Seconds(1)).ok());
  CHECK(All(commit, 1));
  worker.reset();
  CHECK(SegmentsHeld(getpid()) == 0);
}

}  // namespace
}  // namespace paramd
