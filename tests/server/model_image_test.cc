// An image is all that a model is made of at one version.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/center.h"
#include "server/model.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Vector = std::vector<float>;

Vector FloatsOf(const std::vector<BlockRef>& blocks) {
  Vector floats;
  for (const BlockRef& block : blocks) floats.insert(floats.end(), block.floats().begin(), block.floats().end());
  return floats;
}

// θ += δ, and a vector that holds the last δ.
class RememberingHalf : public ServerHalf {
 public:
  int state_vectors() const override { return 1; }
  void Finish(const RoundInfo& round, const FinishPiece& piece) const override {
    std::copy(piece.sum.begin(), piece.sum.end(), piece.state[0].begin());
    ServerHalf::Finish(round, piece);
  }
};

TEST_CASE("An image has center, state vectors, version and rounds, and stays as it was taken") {
  constexpr size_t kFloats = kBlockFloats + 3;
  Center center(kFloats, 1);
  RememberingHalf half;
  for (const float value : {1.0f, 2.0f}) {
    CommitBuffer commit = MakeBuffer(Vector(kFloats, value));
    REQUIRE(center.Apply(&half, {}, &commit, nullptr));
  }
  const Image image = center.TakeImage();
  CommitBuffer later = MakeBuffer(Vector(kFloats, 4));
  REQUIRE(center.Apply(&half, {}, &later, nullptr));

  CHECK(image.version == 2);
  CHECK(image.rounds == 2);
  CHECK(image.floats == kFloats);
  CHECK(FloatsOf(image.blocks) == Vector(kFloats, 3));
  REQUIRE(image.state.size() == 1);
  CHECK(FloatsOf(image.state[0]) == Vector(kFloats, 2));
  CHECK(image.sum.empty());
  CHECK(image.folded == 0);
}

TEST_CASE("An image of a round that is under way has its sum so far") {
  Center center(2, 1);
  RememberingHalf half;
  for (const float value : {1.0f, 2.0f}) {
    CommitBuffer commit = MakeBuffer({value, 10 * value});
    center.Fold(&half, {}, &commit, nullptr);
  }
  const Image image = center.TakeImage();
  CommitBuffer later = MakeBuffer({4, 40});
  center.Fold(&half, {}, &later, nullptr);
  center.FinishRound(&half);

  CHECK(image.version == 0);
  CHECK(image.rounds == 0);
  CHECK(image.folded == 2);
  CHECK(FloatsOf(image.sum) == Vector{3, 30});
  CHECK(FloatsOf(image.blocks) == Vector{0, 0});
  CHECK(Floats(*center.TakeSnapshot()) == Vector{7, 70});
  CHECK(center.TakeImage().rounds == 1);
  CHECK(center.TakeImage().sum.empty());
}

TEST_CASE("A model's image comes with who has committed which sequence") {
  const auto model = MakeModel(MakeSpec("downpour", 1));
  ModelImage image;
  const auto take = [&] {
    model->TakeImage([&](absl::StatusOr<ModelImage> taken) {
      REQUIRE(taken.ok());
      image = *std::move(taken);
    });
  };
  take();
  CHECK_FALSE(image.image.has_value());
  CHECK_FALSE(image.record.initialized());
  Initialize(model.get(), {5});
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  REQUIRE(a.Commit({1}).status.ok());
  REQUIRE(a.Commit({1}).status.ok());
  take();
  REQUIRE(image.image.has_value());
  CHECK(image.record.id() == model->id());
  CHECK(image.image->version == 2);
  CHECK(FloatsOf(image.image->blocks) == Vector{7});
  REQUIRE(image.record.members_size() == 2);
  CHECK(image.record.members(0).name() == "a");
  CHECK(image.record.members(0).nonce() == a.caller().nonce);
  CHECK(image.record.members(0).sequence() == 2);
  CHECK(image.record.members(0).version() == 2);
  CHECK(image.record.members(1).sequence() == 0);
}

}  // namespace
}  // namespace paramd::testing
