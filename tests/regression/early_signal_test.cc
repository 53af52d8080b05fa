// A process that got a signal before it was the program that it was to become used to run a handler of its parent's,
// which waited for ever for a lock.
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>

#include "tests/integration/fixtures.h"
#include "tests/support/await.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

TEST_CASE("a process that gets a signal at once ends by it") {
  std::atomic<bool> stop{false};
  Thread allocating([&stop] {
    while (!stop) std::make_unique<std::string>(100, 'x');
  });
  for (int i = 0; i < 100; ++i) {
    Process process("/bin/sleep", {"600"});
    process.Signal(SIGTERM);
    CHECK(process.Wait(kAwaitTimeout) == 128 + SIGTERM);
  }
  stop = true;
}

}  // namespace
}  // namespace paramd
