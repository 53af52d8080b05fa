#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

using Vector = std::vector<float>;

// Tensors "first" [2] and "second" [2, 2].
std::unique_ptr<Model> MakeTwoTensors(ModelOptions options = {}) {
  v1::ModelSpec spec = MakeSpec("downpour", 2);
  spec.mutable_tensors(0)->set_name("first");
  v1::Tensor* second = spec.add_tensors();
  second->set_name("second");
  second->add_shape(2);
  second->add_shape(2);
  return MakeModel(spec, options);
}

absl::Status TryInitialize(Model* model, Vector center) {
  return testing::TryInitialize(model, MakeBuffer(std::move(center)));
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("The first center wins: the same again is OK, another one is refused and names a tensor that differs") {
  const auto model = MakeTwoTensors();
  CHECK_FALSE(model->Describe().initialized());
  CHECK(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6}).ok());
  CHECK(model->Describe().initialized());
  CHECK(model->Describe().version() == 0);
  CHECK(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6}).ok());

  const absl::Status status = TryInitialize(model.get(), {1, 2, 3, 4, 5, 7});
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(Text(status), Contains("1 of its 2 tensors") && Contains("'second'") && !Contains("'first'") &&
                               Contains("pull the center") && Contains("delete the model"));
  CHECK_THAT(Text(TryInitialize(model.get(), {0, 2, 3, 4, 5, 7})), Contains("2 of its 2 tensors, first of 'first'"));
  CHECK(Floats(*TakeSnapshot(model.get())) == Vector{1, 2, 3, 4, 5, 6});
}

TEST_CASE("An identical repeat is OK also when commits have moved the center since, and changes nothing") {
  const auto model = MakeTwoTensors();
  REQUIRE(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6}).ok());
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Commit({1, 1, 1, 1, 1, 1}).status.ok());
  CHECK(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6}).ok());
  CHECK(TryInitialize(model.get(), {2, 3, 4, 5, 6, 7}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(Floats(*TakeSnapshot(model.get())) == Vector{2, 3, 4, 5, 6, 7});
  CHECK(model->Describe().version() == 1);
}

TEST_CASE("Differences are found in every tensor of a model of several blocks") {
  v1::ModelSpec spec = MakeSpec("downpour", kBlockFloats - 1);
  for (const char* name : {"two", "three"}) {
    v1::Tensor* tensor = spec.add_tensors();
    tensor->set_name(name);
    tensor->add_shape(name == std::string("two") ? 2 : kBlockFloats + 3);
  }
  const auto model = MakeModel(spec);
  Vector center(2 * kBlockFloats + 4, 0.5f);
  REQUIRE(TryInitialize(model.get(), center).ok());
  CHECK(TryInitialize(model.get(), center).ok());
  const auto differing = [&](size_t at) {
    Vector other = center;
    other[at] = 0.25f;
    return Text(TryInitialize(model.get(), std::move(other)));
  };
  CHECK_THAT(differing(kBlockFloats - 2), Contains("first of 'w'"));
  CHECK_THAT(differing(kBlockFloats - 1), Contains("first of 'two'"));
  CHECK_THAT(differing(kBlockFloats), Contains("first of 'two'"));
  CHECK_THAT(differing(kBlockFloats + 1), Contains("first of 'three'"));
  CHECK_THAT(differing(2 * kBlockFloats + 3), Contains("first of 'three'"));
}

TEST_CASE("A center with a NaN or an infinity is refused and says where; the model stays without one") {
  const auto model = MakeTwoTensors();
  const absl::Status status = TryInitialize(model.get(), {1, 2, 3, 4, NAN, 6});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Text(status), Contains("'m'") && Contains("tensor 'second' at [1, 0]") && Contains("initializer"));
  CHECK(TryInitialize(model.get(), {1, INFINITY, 3, 4, 5, 6}).code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(model->Describe().initialized());
  CHECK(TakeSnapshot(model.get()) == nullptr);
  CHECK(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6}).ok());
}

TEST_CASE("A center of the wrong length, or not yet whole, is refused") {
  const auto model = MakeTwoTensors();
  CHECK_THAT(Text(TryInitialize(model.get(), {1, 2, 3, 4, 5})), Contains("5 floats where the model has 6"));
  CHECK(TryInitialize(model.get(), {1, 2, 3, 4, 5, 6, 7}).code() == absl::StatusCode::kInvalidArgument);
  CommitBuffer partial(6);
  CHECK(testing::TryInitialize(model.get(), std::move(partial)).code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(model->Describe().initialized());
}

TEST_CASE("Pulls before initialization wait for it, of workers and of readers") {
  const std::string consistency = GENERATE("async", "bounded:0", "sync");
  const auto model = MakeModel(MakeSpec("downpour", 1, consistency));
  ModelWorker a(model.get(), "a");
  a.StartPull();
  bool reader_answered = false;
  model->BeginPull({}, [&](const ExchangeAnswer& answer) { reader_answered = answer.status.ok(); });
  CHECK(a.waiting());
  CHECK_FALSE(reader_answered);
  Initialize(model.get(), {3});
  REQUIRE_FALSE(a.waiting());
  CHECK(reader_answered);
  const Outcome outcome = a.End();
  CHECK(outcome.version == 0);
  CHECK(Floats(*outcome.center) == Vector{3});
}

TEST_CASE("A pull before initialization gives up at its deadline and says what is missing") {
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", 1), {.clock = &clock});
  ModelWorker a(model.get(), "a");
  a.set_wait(absl::Seconds(2));
  a.StartPull();
  absl::Status reader;
  ExchangeCall call;
  call.deadline = clock.Now() + absl::Seconds(1);
  model->BeginPull(call, [&](const ExchangeAnswer& answer) { reader = answer.status; });
  clock.Advance(absl::Seconds(1));
  model->Tick();
  CHECK(reader.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(Text(reader), Contains("'m' has no center yet") && Contains("initialize"));
  REQUIRE(a.waiting());
  clock.Advance(absl::Seconds(1));
  model->Tick();
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("A model that shares another's center goes its own way from there, and leaves the other as it is") {
  const size_t floats = kBlockFloats + 1;
  const auto origin = MakeModel(MakeSpec("downpour", floats));
  origin->KeepInitialCenter();
  CHECK_FALSE(origin->initial_center().has_value());
  Initialize(origin.get(), Vector(floats, 1));
  const auto copy = MakeModel(MakeSpec("downpour", floats));
  CHECK(copy->InitializeFrom(*origin->initial_center()).ok());
  CHECK(copy->Describe().initialized());
  CHECK(TakeSnapshot(copy.get())->blocks[0].floats().data() == TakeSnapshot(origin.get())->blocks[0].floats().data());

  ModelWorker a(copy.get(), "a");
  REQUIRE(a.Commit(Vector(floats, 1)).status.ok());
  CHECK(Floats(*TakeSnapshot(copy.get())) == Vector(floats, 2));
  CHECK(Floats(*TakeSnapshot(origin.get())) == Vector(floats, 1));
  // It counts as an initialization like any other.
  CHECK(TryInitialize(copy.get(), Vector(floats, 1)).ok());
  CHECK(TryInitialize(copy.get(), Vector(floats, 2)).code() == absl::StatusCode::kAlreadyExists);
  CHECK(copy->InitializeFrom(*origin->initial_center()).ok());
  CHECK(copy->Describe().version() == 1);
}

}  // namespace
}  // namespace paramd::testing
