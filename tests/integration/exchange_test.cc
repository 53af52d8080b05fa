// Every algorithm's arithmetic as two workers see it over the wire, on centers of one block, of several, and just
// beside a block's end.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/tensor_codec.h"
#include "tests/integration/fixtures.h"
#include "tests/support/transport.h"

namespace paramd {
namespace {

const size_t kSizes[] = {1, 1000, kChunkFloats - 1, kChunkFloats, kChunkFloats + 1, 3 * kChunkFloats + 7};

std::vector<float> Make(size_t floats, float (*value)(size_t)) {
  std::vector<float> made(floats);
  for (size_t i = 0; i < floats; ++i) made[i] = value(i);
  return made;
}

float CenterValue(size_t i) { return static_cast<float>(i % 1009) / 8 - 40; }
float FirstValue(size_t i) { return static_cast<float>(i % 31) / 4 - 3; }
float SecondValue(size_t i) { return static_cast<float>(i % 17) / 2 + 1; }

// Index of the first float that is not near its expected value, or -1.
int64_t FirstDifference(const std::vector<float>& actual, const std::vector<float>& center,
                        const std::vector<float>& first, const std::vector<float>& second,
                        double (*expected)(double, double, double)) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double due = expected(center[i], first[i], second[i]);
    if (!(std::abs(actual[i] - due) <= 1e-5 * (1 + std::abs(due)))) return static_cast<int64_t>(i);
  }
  return -1;
}

struct Case {
  std::string algorithm;
  Hyperparameters hyperparameters;
  // Of the center c before, the first worker's commit u and the second's v, both based on c: what the first and the
  // second worker are answered, and the center after.
  double (*first)(double c, double u, double v);
  double (*second)(double c, double u, double v);
  double (*after)(double c, double u, double v);
};

constexpr double kAlpha = 0.2;
const Hyperparameters kElastic = {{"rho", 2}, {"learning_rate", 0.1}};

double Center(double c, double, double) { return c; }
double PlusFirst(double c, double u, double) { return c + u; }
double PlusBoth(double c, double u, double v) { return c + u + v; }
double PlusHalfSecond(double c, double u, double v) { return c + u + v / 2; }
double PlusDampedSecond(double c, double u, double v) { return c + u + v / (1 + u * u / 0.25); }
double TowardsFirst(double c, double u, double) { return c + kAlpha * (u - c); }
double TowardsSecond(double c, double u, double v) {
  return TowardsFirst(c, u, v) + kAlpha * (v - TowardsFirst(c, u, v));
}
double TowardsBoth(double c, double u, double v) { return c + kAlpha * (u - c) + kAlpha * (v - c); }
double Mean(double, double u, double v) { return (u + v) / 2; }

