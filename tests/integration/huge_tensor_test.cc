// A tensor beyond 2 GiB. Needs some 16 GB of memory.
#include <catch2/catch.hpp>
#include <iostream>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

TEST_CASE("a tensor beyond 2 GiB is created, initialized, committed to and pulled") {
  constexpr size_t kFloats = (size_t{1} << 29) + 1001;
  static_assert(kFloats * sizeof(float) > size_t{2} << 30);
  constexpr absl::Duration kTimeout = absl::Minutes(10);
  Daemon daemon;
  std::vector<float> floats(kFloats);
  const auto value = [](size_t i) { return static_cast<float>(i % 4099); };
  for (size_t i = 0; i < kFloats; ++i) floats[i] = value(i);
  REQUIRE(Connect(daemon.address())->CreateModel(Spec("huge", "downpour", kFloats)).ok());
  const auto worker = Join(daemon.address(), "huge", "a");
  const absl::Status initialized = worker->Initialize(floats, kTimeout);
  INFO(initialized);
  REQUIRE(initialized.ok());
  const auto committed = worker->Commit(floats, kTimeout);
  INFO(committed.status());
  REQUIRE(committed.ok());
  CHECK(committed->version == 1);
  std::vector<float> pulled(kFloats);
  const auto read = worker->Pull(absl::MakeSpan(pulled), kTimeout);
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(read->version == 1);
  size_t different = 0;
  for (size_t i = 0; i < kFloats; ++i) different += pulled[i] != 2 * value(i) ? 1 : 0;
  CHECK(different == 0);
  std::cout << "peak memory of the daemon: " << daemon.process().StatusNumber("VmHWM") / 1000 << " MB" << std::endl;
}

}  // namespace
}  // namespace paramd
