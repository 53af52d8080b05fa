#include "examples/mnist/child_process.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/examples/running.h"
#include "tests/examples/temporary_folder.h"

namespace paramd {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

// Waits until the child has written `text`.
bool Wrote(const ChildProcess& child, const std::string& text) {
  const absl::Time deadline = absl::Now() + kLong;
  while (absl::Now() < deadline) {
    if (child.LastOutput(100).find(text) != std::string::npos) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

TEST_CASE("a child's exit code, or 128 plus its signal, is told") {
  const TemporaryFolder folder;
  auto child = ChildProcess::Start(Shell("exit 3"), folder.Path("output"));
  REQUIRE(child.ok());
  CHECK((*child)->Wait(kLong) == 3);
  CHECK((*child)->ExitCode() == 3);
  (*child)->Signal(SIGKILL);  // not to whoever has the number now

  child = ChildProcess::Start(Shell("kill -TERM $$"), folder.Path("output"));
  REQUIRE(child.ok());
  CHECK((*child)->Wait(kLong) == 128 + SIGTERM);
}

TEST_CASE("the last lines of a child's output are kept, of both streams") {
  const TemporaryFolder folder;
  auto child = ChildProcess::Start(Shell("echo one; echo two >&2; echo three"), folder.Path("output"));
  REQUIRE(child.ok());
  REQUIRE((*child)->Wait(kLong) == 0);
  CHECK((*child)->LastOutput(2) == "two\nthree");
  CHECK((*child)->LastOutput(5) == "one\ntwo\nthree");
}

TEST_CASE("how a child ended is told with its last words") {
  const TemporaryFolder folder;
  const auto ended = [&folder](const std::string& script) {
    const auto child = ChildProcess::Start(Shell(script), folder.Path("output"));
    REQUIRE(child.ok());
    (*child)->Wait(kLong);
    return (*child)->Ended(1);
  };
  CHECK(ended("echo why; echo really; exit 3") == "ended with exit code 3:\nreally");
  CHECK(ended("exit 3") == "ended with exit code 3, without a word");
  CHECK(ended("kill -KILL $$") == "was killed by signal 9, without a word");
}

TEST_CASE("a child whose words can't be kept is not started") {
  const TemporaryFolder folder;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const auto child = ChildProcess::Start(Shell("exit 0"), folder.Path("output"));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(child.status().message() == "can't write " + folder.Path("output") + ": File too large");
}

TEST_CASE("a program that can't be run is an error with its name") {
  const TemporaryFolder folder;
  const auto child = ChildProcess::Start({folder.Path("absent")}, folder.Path("output"));
  REQUIRE_FALSE(child.ok());
  CHECK(child.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(child.status().message()), Catch::Contains("absent") && Catch::Contains("No such file"));
}

TEST_CASE("no child outlives its object, nor do the child's own children") {
  const TemporaryFolder folder;
  int pid = 0, grandchild = 0;
  {
    auto child = ChildProcess::Start(Shell("echo $$; sleep 600 & echo $!; echo ready; wait"), folder.Path("output"));
    REQUIRE(child.ok());
    REQUIRE(Wrote(**child, "ready"));
    CHECK_FALSE((*child)->ExitCode().has_value());
    CHECK_FALSE((*child)->Wait(absl::Milliseconds(1)).has_value());
    const std::vector<std::string> lines = absl::StrSplit((*child)->LastOutput(3), '\n');
    REQUIRE(absl::SimpleAtoi(lines.at(0), &pid));
    REQUIRE(absl::SimpleAtoi(lines.at(1), &grandchild));
    REQUIRE(kill(pid, 0) == 0);
  }
  CHECK(kill(pid, 0) == -1);
  // Whoever adopted it may need a moment to reap it.
  const absl::Time deadline = absl::Now() + kLong;
  while (Running(grandchild) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  CHECK_FALSE(Running(grandchild));
}

TEST_CASE("a child is told to stop when the thread that started it ends") {
  const TemporaryFolder folder;
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = absl::UnknownError("not started");
  std::thread([&] { child = ChildProcess::Start(Shell("exec sleep 600"), folder.Path("output")); }).join();
  REQUIRE(child.ok());
  CHECK((*child)->Wait(kLong) == 128 + SIGTERM);
}

TEST_CASE("a group is stopped with SIGTERM, and with SIGKILL where that is not enough") {
  const TemporaryFolder folder;
  ChildGroup group;
  const auto gentle = group.Start(Shell("echo ready; exec sleep 600"), folder.Path("gentle"));
  const auto stubborn =
      group.Start(Shell("trap '' TERM; echo ready; while :; do sleep 600; done"), folder.Path("stubborn"));
  REQUIRE(gentle.ok());
  REQUIRE(stubborn.ok());
  REQUIRE(Wrote(**gentle, "ready"));
  REQUIRE(Wrote(**stubborn, "ready"));
  CHECK_FALSE((*gentle)->ExitCode().has_value());
  group.Stop(absl::Milliseconds(100));
  CHECK((*gentle)->ExitCode() == 128 + SIGTERM);
  CHECK((*stubborn)->ExitCode() == 128 + SIGKILL);
  CHECK(group.Start(Shell("exit 0"), folder.Path("late")).status().code() == absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace paramd
