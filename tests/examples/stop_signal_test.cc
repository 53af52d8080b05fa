#include "examples/mnist/stop_signal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace paramd {
namespace {

void SignalSelf(int signal) { kill(getpid(), signal); }

// The exit code of a process that runs `body` and then waits; it must be ended from within.
int ExitCodeOf(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    body();
    while (true) pause();
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_CASE("the first signal calls the handler, and the process may go on to its end") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  std::atomic<int> calls = 0;
  {
    StopSignal stop(absl::Minutes(1));
    stop.SetHandler([&] { ++calls; });
    SignalSelf(signal);
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (calls == 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(calls == 1);
}

TEST_CASE("without a signal nothing is called") {
  std::atomic<int> calls = 0;
  {
    StopSignal stop(absl::Minutes(1));
    stop.SetHandler([&] { ++calls; });
  }
  CHECK(calls == 0);
}

TEST_CASE("a Ctrl-C that is ignored stays ignored") {
  const auto before = signal(SIGINT, SIG_IGN);
  std::atomic<int> calls = 0;
  {
    StopSignal stop(absl::Minutes(1));
    stop.SetHandler([&] { ++calls; });
    SignalSelf(SIGINT);
  }
  signal(SIGINT, before);
  CHECK(calls == 0);
}

TEST_CASE("without a handler the process ends with exit code 1") {
  CHECK(ExitCodeOf([] {
          StopSignal stop(absl::Minutes(1));
          stop.SetHandler([] { std::_Exit(7); });
          stop.SetHandler(nullptr);
          SignalSelf(SIGTERM);
          while (true) pause();
        }) == 1);
}

TEST_CASE("a process that does not end within the grace is ended with exit code 1") {
  CHECK(ExitCodeOf([] {
          StopSignal stop(absl::Milliseconds(1));
          stop.SetHandler([] {});
          SignalSelf(SIGTERM);
          while (true) pause();
        }) == 1);
}

TEST_CASE("a second signal ends the process within its grace") {
  CHECK(ExitCodeOf([] {
          StopSignal stop(absl::Minutes(10));
          stop.SetHandler([] { SignalSelf(SIGTERM); });
          SignalSelf(SIGINT);
          while (true) pause();
        }) == 1);
}

}  // namespace
}  // namespace paramd
