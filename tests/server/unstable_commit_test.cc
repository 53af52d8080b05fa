// Commits in memory that their sender can still write to: applied whole or not at all, whatever it writes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/center.h"
#include "server/model.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

using Vector = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kFloats = 4 * kBlockFloats + kPieceFloats + 3;

std::shared_ptr<Vector> Share(Vector floats) { return std::make_shared<Vector>(std::move(floats)); }

// As it comes in messages of half a block.
CommitBuffer Unstable(const std::shared_ptr<Vector>& shared, std::function<bool()> still_whole) {
  CommitBuffer buffer(shared->size());
  const absl::Span<const float> floats = *shared;
  for (size_t begin = 0; begin < floats.size(); begin += kBlockFloats / 2) {
    REQUIRE(buffer.AppendUnstable(begin, floats.subspan(begin, kBlockFloats / 2), shared).ok());
  }
  buffer.set_still_whole(std::move(still_whole));
  return buffer;
}

// Nobody changes it.
CommitBuffer Unstable(Vector floats) {
  return Unstable(Share(std::move(floats)), [] { return true; });
}

// θ += δ·r, with r the number of rounds so far, which its state vector counts.
class CountingHalf : public ServerHalf {
 public:
  int state_vectors() const override { return 1; }
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    for (size_t i = 0; i < p.sum.size(); ++i) p.sum[i] += p.commit[i];
  }
  void Finish(const RoundInfo&, const FinishPiece& p) const override {
    for (size_t i = 0; i < p.next.size(); ++i) {
      p.state[0][i] += 1;
      p.next[i] = p.center[i] + p.sum[i] * p.state[0][i];
    }
  }
};

bool AllAre(float value, const Snapshot& snapshot) {
  const Vector floats = Floats(snapshot);
  return std::all_of(floats.begin(), floats.end(), [value](float f) { return f == value; });
}

TEST_CASE("An unstable commit is applied like any other, but never in place") {
  Center center(kFloats, 1);
  CountingHalf half;
  const float* const before = center.TakeSnapshot()->blocks[0].floats().data();
  CommitBuffer commit = Unstable(Vector(kFloats, 2));
  REQUIRE(center.Apply(&half, {}, &commit, nullptr));
  CHECK(center.version() == 1);
  CHECK(AllAre(2, *center.TakeSnapshot()));
  CHECK(center.TakeSnapshot()->blocks[0].floats().data() != before);
  CHECK(center.pinned_bytes() == 0);
}

TEST_CASE("A commit that is not whole any more when it was read leaves center, state and snapshots as they were") {
  Center center(kFloats, 1);
  CountingHalf half;
  CommitBuffer first = MakeBuffer(Vector(kFloats, 1));
  REQUIRE(center.Apply(&half, {}, &first, nullptr));
  const auto held = center.TakeSnapshot();

  const auto shared = Share(Vector(kFloats, 5));
  CommitBuffer commit = Unstable(shared, [&] {
    // Its sender took it back, and has begun to write something else there.
    (*shared)[7] = 1000;
    return false;
  });
  CHECK_FALSE(center.Apply(&half, {}, &commit, nullptr));
  CHECK(commit.first_non_finite() == -1);
  CHECK(center.version() == 1);
  CHECK(center.TakeSnapshot() == held);
  CHECK(AllAre(1, *held));

  CommitBuffer last = Unstable(Vector(kFloats, 1));
  REQUIRE(center.Apply(&half, {}, &last, nullptr));
  CHECK(AllAre(3, *center.TakeSnapshot()));  // 1 + 1·2: the state counted one round before, not two
  CHECK(AllAre(1, *held));
}

TEST_CASE("A NaN anywhere in an unstable commit leaves center and state as they were, and is found where it is") {
  const size_t at = GENERATE(size_t{0}, kPieceFloats, kBlockFloats + 1, kFloats - 1);
  const int threads = GENERATE(1, 3);
  Center center(kFloats, 1, std::make_shared<ApplyPool>(threads));
  CountingHalf half;
  const auto held = center.TakeSnapshot();
  Vector floats(kFloats, 1);
  for (size_t i = at; i < kFloats; i += kBlockFloats / 3) floats[i] = kNan;
  CommitBuffer commit = Unstable(std::move(floats));
  CHECK_FALSE(center.Apply(&half, {}, &commit, nullptr));
  CHECK(commit.first_non_finite() == static_cast<int64_t>(at));
  CHECK(center.TakeSnapshot() == held);
  CHECK(AllAre(0, *held));
  CommitBuffer again = Unstable(Vector(kFloats, 1));
  REQUIRE(center.Apply(&half, {}, &again, nullptr));
  CHECK(AllAre(1, *center.TakeSnapshot()));
}

// Overwrites what was sent while it is being merged.
class OverwritingHalf : public ServerHalf {
 public:
  explicit OverwritingHalf(Vector* shared) : shared_(shared) {}
  void Merge(const CommitInfo&, const MergePiece& p) const override {
    std::fill(shared_->begin(), shared_->end(), kNan);
    for (size_t i = 0; i < p.sum.size(); ++i) p.sum[i] += p.commit[i];
  }

 private:
  Vector* const shared_;
};

TEST_CASE("What was checked is what is merged: a float of an unstable commit is read once") {
  const auto shared = Share(Vector(kPieceFloats, 3));
  OverwritingHalf half(shared.get());
  Center center(kPieceFloats, 0);
  CommitBuffer commit = Unstable(shared, [] { return true; });
  REQUIRE(center.Apply(&half, {}, &commit, nullptr));
  CHECK(AllAre(3, *center.TakeSnapshot()));
}

std::unique_ptr<Model> MakeInitialized(const std::string& algorithm, const std::string& consistency = "async") {
  auto model = MakeModel(MakeSpec(algorithm, 2, consistency));
  Initialize(model.get(), {0, 0});
  return model;
}

