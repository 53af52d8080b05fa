// A real daemon with a journal, killed again and again under its workers.
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 3000;
constexpr int kWorkers = 2;
constexpr int kKills = 3;

struct Combination {
  std::string model;
  std::string algorithm;
  std::string consistency;
  Transport transport;
  Wire wire;
};

std::vector<Combination> Combinations() {
  std::vector<Combination> combinations;
  for (const char* const consistency : {"async", "bounded:1", "sync"}) {
    for (const auto& [way, transport, wire] :
         {std::tuple("f32", Transport::kGrpc, Wire::kFloat32), std::tuple("f16", Transport::kGrpc, Wire::kFloat16),
          std::tuple("shm", Transport::kShm, Wire::kFloat32)}) {
      combinations.push_back({absl::StrCat("downpour-", absl::StrReplaceAll(consistency, {{":", "-"}}), "-", way),
                              "downpour", consistency, transport, wire});
    }
  }
  // Not of integers: that they go on is all that can be seen from here.
  for (const char* const algorithm : {"aeasgd", "adaptive_adag"}) {
    combinations.push_back({algorithm, algorithm, "async", Transport::kGrpc, Wire::kFloat32});
  }
  return combinations;
}

TEST_CASE(
    "with a journal a kill -9 loses no acknowledged commit, applies none twice, and workers go on by themselves") {
  const std::string folder = TemporaryPath("state");
  const std::vector<std::string> flags = {"--state_dir=" + folder, "--durability=journal", "--checkpoint_every=300ms"};
  auto daemon = std::make_unique<Daemon>(flags);
  const std::string address = daemon->address();
  const std::vector<Combination> combinations = Combinations();
  for (const Combination& c : combinations) {
    CreateModel(address, Spec(c.model, c.algorithm, kFloats, c.consistency), std::vector<float>(kFloats, 0));
  }

  std::atomic<bool> stop{false};
  std::atomic<int> exchanges{0};
  std::vector<std::vector<int>> applied(combinations.size(), std::vector<int>(kWorkers, 0));
  std::vector<std::vector<absl::Status>> ends(combinations.size(), std::vector<absl::Status>(kWorkers));
  {
    std::vector<Thread> threads;
    for (size_t m = 0; m < combinations.size(); ++m) {
      for (int w = 0; w < kWorkers; ++w) {
        threads.emplace_back([&, m, w] {
          const Combination& c = combinations[m];
          auto worker = Worker::Join({.server = address,
                                      .model = c.model,
                                      .worker = absl::StrCat(w),
                                      .transport = c.transport,
                                      .wire = c.wire});
          ends[m][w] = worker.status();
          if (!worker.ok()) return;
          std::vector<float> delta(kFloats, 0);
          delta[w] = 1;
          std::vector<float> center(kFloats);
          ends[m][w] = (*worker)->Pull(absl::MakeSpan(center), kCallTimeout).status();
          while (ends[m][w].ok() && !stop) {
            const auto exchanged = (*worker)->Exchange(delta, absl::MakeSpan(center), kCallTimeout);
            ends[m][w] = exchanged.status();
            if (exchanged.ok() && exchanged->applied) ++applied[m][w];
            ++exchanges;
          }
        });
      }
    }
    for (int kill = 0; kill < kKills; ++kill) {
      const int before = exchanges;
      CHECK(Await([&] { return exchanges > before + 300; }));
      daemon->process().Signal(SIGKILL);
      CHECK(daemon->process().Wait() == 128 + SIGKILL);
      std::vector<std::string> again = flags;
      again.push_back("--listen=" + address);
      daemon = std::make_unique<Daemon>(again);
    }
    const int before = exchanges;
    CHECK(Await([&] { return exchanges > before + 300; }));
    stop = true;
  }
  const auto check = [&] {
    for (size_t m = 0; m < combinations.size(); ++m) {
      INFO(combinations[m].model);
      for (const absl::Status& end : ends[m]) CHECK(end == absl::OkStatus());
      if (combinations[m].algorithm != "downpour") continue;
      const auto [center, version] = ReadCenter(address, combinations[m].model);
      for (int w = 0; w < kWorkers; ++w) CHECK(center[w] == static_cast<float>(applied[m][w]));
    }
  };
  check();
  // Once more, when nobody is there.
  daemon->process().Signal(SIGKILL);
  daemon->process().Wait();
  daemon = std::make_unique<Daemon>(std::vector<std::string>{flags[0], "--listen=" + address});
  check();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace paramd
