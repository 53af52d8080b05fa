// A commit that there is no memory for: refused, and nothing has changed.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/memory_limit.h"
#include "tests/support/model_worker.h"
#include "tests/support/skip.h"

namespace paramd::testing {
namespace {

constexpr size_t kFloats = size_t{32} << 20;  // 128 MiB

TEST_CASE("A commit that there is no memory for is refused, changes nothing and can be sent again") {
  if (!kMemoryCanBeLimited) return Skip("sanitizers need all of the address space");
  const std::string consistency = GENERATE(as<std::string>(), "async", "sync");
  INFO(consistency);
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", kFloats, consistency), {.clock = &clock});
  Initialize(model.get(), std::vector<float>(kFloats, 1));
  ModelWorker worker(model.get(), "w");
  // A reader has the center, so that what is applied needs fresh blocks.
  const auto read = TakeSnapshot(model.get());
  const ExchangeCall call{.caller = worker.caller(), .sequence = 1, .floats = kFloats};
  CommitBuffer commit = MakeBuffer(std::vector<float>(kFloats, 1));
  ExchangeAnswer answer;
  {
    const MemoryLimit limit(uint64_t{32} << 20);
    model->Exchange(call, std::move(commit), Reservation(), [&](ExchangeAnswer got) { answer = std::move(got); });
  }
  if (consistency == "async") {
    CHECK(answer.status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_FALSE(answer.committed);
  }
  const ExchangeAnswer again = ExchangeAtOnce(model.get(), call, MakeBuffer(std::vector<float>(kFloats, 1)));
  INFO(again.status);
  CHECK(again.status.ok());
  CHECK(Floats(*TakeSnapshot(model.get())) == std::vector<float>(kFloats, 2));
}

TEST_CASE("A round that there is no memory for is finished when there is") {
  if (!kMemoryCanBeLimited) return Skip("sanitizers need all of the address space");
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", kFloats, "sync"), {.clock = &clock});
  Initialize(model.get(), std::vector<float>(kFloats, 1));
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.Start(std::vector<float>(kFloats, 1), /*pull=*/false);
  REQUIRE(a.waiting());
  const auto read = TakeSnapshot(model.get());
  {
    const MemoryLimit limit(uint64_t{32} << 20);
    CHECK(b.Leave().ok());
    CHECK(a.waiting());
    model->Tick();
    CHECK(a.waiting());
  }
  model->Tick();
  REQUIRE_FALSE(a.waiting());
  CHECK(a.End().status.ok());
  CHECK(model->Describe().version() == 1);
}

}  // namespace
}  // namespace paramd::testing