ExchangeAnswer Exchange(const ModelWorker& worker, Model* model, uint64_t sequence, CommitBuffer commit) {
  return ExchangeAtOnce(model, {.caller = worker.caller(), .sequence = sequence, .floats = 2, .pull = true},
                        std::move(commit));
}

TEST_CASE("A model refuses an unstable commit that changed, counts it, and nothing else of it has moved") {
  const std::string consistency = GENERATE("async", "bounded:3");
  const bool not_finite = GENERATE(false, true);
  INFO(consistency << " " << not_finite);
  const auto model = MakeInitialized("aeasgd", consistency);
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Exchange({4, 8}).status.ok());
  const auto held = TakeSnapshot(model.get());
  const v1::ModelInfo before = model->Describe();
  REQUIRE(before.pinned_bytes() == 2 * sizeof(float));  // the answer, until it is acknowledged

  const ExchangeAnswer answer = not_finite ? Exchange(a, model.get(), 2, Unstable({1, kNan}))
                                           : Exchange(a, model.get(), 2, Unstable(Share({1, 2}), [] { return false; }));
  CHECK_FALSE(answer.committed);
  if (not_finite) {
    CHECK(answer.status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(answer.status.message()), Contains("tensor 'w' at [1]") && Contains("diverged"));
  } else {
    CHECK(answer.status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(answer.status.message()), Contains("changed while it was applied"));
  }
  CHECK(TakeSnapshot(model.get()) == held);
  v1::ModelInfo after = model->Describe();
  CHECK(after.rejected() == 1);
  CHECK(DescribeWorker(*model, "a").rejected() == 1);
  // All else, also the pinned answer.
  after.set_rejected(0);
  after.mutable_workers(0)->set_rejected(0);
  v1::ModelInfo expected = before;
  after.mutable_workers(0)->clear_lease_remaining_s();
  expected.mutable_workers(0)->clear_lease_remaining_s();
  CHECK(after.SerializeAsString() == expected.SerializeAsString());
  const Outcome retried = a.Retry();
  REQUIRE(retried.status.ok());
  CHECK(Floats(*retried.center) == Vector{0, 0});

  // The sequence was not used up.
  CHECK(Exchange(a, model.get(), 2, Unstable({4, 8})).status.ok());
  CHECK(model->Describe().version() == 2);
}

TEST_CASE("Rounds make unstable floats stable first; first centers take them only after that") {
  const auto model = MakeInitialized("averaging", "sync");
  ModelWorker a(model.get(), "a");
  CHECK(Exchange(a, model.get(), 1, Unstable(Share({1, 2}), [] { return false; })).status.code() ==
        absl::StatusCode::kUnavailable);
  CHECK(Exchange(a, model.get(), 1, Unstable({1, kNan})).status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(model->Describe().version() == 0);
  CHECK(model->Describe().rejected() == 2);
  CHECK(Exchange(a, model.get(), 1, Unstable({1, 2})).status.ok());
  CHECK(Floats(*TakeSnapshot(model.get())) == Vector{1, 2});

  const auto fresh = MakeModel(MakeSpec("downpour", 2));
  CommitBuffer center = Unstable({3, 4});
  CHECK(TryInitialize(fresh.get(), Unstable({3, 4})).code() == absl::StatusCode::kInternal);
  CHECK_FALSE(fresh->Describe().initialized());
  REQUIRE(center.MakeStable().ok());
  CHECK(TryInitialize(fresh.get(), std::move(center)).ok());
  CHECK(Floats(*TakeSnapshot(fresh.get())) == Vector{3, 4});
}

TEST_CASE("Floats made stable are the sender's no more, and were searched for NaN") {
  const auto shared = Share(Vector(kFloats, 1));
  shared->back() = kNan;
  CommitBuffer commit = Unstable(shared, [] { return true; });
  CHECK(commit.unstable());
  REQUIRE(commit.MakeStable().ok());
  CHECK_FALSE(commit.unstable());
  CHECK(commit.complete());
  CHECK(commit.first_non_finite() == static_cast<int64_t>(kFloats) - 1);
  std::fill(shared->begin(), shared->end(), 2.0f);
  CommitBuffer::Reader reader(&commit);
  for (size_t i = 0; i < kFloats - 1; ++i) REQUIRE(reader.Read(1)[0] == 1);
}

TEST_CASE("Floats that changed while they were made stable are refused") {
  CommitBuffer commit = Unstable(Share({1, 2}), [] { return false; });
  CHECK(commit.MakeStable().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Chunks of an unstable commit come in order, without gaps, and no more than the model has") {
  const Vector shared = {1, 2, 3};
  CommitBuffer buffer(3);
  REQUIRE(buffer.AppendUnstable(0, absl::MakeConstSpan(shared).subspan(0, 2), nullptr).ok());
  CHECK(buffer.AppendUnstable(1, absl::MakeConstSpan(shared).subspan(0, 1), nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(buffer.AppendUnstable(2, shared, nullptr).code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(buffer.complete());
  CHECK(buffer.AppendUnstable(2, absl::MakeConstSpan(shared).subspan(2), nullptr).ok());
  CHECK(buffer.complete());
}

TEST_CASE("The memory of an unstable commit is let go of as it is read") {
  auto owner = std::make_shared<const Vector>(Vector{1, 2});
  const std::weak_ptr<const void> watched = owner;
  CommitBuffer buffer(2);
  REQUIRE(buffer.AppendUnstable(0, *owner, owner).ok());
  owner.reset();
  CHECK_FALSE(watched.expired());
  REQUIRE(buffer.MakeStable().ok());
  CHECK(watched.expired());
}

}  // namespace
}  // namespace paramd::testing
