// Daemons that keep their state are killed, and started again.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/fixtures.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr size_t kFloats = size_t{1} << 20;

// Kills while checkpoints are written; PARAMD_CHECKPOINT_KILLS has more of them.
int Kills() {
  int kills = 5;
  const char* const asked = std::getenv("PARAMD_CHECKPOINT_KILLS");
  if (asked != nullptr) REQUIRE(absl::SimpleAtoi(asked, &kills));
  return kills;
}

// A daemon that comes back at the same place.
class House {
 public:
  explicit House(std::vector<std::string> flags) : socket_(TemporaryPath("socket")), state_(TemporaryPath("state")) {
    flags_ = std::move(flags);
    flags_.push_back(absl::StrCat("--listen=unix:", socket_));
    flags_.push_back(absl::StrCat("--state_dir=", state_));
    Start();
  }
  ~House() {
    daemon_.reset();
    std::filesystem::remove_all(state_);
  }
  void Start() { daemon_ = std::make_unique<Daemon>(flags_); }
  void Kill() {
    daemon_->process().Signal(SIGKILL);
    CHECK(daemon_->process().Wait() == 128 + SIGKILL);
  }
  void Stop(int code = 0) {
    daemon_->process().Signal(SIGTERM);
    CHECK(daemon_->process().Wait() == code);
  }
  const std::string& address() const { return daemon_->address(); }
  Process& process() { return daemon_->process(); }

 private:
  const std::string socket_;
  const std::string state_;
  std::vector<std::string> flags_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_CASE("workers go on through kills of their daemon: no call fails, and those applied since are in the center") {
  House house({"--checkpoint_every=50ms"});
  constexpr size_t kSmall = 1000;
  CreateModel(house.address(), Spec("m", "downpour", kSmall), std::vector<float>(kSmall, 0));
  const uint64_t id = Connect(house.address())->GetModel("m")->id();
  std::atomic<bool> stop{false};
  std::vector<absl::Status> ended(3);
  std::atomic<int> told{0};
  std::atomic<int> applied{0};
  {
    std::vector<Thread> threads;
    for (size_t w = 0; w < ended.size(); ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join({.server = house.address(), .model = "m", .worker = absl::StrCat(w)});
        ended[w] = worker.status();
        std::vector<float> center(kSmall);
        if (ended[w].ok()) ended[w] = (*worker)->Pull(absl::MakeSpan(center), kCallTimeout).status();
        while (ended[w].ok() && !stop) {
          const auto exchanged =
              (*worker)->Exchange(std::vector<float>(kSmall, 1), absl::MakeSpan(center), kCallTimeout);
          ended[w] = exchanged.status();
          if (exchanged.ok()) ++(exchanged->applied ? applied : told);
          // Each commit adds one: every version is that number everywhere.
          if (exchanged.ok() && center != std::vector<float>(kSmall, static_cast<float>(exchanged->version))) {
            ended[w] = absl::InternalError("a center that no version has");
          }
        }
        if (ended[w].ok()) ended[w] = (*worker)->Leave("", kCallTimeout);
      });
    }
    for (int kill = 0; kill < 3; ++kill) {
      const int before = applied;
      CHECK(Await([&] { return applied > before + 50; }));
      house.Kill();
      house.Start();
    }
    const int before = applied;
    CHECK(Await([&] { return applied > before + 50; }));
    stop = true;
  }
  for (const absl::Status& status : ended) {
    INFO(status);
    CHECK(status.ok());
  }
  CHECK(Connect(house.address())->GetModel("m")->id() == id);
  house.Stop();
  house.Start();
  const auto [center, version] = ReadCenter(house.address(), "m");
  CHECK(center == std::vector<float>(kSmall, static_cast<float>(version)));
  CHECK(Connect(house.address())->GetModel("m")->workers_size() == 3);
}

TEST_CASE("a daemon that is killed while it writes checkpoints always starts with a good one") {
  House house({"--checkpoint_every=10ms"});
  CreateModel(house.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  std::mt19937 random(std::random_device{}());
  int64_t newest = 0;
  for (int kill = 0; kill < Kills(); ++kill) {
    auto worker = Join(house.address(), "m", "w");
    std::vector<float> center(kFloats);
    REQUIRE(worker->Pull(absl::MakeSpan(center), kCallTimeout).ok());
    const absl::Time end = absl::Now() + absl::Milliseconds(20 + random() % 200);
    do {
      REQUIRE(worker->Exchange(std::vector<float>(kFloats, 1), absl::MakeSpan(center), kCallTimeout).ok());
    } while (absl::Now() < end);
    house.Kill();
    house.Start();
    const auto [restored, version] = ReadCenter(house.address(), "m");
    INFO("kill " << kill << ", version " << version << " after " << newest);
    CHECK((restored == std::vector<float>(kFloats, static_cast<float>(version))));
    CHECK(version >= newest);
    newest = version;
  }
  CHECK(newest > 0);
}

TEST_CASE("a disk without room is told, training goes on, and writing resumes once there is room") {
  House house({"--checkpoint_every=20ms"});
  CreateModel(house.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  const auto admin = Connect(house.address());
  const auto model = [&] { return admin->GetStatus()->models(0); };
  // The system's limit on files stands for a disk that is full.
  const auto limit = [&](rlim_t bytes) {
    const rlimit files{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    REQUIRE(prlimit(house.process().pid(), RLIMIT_FSIZE, &files, nullptr) == 0);
  };
  const auto worker = Join(house.address(), "m", "w");
  limit(1 << 20);
  REQUIRE(worker->Commit(std::vector<float>(kFloats, 1), kCallTimeout).ok());
  CHECK(Await([&] { return !model().checkpoint_problem().empty(); }));
  CHECK(model().checkpoint_version() == 0);
  REQUIRE(worker->Commit(std::vector<float>(kFloats, 1), kCallTimeout).ok());
  limit(RLIM_INFINITY);
  CHECK(Await([&] { return model().checkpoint_problem().empty() && model().checkpoint_version() == 2; }));
  house.Kill();
  house.Start();
  CHECK(ReadCenter(house.address(), "m").second == 2);
}

TEST_CASE("a shutdown that can't write what has changed does not end as a clean one") {
  House house({"--checkpoint_every=1h"});
  CreateModel(house.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  REQUIRE(Join(house.address(), "m", "w")->Commit(std::vector<float>(kFloats, 1), kCallTimeout).ok());
  const rlimit files{.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
  REQUIRE(prlimit(house.process().pid(), RLIMIT_FSIZE, &files, nullptr) == 0);
  house.Stop(1);
  CHECK_THAT(house.process().Err(), Catch::Contains("event=not_saved"));
  house.Start();
  CHECK(ReadCenter(house.address(), "m").second == 0);
}

}  // namespace
}  // namespace paramd
