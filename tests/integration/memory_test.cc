// The daemon's peak memory with a model of 200 MB and default settings.
#include <catch2/catch.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 50'000'000;
constexpr uint64_t kModelBytes = kFloats * sizeof(float);
constexpr int kExchanges = 4;

// Trains with `workers` at once, and returns the daemon's peak memory, in bytes.
uint64_t PeakMemory(const std::string& algorithm, int workers) {
  Daemon daemon;
  const std::vector<float> update(kFloats, 1);
  REQUIRE(Connect(daemon.address())->CreateModel(Spec("m", algorithm, kFloats)).ok());
  std::vector<absl::Status> results(workers);
  {
    std::vector<Thread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join(
            {.server = daemon.address(), .model = "m", .worker = std::to_string(w), .transport = Transport::kGrpc});
        results[w] = worker.status();
        // As workers do that begin together.
        if (worker.ok()) results[w] = (*worker)->Initialize(update, absl::Minutes(10));
        std::vector<float> pulled(kFloats);
        for (int i = 0; i < kExchanges && results[w].ok(); ++i) {
          results[w] = (*worker)->Exchange(update, absl::MakeSpan(pulled), absl::Minutes(10)).status();
        }
      });
    }
  }
  for (const absl::Status& result : results) {
    INFO(result);
    CHECK(result.ok());
  }
  CHECK(Connect(daemon.address())->GetModel("m")->version() == workers * kExchanges);
  return daemon.process().StatusNumber("VmHWM") * 1024;
}

TEST_CASE("peak memory stays within four times the model, whatever the number of workers") {
  for (const std::string algorithm : {"downpour", "aeasgd", "averaging", "easgd"}) {
    for (const int workers : {2, 8}) {
      DYNAMIC_SECTION(algorithm << ", " << workers << " workers") {
        const uint64_t peak = PeakMemory(algorithm, workers);
        std::cout << algorithm << ", " << workers << " workers: peak " << peak / 1'000'000 << " MB, "
                  << static_cast<double>(peak) / kModelBytes << " times the model" << std::endl;
        CHECK(peak <= 4 * kModelBytes);
      }
    }
  }
}

}  // namespace
}  // namespace paramd
