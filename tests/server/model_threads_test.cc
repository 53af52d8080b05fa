// A model under many threads. Threads collect, the main thread asserts.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

// Empty if the center is uniform and equals its version, else what is wrong with it.
std::string CheckUniform(const Snapshot& snapshot) {
  const float expected = static_cast<float>(snapshot.version);
  size_t at = 0;
  for (const BlockRef& block : snapshot.blocks) {
    const auto floats = block.floats();
    const auto wrong = std::find_if(floats.begin(), floats.end(), [expected](float f) { return f != expected; });
    if (wrong != floats.end()) {
      return absl::StrCat("version ", snapshot.version, " has ", *wrong, " at ", at + (wrong - floats.begin()));
    }
    at += floats.size();
  }
  if (at != snapshot.floats) return absl::StrCat(at, " floats instead of ", snapshot.floats);
  return "";
}

// What a thread found wrong; empty if nothing.
using Findings = std::vector<std::string>;

void CommitOnes(Model* model, int index, size_t floats, int commits, Findings* findings) {
  ModelWorker worker(model, absl::StrCat("w", index));
  const std::vector<float> ones(floats, 1.0f);
  int64_t last_version = 0;
  for (int i = 0; i < commits; ++i) {
    // Every fourth one only commits, so that blocks are also written in place.
    const Outcome outcome = i % 4 == 3 ? worker.Commit(ones) : worker.Exchange(ones);
    if (!outcome.status.ok()) findings->push_back(outcome.status.ToString());
    if (outcome.version <= last_version) findings->push_back(absl::StrCat("version ", outcome.version, " comes late"));
    last_version = outcome.version;
    if (outcome.center != nullptr) {
      if (std::string wrong = CheckUniform(*outcome.center); !wrong.empty()) findings->push_back(std::move(wrong));
    }
  }
}

void ReadUntil(const std::atomic<bool>* done, Model* model, Findings* findings) {
  int64_t last_version = 0;
  while (!done->load()) {
    const auto snapshot = TakeSnapshot(model);
    if (snapshot->version < last_version) findings->push_back("the version went back");
    last_version = snapshot->version;
    if (std::string wrong = CheckUniform(*snapshot); !wrong.empty()) findings->push_back(std::move(wrong));
    std::this_thread::yield();
  }
}

void CommitFromThreads(size_t floats, int threads, int commits, int apply_threads) {
  const auto model =
      MakeModel(MakeSpec("downpour", floats), {.apply_pool = std::make_shared<ApplyPool>(apply_threads)});
  Initialize(model.get(), std::vector<float>(floats, 0.0f));
  std::atomic<bool> done{false};
  std::vector<Findings> findings(threads + 1);
  std::thread reader(ReadUntil, &done, model.get(), &findings[threads]);
  std::vector<std::thread> committers;
  for (int i = 0; i < threads; ++i) {
    committers.emplace_back(CommitOnes, model.get(), i, floats, commits, &findings[i]);
  }
  for (std::thread& thread : committers) thread.join();
  done = true;
  reader.join();

  for (const Findings& of_thread : findings) CHECK(of_thread == Findings());
  const auto center = TakeSnapshot(model.get());
  CHECK(center->version == threads * commits);
  CHECK(CheckUniform(*center) == "");
  CHECK(model->Describe().workers_size() == threads);
}

TEST_CASE("16 threads commit ones to a small model 1,000 times each: version and sum are exact, no pull is torn") {
  CommitFromThreads(64, 16, 1000, /*apply_threads=*/1);
}

TEST_CASE("16 threads commit ones to a model of several blocks: version and sum are exact, no pull is torn") {
  CommitFromThreads(4 * kBlockFloats + 5, 16, 4, /*apply_threads=*/GENERATE(1, 3));
}

void ExchangeAndLeave(Model* model, int index, int exchanges, Findings* findings) {
  ModelWorker worker(model, absl::StrCat("w", index));
  for (int i = 0; i < exchanges; ++i) {
    Outcome outcome = worker.Exchange({1});
    // Now and then the reply is lost.
    if (outcome.status.ok() && i % 7 == index) outcome = worker.Retry();
    if (!outcome.status.ok()) findings->push_back(outcome.status.ToString());
    if (i % 2 == 0) worker.Acknowledge();
  }
  if (const absl::Status status = worker.Leave(); !status.ok()) findings->push_back(status.ToString());
}

void Watch(const std::atomic<bool>* done, Model* model) {
  while (!done->load()) {
    model->Tick();
    model->Describe();
    std::this_thread::yield();
  }
}

TEST_CASE("Threads that wait for each other, with uneven numbers of windows, all finish and nothing is lost") {
  for (const char* consistency : {"sync", "bounded:0", "bounded:2"}) {
    for (const char* algorithm : {"downpour", "aeasgd"}) {
      INFO(algorithm << ", " << consistency);
      constexpr int kThreads = 6;
      const auto model = MakeModel(MakeSpec(algorithm, 1, consistency));
      Initialize(model.get(), {0});
      std::atomic<bool> done{false};
      std::thread watcher(Watch, &done, model.get());
      std::vector<Findings> findings(kThreads);
      std::vector<std::thread> workers;
      int64_t commits = 0;
      for (int i = 0; i < kThreads; ++i) {
        const int exchanges = 40 + 10 * i;
        workers.emplace_back(ExchangeAndLeave, model.get(), i, exchanges, &findings[i]);
        commits += exchanges;
      }
      for (std::thread& thread : workers) thread.join();
      done = true;
      watcher.join();

      for (const Findings& of_thread : findings) CHECK(of_thread == Findings());
      CHECK(model->Describe().version() == commits);
      if (algorithm == std::string("downpour")) CHECK(CheckUniform(*TakeSnapshot(model.get())) == "");
    }
  }
}

}  // namespace
}  // namespace paramd::testing
