// What others' code throws: of a plugin in the daemon, of a model in a worker.
#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr char kPlugin[] = "tests/algorithms/plugins/libthrowing.so";
constexpr size_t kFloats = 10;

// Where the plugin's algorithm throws.
enum Place { kNowhere, kValidate, kMakeServer, kMerge, kFinish, kMakeWorker };

v1::ModelSpec ThrowingSpec(const std::string& name, Place place, const std::string& consistency = "") {
  return Spec(name, "throwing", kFloats, consistency, {{"place", static_cast<double>(place)}});
}

TEST_CASE("an exception in a plugin's server half fails its model alone, and the daemon lives") {
  Daemon daemon({std::string("--plugin=") + kPlugin});
  const std::vector<float> ones(kFloats, 1);
  CreateModel(daemon.address(), ThrowingSpec("well", kNowhere), ones);
  const auto well = Join(daemon.address(), "well", "a");

  SECTION("while a commit is applied") {
    const Place place = GENERATE(kMerge, kFinish);
    const std::string consistency = GENERATE("async", "sync");
    CreateModel(daemon.address(), ThrowingSpec("ill", place, consistency), ones);
    const auto worker = Join(daemon.address(), "ill", "a");
    for (int i = 0; i < 2; ++i) {
      const auto committed = worker->Commit(ones, kCallTimeout);
      CHECK_FALSE(committed.ok());
      CHECK_THAT(std::string(committed.status().message()),
                 Catch::Contains("throwing") && Catch::Contains("ill") && Catch::Contains("out of magic"));
    }
    const auto info = Connect(daemon.address())->GetModel("ill");
    REQUIRE(info.ok());
    CHECK_THAT(info->problem(), Catch::Contains("out of magic"));
    CHECK(ReadCenter(daemon.address(), "ill").first == ones);
  }
  SECTION("while a model is created") {
    const Place place = GENERATE(kValidate, kMakeServer);
    const auto created = Connect(daemon.address())->CreateModel(ThrowingSpec("ill", place));
    CHECK(created.status().code() == absl::StatusCode::kInternal);
    CHECK_THAT(std::string(created.status().message()), Catch::Contains("throwing") && Catch::Contains("out of magic"));
    CHECK(Connect(daemon.address())->GetModel("ill").status().code() == absl::StatusCode::kNotFound);
  }
  const auto exchanged = well->Commit(ones, kCallTimeout);
  INFO(exchanged.status());
  REQUIRE(exchanged.ok());
  CHECK(ReadCenter(daemon.address(), "well").first == std::vector<float>(kFloats, 2));
}

TEST_CASE("an exception in a plugin's worker half is the worker's error") {
  Daemon daemon({std::string("--plugin=") + kPlugin});
  REQUIRE(LoadPlugin(kPlugin).ok());
  const auto spec = std::make_shared<const v1::ModelSpec>(ThrowingSpec("m", kMakeWorker));
  Quadratic quadratic(kFloats, 9, 1);
  EmptyBatches batches(4);
  const absl::Status status =
      RunWorker({.server = daemon.address(), .model = "m", .worker = "a", .create = spec}, {}, &quadratic, &batches)
          .status();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("make_worker") && Catch::Contains("'throwing'") && Catch::Contains("out of magic"));
}

TEST_CASE("what a model or a callback throws is the worker's error, with which it leaves") {
  const auto server = StartServer();
  const auto spec = std::make_shared<const v1::ModelSpec>(Spec("m", "downpour", kFloats));
  enum What { kParameters, kMetricNames, kOnJoined };
  const auto [what, where] = GENERATE(table<What, std::string>(
      {{kParameters, "parameters"}, {kMetricNames, "metric_names"}, {kOnJoined, "on_joined"}}));
  class Model : public Quadratic {
   public:
    explicit Model(What throws) : Quadratic(kFloats, 9, 1), throws_(throws) {}
    absl::Span<float> parameters() override {
      if (throws_ == kParameters) throw std::runtime_error("out of magic");
      return Quadratic::parameters();
    }
    std::vector<std::string> metric_names() const override {
      if (throws_ == kMetricNames) throw std::runtime_error("out of magic");
      return {};
    }

   private:
    const What throws_;
  } model(what);
  EmptyBatches batches(4);
  const auto on_joined = [what = what](Worker*, TrainLoop*) {
    if (what == kOnJoined) throw std::runtime_error("out of magic");
  };
  const absl::Status status = RunWorker({.server = server->address(), .model = "m", .worker = "a", .create = spec}, {},
                                        &model, &batches, on_joined)
                                  .status();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Catch::Contains(where) && Catch::Contains("out of magic"));
  const v1::WorkerInfo left = FindWorker(*Connect(server->address())->GetModel("m"), "a");
  CHECK(left.state() == v1::WorkerInfo::FAILED);
  CHECK_THAT(left.message(), Catch::Contains("out of magic"));
}

TEST_CASE("an event that throws ends there") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats));
  Quadratic quadratic(kFloats, 9, 1);
  EmptyBatches batches(4);
  WorkerOptions options{.server = server->address(), .model = "m", .worker = "a"};
  options.on_event = [](absl::string_view) { throw std::runtime_error("out of magic"); };
  options.join_timeout = kCallTimeout;
  CHECK(RunWorker(options, {}, &quadratic, &batches).ok());
}

}  // namespace
}  // namespace paramd
