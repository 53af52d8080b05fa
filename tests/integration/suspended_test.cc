// A daemon that stood still itself does not blame its workers.
#include <catch2/catch.hpp>
#include <csignal>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/fixtures.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

TEST_CASE("a daemon that was stopped for longer than a lease expires nobody for it: the round is whole") {
  constexpr absl::Duration kLease = absl::Seconds(2);
  const std::vector<float> ones(10, 1);
  Daemon daemon({absl::StrCat("--lease=", absl::FormatDuration(kLease))});
  CreateModel(daemon.address(), Spec("m", "downpour", ones.size(), "sync"), ones);
  const auto a = Join(daemon.address(), "m", "a");
  const auto b = Join(daemon.address(), "m", "b");
  const auto admin = Connect(daemon.address());
  auto first = std::async(std::launch::async, [&] { return a->Commit(ones, kCallTimeout); });
  REQUIRE(Await([&] {
    const auto info = admin->GetModel("m");
    return info.ok() && info->waiting_workers() == 1;
  }));
  daemon.process().Stop();
  absl::SleepFor(2 * kLease + absl::Milliseconds(500));
  daemon.process().Signal(SIGCONT);
  const auto second = b->Commit(ones, kCallTimeout);
  const auto answer = first.get();
  INFO(answer.status() << ", " << second.status());
  REQUIRE(answer.ok());
  REQUIRE(second.ok());
  CHECK(answer->version == 2);
  CHECK(second->version == 2);
  CHECK(daemon.process().Err().find("event=expired") == std::string::npos);
}

}  // namespace
}  // namespace paramd