TEST_CASE("exchanges of two workers one after the other") {
  const auto server = StartServer();
  const Case cases[] = {
      {"downpour", {}, PlusFirst, PlusBoth, PlusBoth},
      {"adag", {}, PlusFirst, PlusBoth, PlusBoth},
      {"dynsgd", {}, PlusFirst, PlusHalfSecond, PlusHalfSecond},
      {"adaptive_adag", {{"eta", 0.25}}, PlusFirst, PlusDampedSecond, PlusDampedSecond},
      {"aeasgd", kElastic, Center, TowardsFirst, TowardsSecond},
      {"eamsgd", kElastic, Center, TowardsFirst, TowardsSecond},
  };
  for (const Case& c : cases) {
    for (const size_t floats : kSizes) {
      INFO(c.algorithm << " with " << floats << " floats");
      const std::string model = absl::StrCat(c.algorithm, floats);
      const auto center = Make(floats, CenterValue);
      const auto first = Make(floats, FirstValue);
      const auto second = Make(floats, SecondValue);
      CreateModel(server->address(), Spec(model, c.algorithm, floats, "async", c.hyperparameters), center);
      const auto a = Join(server->address(), model, "a");
      const auto b = Join(server->address(), model, "b");
      std::vector<float> pulled(floats);
      for (const auto& worker : {a.get(), b.get()}) {
        auto initial = worker->Pull(absl::MakeSpan(pulled), kCallTimeout);
        REQUIRE(initial.ok());
        CHECK(initial->version == 0);
        REQUIRE(pulled == center);
      }
      const bool elastic = c.first == Center;

      auto exchanged = a->Exchange(first, absl::MakeSpan(pulled), kCallTimeout);
      INFO(exchanged.status());
      REQUIRE(exchanged.ok());
      CHECK(exchanged->version == (elastic ? 0 : 1));
      CHECK(exchanged->staleness == 0);
      REQUIRE(FirstDifference(pulled, center, first, second, c.first) == -1);

      exchanged = b->Exchange(second, absl::MakeSpan(pulled), kCallTimeout);
      INFO(exchanged.status());
      REQUIRE(exchanged.ok());
      CHECK(exchanged->version == (elastic ? 1 : 2));
      CHECK(exchanged->staleness == 1);
      REQUIRE(FirstDifference(pulled, center, first, second, c.second) == -1);

      const auto [after, version] = ReadCenter(server->address(), model);
      CHECK(version == 2);
      REQUIRE(FirstDifference(after, center, first, second, c.after) == -1);
    }
  }
}

TEST_CASE("exchanges of two workers in one round") {
  const auto server = StartServer();
  const Case cases[] = {
      {"easgd", kElastic, Center, Center, TowardsBoth},
      {"averaging", {}, Mean, Mean, Mean},
      {"downpour", {}, PlusBoth, PlusBoth, PlusBoth},
  };
  for (const Case& c : cases) {
    for (const size_t floats : kSizes) {
      INFO(c.algorithm << " with " << floats << " floats");
      const std::string model = absl::StrCat(c.algorithm, floats);
      const auto center = Make(floats, CenterValue);
      const auto first = Make(floats, FirstValue);
      const auto second = Make(floats, SecondValue);
      CreateModel(server->address(), Spec(model, c.algorithm, floats, "sync", c.hyperparameters), center);
      const auto a = Join(server->address(), model, "a");
      const auto b = Join(server->address(), model, "b");
      std::vector<float> pulled_a(floats);
      std::vector<float> pulled_b(floats);
      REQUIRE(a->Pull(absl::MakeSpan(pulled_a), kCallTimeout).ok());
      REQUIRE(b->Pull(absl::MakeSpan(pulled_b), kCallTimeout).ok());

      absl::StatusOr<Exchanged> exchanged_a;
      {
        const Thread thread([&] { exchanged_a = a->Exchange(first, absl::MakeSpan(pulled_a), kCallTimeout); });
        const auto exchanged_b = b->Exchange(second, absl::MakeSpan(pulled_b), kCallTimeout);
        INFO(exchanged_b.status());
        CHECK(exchanged_b.ok());
      }
      INFO(exchanged_a.status());
      REQUIRE(exchanged_a.ok());
      CHECK(exchanged_a->staleness == 0);
      REQUIRE(FirstDifference(pulled_a, center, first, second, c.first) == -1);
      REQUIRE(FirstDifference(pulled_b, center, first, second, c.second) == -1);
      const auto [after, version] = ReadCenter(server->address(), model);
      CHECK(version == 2);
      REQUIRE(FirstDifference(after, center, first, second, c.after) == -1);
    }
  }
}

