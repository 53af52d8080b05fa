#include "server/center.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/registry.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Vector = std::vector<float>;

// θ += δ·r, with r the rounds so far, which its only state vector counts. Also checks their number.
class CountingHalf : public ServerHalf {
 public:
  int state_vectors() const override { return 1; }
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    for (size_t i = 0; i < p.sum.size(); ++i) p.sum[i] += p.commit[i];
  }
  void Finish(const RoundInfo& round, const FinishPiece& p) const override {
    for (size_t i = 0; i < p.next.size(); ++i) {
      if (p.state[0][i] != static_cast<float>(round.before)) ++miscounted;
      p.state[0][i] += 1;
      p.next[i] = p.center[i] + p.sum[i] * p.state[0][i];
    }
  }

  mutable std::atomic<int> miscounted{0};
};

// Writes how far the base is behind.
class BaseHalf : public ServerHalf {
 public:
  bool needs_base() const override { return true; }
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    for (size_t i = 0; i < p.sum.size(); ++i) p.sum[i] += p.commit[i] + p.center[i] - p.base[i];
  }
};

std::unique_ptr<ServerHalf> Half(const std::string& name) {
  const Algorithm* algorithm = *FindAlgorithm(name);
  return algorithm->make_server(*CompleteHyperparameters(*algorithm, {}));
}

void Apply(Center* center, ServerHalf* half, Vector commit, const Snapshot* base = nullptr) {
  CommitBuffer buffer = MakeBuffer(std::move(commit));
  REQUIRE(center->Apply(half, {.version = center->version()}, &buffer, base));
}

void Fold(Center* center, ServerHalf* half, Vector commit) {
  CommitBuffer buffer = MakeBuffer(std::move(commit));
  center->Fold(half, {.version = center->version()}, &buffer, nullptr);
}

Vector Values(Center* center) { return Floats(*center->TakeSnapshot()); }

const float* BlockAddress(Center* center, size_t block) {
  return center->TakeSnapshot()->blocks[block].floats().data();
}

