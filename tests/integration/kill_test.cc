// Worker processes that are killed in the middle of a commit.
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/tensor_codec.h"
#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"
#include "tests/support/transport.h"

namespace paramd {
namespace {

constexpr char kWorker[] = "tests/integration/half_commit";
constexpr size_t kFloats = 8 * kChunkFloats + 3;

std::vector<float> Center() {
  std::vector<float> center(kFloats);
  for (size_t i = 0; i < kFloats; ++i) center[i] = static_cast<float>(i % 977) / 3;
  return center;
}

void AwaitOutput(const Process& process, const std::string& line) {
  INFO(process.Err());
  REQUIRE(Await([&] { return absl::StrContains(process.Out(), line + "\n"); }));
}

TEST_CASE("a worker killed in the middle of a commit changes nothing, and comes back as another incarnation") {
  Daemon daemon;
  const std::vector<float> center = Center();
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), center);
  const auto admin = Connect(daemon.address());
  for (int incarnation = 1; incarnation <= 3; ++incarnation) {
    Process victim(kWorker, {daemon.address(), "m", "victim", "half"});
    AwaitOutput(victim, absl::StrCat("joined ", incarnation));
    AwaitOutput(victim, "half");
    CHECK(Await([&] { return admin->GetStatus()->in_flight_bytes() == kFloats * sizeof(float); }));
    victim.Signal(SIGKILL);
    CHECK(victim.Wait() == 128 + SIGKILL);
    CHECK(Await([&] { return admin->GetStatus()->in_flight_bytes() == 0; }));
    const auto [after, version] = ReadCenter(daemon.address(), "m");
    CHECK(version == 0);
    CHECK(after == center);
  }
  const auto committed = Join(daemon.address(), "m", "other")->Commit(std::vector<float>(kFloats, 1), kCallTimeout);
  CHECK(committed.ok());
}

TEST_CASE("workers that wait for a killed one go on within its lease") {
  const std::string consistency = GENERATE(as<std::string>(), "sync", "bounded:1");
  const absl::Duration lease = absl::Seconds(2);
  Daemon daemon({"--lease=2s"});
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats, consistency), std::vector<float>(kFloats, 0));
  const auto admin = Connect(daemon.address());
  const auto info = [&](const std::string& worker) { return FindWorker(*admin->GetModel("m"), worker); };
  Process victim(kWorker, {daemon.address(), "m", "victim", "half"});
  AwaitOutput(victim, "half");

  // Each commits until it has to wait, and once more after the victim's end.
  constexpr int kCommits = 4;
  std::vector<absl::Status> results(2);
  std::vector<absl::Time> ends(2);
  absl::Time killed;
  {
    std::vector<Thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join({.server = daemon.address(),
                                    .model = "m",
                                    .worker = std::to_string(w),
                                    .transport = TestWorkerTransport()});
        results[w] = worker.status();
        for (int i = 0; i < kCommits && results[w].ok(); ++i) {
          results[w] = (*worker)->Commit(std::vector<float>(kFloats, 1), kCallTimeout).status();
        }
        ends[w] = absl::Now();
      });
    }
    CHECK(Await([&] { return info("0").waiting() && info("1").waiting(); }));
    CHECK(info("victim").state() == v1::WorkerInfo::LIVE);
    victim.Signal(SIGKILL);
    killed = absl::Now();
  }
  for (int w = 0; w < 2; ++w) {
    INFO(results[w]);
    CHECK(results[w].ok());
    CHECK(ends[w] - killed < lease + absl::Seconds(5));
  }
  CHECK(info("victim").state() == v1::WorkerInfo::EXPIRED);
  CHECK(info("victim").commits() == 0);
  const auto [center, version] = ReadCenter(daemon.address(), "m");
  CHECK(version == 2 * kCommits);
  CHECK(center == std::vector<float>(kFloats, 2 * kCommits));

  Process again(kWorker, {daemon.address(), "m", "victim", "half"});
  AwaitOutput(again, "joined 2");
  CHECK(info("victim").state() == v1::WorkerInfo::LIVE);
}

TEST_CASE("a worker killed at any moment leaves whole commits only") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  const auto admin = Connect(daemon.address());
  int64_t version = 0;
  for (int i = 1; i <= 10; ++i) {
    Process victim(kWorker, {daemon.address(), "m", "victim", "whole"});
    AwaitOutput(victim, absl::StrCat("joined ", i));
    // Some way into one of its commits.
    const int64_t before = version;
    CHECK(Await([&] { return admin->GetModel("m")->version() > before + i; }));
    if (TestWorkerTransport() == Transport::kGrpc) {
      CHECK(Await([&] { return admin->GetStatus()->in_flight_bytes() > 0; }));
    }
    victim.Signal(SIGKILL);
    CHECK(victim.Wait() == 128 + SIGKILL);
    CHECK(Await([&] {
      const auto status = admin->GetStatus();
      return status->in_flight_bytes() == 0 && status->segments() == 0 && status->shared_bytes() == 0;
    }));
    std::vector<float> center;
    std::tie(center, version) = ReadCenter(daemon.address(), "m");
    CHECK(version > before);
    CHECK(center == std::vector<float>(kFloats, static_cast<float>(version)));
  }
}

}  // namespace
}  // namespace paramd