TEST_CASE("commits and pulls apart add up to exchanges") {
  const auto server = StartServer();
  for (const size_t floats : kSizes) {
    INFO(floats << " floats");
    const std::string model = absl::StrCat("m", floats);
    const auto center = Make(floats, CenterValue);
    const auto update = Make(floats, FirstValue);
    CreateModel(server->address(), Spec(model, "downpour", floats), center);
    const auto worker = Join(server->address(), model, "a");
    for (int i = 1; i <= 3; ++i) {
      const auto committed = worker->Commit(update, kCallTimeout);
      INFO(committed.status());
      REQUIRE(committed.ok());
      CHECK(committed->version == i);
      std::vector<float> pulled(floats);
      const auto version = worker->Pull(absl::MakeSpan(pulled), kCallTimeout);
      REQUIRE(version.ok());
      CHECK(version->version == i);
      for (size_t k = 0; k < floats; ++k) {
        if (pulled[k] != center[k] + static_cast<float>(i) * update[k]) FAIL("float " << k << " of version " << i);
      }
    }
    const auto info = Connect(server->address())->GetModel(model);
    REQUIRE(info.ok());
    CHECK(FindWorker(*info, "a").commits() == 3);
    CHECK(FindWorker(*info, "a").pulls() == 3);
    CHECK(FindWorker(*info, "a").base_version() == 3);
  }
}

TEST_CASE("an ensemble keeps a center for each worker") {
  const auto server = StartServer();
  const std::vector<float> center(10, 1);
  CreateModel(server->address(), Spec("many", "ensemble", 10), center);
  const auto a = Join(server->address(), "many", "a");
  const auto b = Join(server->address(), "many", "b");
  CHECK(a->model().spec().name() == "many/0");
  CHECK(b->model().spec().name() == "many/1");
  CHECK(a->model().initialized());
  std::vector<float> pulled(10);
  REQUIRE(a->Exchange(std::vector<float>(10, 2), absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled == std::vector<float>(10, 3));
  REQUIRE(b->Exchange(std::vector<float>(10, 4), absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled == std::vector<float>(10, 5));
  CHECK(ReadCenter(server->address(), "many/0").first == std::vector<float>(10, 3));
  CHECK(ReadCenter(server->address(), "many/1").first == std::vector<float>(10, 5));
  // Its own name stands for none of them.
  std::vector<float> own(10, -1);
  const absl::Status refused = Connect(server->address())->Pull("many", absl::MakeSpan(own)).status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("many/0, many/1"));
  CHECK(own == std::vector<float>(10, -1));
  // A worker that comes back finds its own member again.
  CHECK(Join(server->address(), "many", "a")->model().spec().name() == "many/0");
}

TEST_CASE("pulls are never torn while others commit") {
  const auto server = StartServer();
  constexpr size_t kFloats = 3 * kChunkFloats + 7;
  constexpr int kWorkers = 4;
  constexpr int kCommits = 25;
  CreateModel(server->address(), Spec("ones", "downpour", kFloats), std::vector<float>(kFloats, 0));
  std::vector<std::string> errors(kWorkers);
  {
    std::vector<Thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join({.server = server->address(),
                                    .model = "ones",
                                    .worker = std::to_string(w),
                                    .transport = TestWorkerTransport()});
        if (!worker.ok()) {
          errors[w] = worker.status().ToString();
          return;
        }
        const std::vector<float> ones(kFloats, 1);
        std::vector<float> pulled(kFloats);
        for (int i = 0; i < kCommits; ++i) {
          const auto exchanged = (*worker)->Exchange(ones, absl::MakeSpan(pulled), kCallTimeout);
          if (!exchanged.ok()) {
            errors[w] = exchanged.status().ToString();
            return;
          }
          for (const float value : pulled) {
            if (value != static_cast<float>(exchanged->version)) {
              errors[w] = absl::StrCat("a float is ", value, " at version ", exchanged->version);
              return;
            }
          }
        }
      });
    }
  }
  for (const std::string& error : errors) CHECK(error.empty());
  const auto [center, version] = ReadCenter(server->address(), "ones");
  CHECK(version == kWorkers * kCommits);
  CHECK(center == std::vector<float>(kFloats, kWorkers * kCommits));
}

}  // namespace
}  // namespace paramd
