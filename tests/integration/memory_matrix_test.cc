// The daemon's memory under {async, bounded, sync} x {gRPC, shared memory} x every algorithm, with workers that
// exchange as fast as they can: the bound of docs/architecture.md.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/registry.h"
#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 6'000'000;
constexpr uint64_t kModelBytes = kFloats * sizeof(float);
constexpr int kWorkers = 16;
constexpr int kExchanges = 2;
// Whatever the model: free blocks that its pool keeps, and what connections hold in buffers of their own.
constexpr uint64_t kPoolBytes = 16 << 20;
constexpr uint64_t kConnectionBytes = 2 << 20;  // an HTTP/2 frame of 1 MiB, and the one before
constexpr absl::Duration kTimeout = absl::Minutes(5);

struct Peak {
  uint64_t anonymous_bytes = 0;  // more than before there was a model
  uint64_t pinned_bytes = 0;
};

// Looks again and again, from its construction on, until it is told to end.
class Watch {
 public:
  Watch(const Daemon& daemon, std::string model)
      : daemon_(daemon), model_(std::move(model)), before_(Anonymous()), thread_([this] { Run(); }) {}

  Peak End() {
    ended_ = true;
    thread_.Join();
    return peak_;
  }

 private:
  // Shared memory, which is capped by itself, is not anonymous.
  uint64_t Anonymous() const { return daemon_.process().StatusNumber("RssAnon") * 1024; }

  void Run() {
    const auto admin = Admin::Connect(daemon_.address(), kTimeout);
    for (int round = 0; !ended_; ++round) {
      peak_.anonymous_bytes = std::max(peak_.anonymous_bytes, Anonymous() - before_);
      if (round % 16 == 0 && admin.ok()) {
        const auto info = (*admin)->GetModel(model_);
        if (info.ok()) peak_.pinned_bytes = std::max<uint64_t>(peak_.pinned_bytes, info->pinned_bytes());
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  const Daemon& daemon_;
  const std::string model_;
  const uint64_t before_;
  std::atomic<bool> ended_ = false;
  Peak peak_;  // of the thread, until it is joined
  Thread thread_;
};

// Sixteen workers' vectors, whose memory is used again and again.
std::vector<std::vector<float>>& Centers() {
  static std::vector<std::vector<float>> centers(kWorkers, std::vector<float>(kFloats));
  return centers;
}

Peak Exchange(const Algorithm& algorithm, const std::string& consistency, Transport transport) {
  // As little as there may be: two models.
  Daemon daemon({"--max_in_flight_bytes=1"});
  static const std::vector<float> update(kFloats, 1);
  const auto half = algorithm.make_server(*CompleteHyperparameters(algorithm, {}));
  REQUIRE(Connect(daemon.address())->CreateModel(Spec("m", algorithm.name, kFloats, consistency)).ok());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.push_back(
        Join({.server = daemon.address(), .model = "m", .worker = std::to_string(w), .transport = transport}));
  }
  Watch watch(daemon, workers[0]->model().spec().name());
  for (int w = 0; w < (half->own_centers() ? kWorkers : 1); ++w) {
    REQUIRE(workers[w]->Initialize(update, kTimeout).ok());
  }
  std::vector<absl::Status> results(kWorkers);
  {
    std::vector<Thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        Worker* const worker = workers[w].get();
        const bool in_place = transport == Transport::kShm;
        const absl::Span<float> center = in_place ? worker->center_buffer() : absl::MakeSpan(Centers()[w]);
        absl::Span<const float> commit = update;
        if (in_place) {
          std::copy(update.begin(), update.end(), worker->commit_buffer().begin());
          commit = worker->commit_buffer();
        }
        if (half->needs_base()) results[w] = worker->Pull(center, kTimeout).status();
        for (int i = 0; i < kExchanges && results[w].ok(); ++i) {
          results[w] = worker->Exchange(commit, center, kTimeout).status();
        }
        worker->Leave().IgnoreError();
      });
    }
  }
  for (const absl::Status& result : results) {
    INFO(result);
    CHECK(result.ok());
  }
  const Peak peak = watch.End();
  CHECK(Connect(daemon.address())->GetModel(workers[0]->model().spec().name())->version() ==
        (half->own_centers() ? 1 : kWorkers) * kExchanges);
  return peak;
}

TEST_CASE("memory does not grow with the number of workers") {
  const Transport transport = GENERATE(Transport::kGrpc, Transport::kShm);
  const std::string consistency = GENERATE("async", "bounded:1", "sync");
  for (const Algorithm* algorithm : ListAlgorithms()) {
    if (algorithm->make_server == nullptr) continue;
    const auto half = algorithm->make_server(*CompleteHyperparameters(*algorithm, {}));
    const std::string name =
        absl::StrCat(transport == Transport::kShm ? "shm" : "grpc", ", ", consistency, ", ", algorithm->name);
    INFO(name);
    const absl::Time begin = absl::Now();
    const Peak peak = Exchange(*algorithm, consistency, transport);
    const uint64_t centers = half->own_centers() ? kWorkers : 1;
    const uint64_t sums = consistency == "sync" ? centers : 0;
    const uint64_t bases = half->needs_base() ? kWorkers : 0;
    std::cout << absl::StreamFormat("%-30s peak %5.2f models, pinned %5.2f models, %.1f s\n", name,
                                    1.0 * peak.anonymous_bytes / kModelBytes, 1.0 * peak.pinned_bytes / kModelBytes,
                                    absl::ToDoubleSeconds(absl::Now() - begin))
              << std::flush;
    // Each center has a copy-on-write generation, and all share what may be in flight.
    CHECK(peak.anonymous_bytes <=
          (2 * centers + sums + bases + 2) * kModelBytes + kPoolBytes + kWorkers * kConnectionBytes);
    // What is in flight, and the blocks that the next version is written to.
    CHECK(peak.pinned_bytes <= (3 + bases) * kModelBytes);
  }
}

}  // namespace
}  // namespace paramd
