// Every algorithm that has a server, under every consistency and every way that floats may travel: two workers train a
// quadratic through a real server.
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "tests/integration/fixtures.h"
#include "tests/support/await.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 300;
constexpr float kStart = 9;
constexpr float kTarget = 1;

// How the floats of exchanges get from the workers to the server and back.
struct Way {
  const char* name;
  bool unix_socket;
  Transport transport;
  Wire wire;
};

constexpr Way kWays[] = {
    {"f32/tcp", false, Transport::kGrpc, Wire::kFloat32}, {"f32/unix", true, Transport::kGrpc, Wire::kFloat32},
    {"f16/tcp", false, Transport::kGrpc, Wire::kFloat16}, {"bf16/tcp", false, Transport::kGrpc, Wire::kBfloat16},
    {"f32/shm", false, Transport::kShm, Wire::kFloat32},
};

void TrainThroughServer(const Server& server, const Way& way, const std::string& algorithm,
                        const std::string& consistency) {
  INFO(way.name << " " << algorithm << " " << consistency);
  const std::string model =
      absl::StrCat(algorithm, "-", consistency.substr(0, 4), consistency.back() == '0' ? "0" : "");
  const auto spec =
      std::make_shared<const v1::ModelSpec>(Spec(model, algorithm, kFloats, consistency, {{"learning_rate", 0.05}}));
  // One model for both, whoever comes first.
  REQUIRE(Connect(server.address())->CreateModel(*spec).ok());
  absl::StatusOr<TrainSummary> summaries[2];
  std::string joined[2];
  Transport transports[2] = {};
  {
    std::vector<Thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        Quadratic quadratic(kFloats, kStart, kTarget);
        EmptyBatches batches(13);
        const auto on_joined = [&joined, &transports, w](Worker* worker, TrainLoop*) {
          if (worker == nullptr) return;
          joined[w] = worker->model().spec().name();
          transports[w] = worker->transport();
        };
        summaries[w] = RunWorker({.server = server.address(),
                                  .model = model,
                                  .worker = std::to_string(w),
                                  .create = spec,
                                  .transport = way.transport,
                                  .wire = way.wire},
                                 {.epochs = 5, .communication_window = 4, .exchange_timeout = kCallTimeout}, &quadratic,
                                 &batches, on_joined);
      });
    }
  }
  const auto admin = Connect(server.address());
  for (int w = 0; w < 2; ++w) {
    INFO("worker " << w << ": " << summaries[w].status());
    REQUIRE(summaries[w].ok());
    CHECK(summaries[w]->steps == 5 * 13);
    CHECK(summaries[w]->exchanges >= 5);
    CHECK(transports[w] == way.transport);
    const auto [center, version] = ReadCenter(server.address(), joined[w]);
    CHECK(version >= summaries[w]->exchanges);
    for (const float value : center) {
      if (!(std::abs(value - kTarget) < std::abs(kStart - kTarget))) FAIL("the center is at " << value);
    }
    const auto info = admin->GetModel(joined[w]);
    REQUIRE(info.ok());
    const v1::WorkerInfo worker = FindWorker(*info, std::to_string(w));
    CHECK(worker.state() == v1::WorkerInfo::LEFT);
    CHECK(static_cast<int64_t>(worker.commits()) == summaries[w]->exchanges);
    CHECK(worker.rejected() == 0);
    // What was on the wire is let go once its last write has ended.
    CHECK(Await([&] { return admin->GetModel(joined[w])->pinned_bytes() == 0; }));
    v1::GetHistoryRequest request;
    request.set_model(joined[w]);
    request.set_worker(std::to_string(w));
    const auto history = admin->GetHistory(request);
    REQUIRE(history.ok());
    REQUIRE(history->workers_size() == 1);
    CHECK(history->workers(0).records_size() == 5 * 13);
  }
}

TEST_CASE("every algorithm trains through a server under every consistency, whatever way the floats travel") {
  const Way& way = GENERATE(from_range(std::begin(kWays), std::end(kWays)));
  const auto server =
      StartServer(way.unix_socket ? ServerOptions{.listen = "unix:" + TemporaryPath("socket")} : ServerOptions());
  int trained = 0;
  for (const Algorithm* algorithm : ListAlgorithms()) {
    if (algorithm->make_server == nullptr) continue;
    for (const std::string consistency : {"async", "bounded:0", "bounded:2", "sync"}) {
      TrainThroughServer(*server, way, algorithm->name, consistency);
      ++trained;
    }
  }
  CHECK(trained >= 9 * 4);
}

TEST_CASE("an algorithm without a server is refused a model") {
  const auto server = StartServer();
  const auto created = Connect(server->address())->CreateModel(Spec("m", "single", 10));
  CHECK(created.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(created.status().message()), Catch::Contains("trains without a server"));
}

}  // namespace
}  // namespace paramd
