// A commit that there is no memory for: refused, and nothing has changed.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"
#include "tests/support/skip.h"

namespace paramd::testing {
namespace {

constexpr size_t kFloats = size_t{32} << 20;  // 128 MiB

// Leaves the process so much more address space, until its end.
class Limit {
 public:
  explicit Limit(uint64_t more) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    const rlimit now{.rlim_cur = pages * static_cast<uint64_t>(getpagesize()) + more, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }
  ~Limit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_CASE("A commit that there is no memory for is refused, changes nothing and can be sent again") {
  if (kSanitized) return Skip("sanitizers need all of the address space");
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
    const Limit limit(uint64_t{32} << 20);
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
  if (kSanitized) return Skip("sanitizers need all of the address space");
  FakeClock clock;
  const auto model = MakeModel(MakeSpec("downpour", kFloats, "sync"), {.clock = &clock});
  Initialize(model.get(), std::vector<float>(kFloats, 1));
  ModelWorker a(model.get(), "a");
  ModelWorker b(model.get(), "b");
  a.Start(std::vector<float>(kFloats, 1), /*pull=*/false);
  REQUIRE(a.waiting());
  const auto read = TakeSnapshot(model.get());
  {
    const Limit limit(uint64_t{32} << 20);
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