Vector Ramp(size_t n) {
  Vector floats(n);
  for (size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(i % 1000);
  return floats;
}

Vector Plus(Vector floats, float x) {
  for (float& f : floats) f += x;
  return floats;
}

TEST_CASE("A center of any size begins at zero and version 0, in blocks, and takes values and commits") {
  const size_t n =
      GENERATE(1, kPieceFloats + 1, kBlockFloats - 1, kBlockFloats, kBlockFloats + 1, 4 * kBlockFloats + 7);
  INFO(n);
  Center center(n, 0, std::make_shared<ApplyPool>(/*threads=*/GENERATE(1, 3)));
  CHECK(center.floats() == n);
  CHECK(center.version() == 0);
  CHECK(Values(&center) == Vector(n, 0));
  const auto snapshot = center.TakeSnapshot();
  CHECK(snapshot->floats == n);
  CHECK(snapshot->blocks.size() == (n + kBlockFloats - 1) / kBlockFloats);

  CommitBuffer initial = MakeBuffer(Ramp(n));
  center.Set(&initial, /*version=*/0, /*rounds=*/0);
  CHECK(center.version() == 0);
  CHECK(Values(&center) == Ramp(n));

  const auto half = Half("downpour");
  Apply(&center, half.get(), Vector(n, 2));
  CHECK(center.version() == 1);
  CHECK(Values(&center) == Plus(Ramp(n), 2));

  Fold(&center, half.get(), Vector(n, 3));
  Fold(&center, half.get(), Vector(n, 4));
  CHECK(Values(&center) == Plus(Ramp(n), 2));
  center.FinishRound(half.get());
  CHECK(center.version() == 3);
  CHECK(Values(&center) == Plus(Ramp(n), 9));
  // What had been taken before any of it.
  CHECK(Floats(*snapshot) == Vector(n, 0));
}

TEST_CASE("A commit is applied the same from slices that straddle floats as from one piece") {
  const size_t n = 4 * kBlockFloats + 100;
  const auto half = Half("downpour");
  const Vector commit = Ramp(n);
  const std::string_view bytes(reinterpret_cast<const char*>(commit.data()), n * sizeof(float));
  CommitBuffer sliced(n);
  for (size_t begin = 0; begin < n; begin += 5000) {
    const size_t count = std::min<size_t>(5000, n - begin);
    const std::string_view message = bytes.substr(begin * 4, count * 4);
    const size_t cut = begin / 5000 % message.size();
    REQUIRE(sliced.Append(begin, {message.substr(0, cut), message.substr(cut)}, nullptr).ok());
  }
  Center center(n, 0, std::make_shared<ApplyPool>(/*threads=*/GENERATE(1, 3)));
  REQUIRE(center.Apply(half.get(), {}, &sliced, nullptr));
  CHECK(Values(&center) == commit);
}

TEST_CASE("A snapshot never changes and is as old as its version says") {
  Center center(kBlockFloats + 1, 0);
  const auto half = Half("downpour");
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
  for (int i = 0; i < 4; ++i) {
    snapshots.push_back(center.TakeSnapshot());
    Apply(&center, half.get(), Vector(kBlockFloats + 1, 1));
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(snapshots[i]->version == i);
    CHECK(Floats(*snapshots[i]) == Vector(kBlockFloats + 1, static_cast<float>(i)));
  }
}

TEST_CASE("The same snapshot is returned until the center changes") {
  Center center(3, 0);
  const auto half = Half("downpour");
  const auto first = center.TakeSnapshot();
  CHECK(center.TakeSnapshot() == first);
  Fold(&center, half.get(), {1, 1, 1});
  CHECK(center.TakeSnapshot() == first);
  center.FinishRound(half.get());
  CHECK(center.TakeSnapshot() != first);
  const auto second = center.TakeSnapshot();
  CommitBuffer values = MakeBuffer({7, 8, 9});
  center.Set(&values, 0, 0);
  CHECK(center.TakeSnapshot() != second);
  CHECK(Floats(*second) == Vector{1, 1, 1});
}

TEST_CASE("Blocks are written in place while no snapshot holds them, by commits and by rounds") {
  const size_t n = 2 * kBlockFloats + 1;
  Center center(n, 0);
  const auto half = Half("downpour");
  std::vector<const float*> before;
  for (size_t b = 0; b < 3; ++b) before.push_back(BlockAddress(&center, b));
  Apply(&center, half.get(), Vector(n, 1));
  Fold(&center, half.get(), Vector(n, 1));
  center.FinishRound(half.get());
  CommitBuffer values = MakeBuffer(Vector(n, 5));
  center.Set(&values, 0, 0);
  for (size_t b = 0; b < 3; ++b) CHECK(BlockAddress(&center, b) == before[b]);
  CHECK(center.pinned_bytes() == 0);
}

TEST_CASE("Only the blocks that a snapshot holds are copied on write") {
  const size_t n = 3 * kBlockFloats;
  Center center(n, 0);
  const auto half = Half("downpour");
  std::vector<const float*> before;
  for (size_t b = 0; b < 3; ++b) before.push_back(BlockAddress(&center, b));
  // As a pull that has only this block left to send.
  const BlockRef held = center.TakeSnapshot()->blocks[1];
  Apply(&center, half.get(), Vector(n, 1));
  CHECK(BlockAddress(&center, 0) == before[0]);
  CHECK(BlockAddress(&center, 1) != before[1]);
  CHECK(BlockAddress(&center, 2) == before[2]);
  CHECK(held.floats().data() == before[1]);
  CHECK(std::all_of(held.floats().begin(), held.floats().end(), [](float f) { return f == 0; }));
  CHECK(center.pinned_bytes() == kBlockFloats * sizeof(float));
}

TEST_CASE("Bytes are pinned as long as a snapshot of an older version lives") {
  const size_t n = kBlockFloats + 10;
  Center center(n, 1);
  CountingHalf half;
  auto first = center.TakeSnapshot();
  CHECK(center.pinned_bytes() == 0);
  Apply(&center, &half, Vector(n, 1));
  CHECK(center.pinned_bytes() == n * sizeof(float));
  auto second = center.TakeSnapshot();
  Apply(&center, &half, Vector(n, 1));
  CHECK(center.pinned_bytes() == 2 * n * sizeof(float));
  first.reset();
  CHECK(center.pinned_bytes() == n * sizeof(float));
  second.reset();
  CHECK(center.pinned_bytes() == 0);
  // The round's sum is no pinned memory either.
  Fold(&center, &half, Vector(n, 1));
  CHECK(center.pinned_bytes() == 0);
}

TEST_CASE("State vectors begin at zero, advance with every round, and are finished once a parameter") {
  const size_t n = 4 * kBlockFloats + 3;
  Center center(n, 1, std::make_shared<ApplyPool>(/*threads=*/GENERATE(1, 3)));
  CountingHalf half;
  Apply(&center, &half, Vector(n, 1));
  CHECK(Values(&center) == Vector(n, 1));  // + 1·1
  Apply(&center, &half, Vector(n, 1));
  CHECK(Values(&center) == Vector(n, 3));  // + 1·2
  const auto held = center.TakeSnapshot();
  Fold(&center, &half, Vector(n, 1));
  Fold(&center, &half, Vector(n, 1));
  center.FinishRound(&half);
  CHECK(Values(&center) == Vector(n, 9));  // + 2·3
  CHECK(Floats(*held) == Vector(n, 3));
  CHECK(half.miscounted == 0);
}

TEST_CASE("A round's sum begins at zero again in every round") {
  Center center(2, 0);
  const auto half = Half("averaging");
  for (const float mean : {4.0f, -2.0f}) {
    CHECK(center.folded() == 0);
    Fold(&center, half.get(), {mean - 1, mean});
    Fold(&center, half.get(), {mean + 1, mean});
    CHECK(center.folded() == 2);
    center.FinishRound(half.get());
    CHECK(Values(&center) == Vector{mean, mean});
  }
  CHECK(center.version() == 4);
}

TEST_CASE("A commit may be merged against the center it was based on, also when that is the present one") {
  const size_t n = kBlockFloats + 2;
  Center center(n, 0);
  BaseHalf half;
  const auto base = center.TakeSnapshot();
  Apply(&center, &half, Vector(n, 1), base.get());
  CHECK(Values(&center) == Vector(n, 1));
  Apply(&center, &half, Vector(n, 1), base.get());
  CHECK(Values(&center) == Vector(n, 3));  // 1 + 1 + (1 − 0)
}

TEST_CASE("A center made from a snapshot begins with its values, at version 0, and shares its blocks until it writes") {
  const auto half = Half("downpour");
  Center origin(kBlockFloats + 1, 0);
  Apply(&origin, half.get(), Vector(kBlockFloats + 1, 4));
  Center copy(*origin.TakeSnapshot(), 0);
  CHECK(copy.version() == 0);
  CHECK(BlockAddress(&copy, 0) == BlockAddress(&origin, 0));
  CHECK(copy.pinned_bytes() == 0);
  Apply(&copy, half.get(), Vector(kBlockFloats + 1, 1));
  CHECK(Values(&copy) == Vector(kBlockFloats + 1, 5));
  CHECK(Values(&origin) == Vector(kBlockFloats + 1, 4));
  CHECK(copy.version() == 1);
  CHECK(copy.pinned_bytes() == 0);
}

}  // namespace
}  // namespace paramd::testing
