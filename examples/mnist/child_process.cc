#include "examples/mnist/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "examples/mnist/report.h"
#include "process/system_call.h"
#include "sync/clock.h"

namespace paramd {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(10);

// Between fork and exec: only async-signal-safe calls. Returns only if something failed.
void Execute(char* const* arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have ended before the line above.
  if (getppid() != parent) _exit(1);
  // A terminal's Ctrl-C is for the parent, which then stops its children in order.
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (RetryInterrupted([&] { return dup2(output, standard); }) < 0) return;
  }
  execv(arguments[0], arguments);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& command,
                                                                  const std::string& output_path) {
  const int output = RetryInterrupted(
      [&] { return open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600); });
  // Tried at once: what it says when it can't go on would be lost.
  if (output < 0 || RetryInterrupted([&] { return write(output, "\n", 1); }) != 1 || ftruncate(output, 0) != 0) {
    const int error = errno;
    if (output >= 0) close(output);
    return absl::NotFoundError(absl::StrCat("can't write ", output_path, ": ", strerror(error)));
  }
  // Closed by a successful exec; otherwise it carries errno.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(output);
    return absl::ResourceExhaustedError(absl::StrCat("can't make a pipe: ", strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Execute(arguments.data(), output, parent);
    const int error = errno;
    // A failed write leaves nothing better to do than to end.
    if (write(failure[1], &error, sizeof(error)) != sizeof(error)) _exit(126);
    _exit(127);
  }
  int error = pid < 0 ? errno : 0;
  close(output);
  close(failure[1]);
  ssize_t got = 0;
  if (pid > 0) {
    got = RetryInterrupted([&] { return read(failure[0], &error, sizeof(error)); });
  }
  close(failure[0]);
  if (pid > 0 && got == sizeof(error)) RetryInterrupted([&] { return waitpid(pid, nullptr, 0); });
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat("can't run ", command[0], ": ", strerror(error), "; build it, or say where it is"));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, output_path));
}

ChildProcess::ChildProcess(pid_t pid, std::string output_path) : pid_(pid), output_path_(std::move(output_path)) {}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

std::optional<int> ChildProcess::ExitCode() {
  MutexLock lock(&mutex_);
  int status = 0;
  if (!exit_code_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return exit_code_;
}

std::optional<int> ChildProcess::Wait(absl::Duration timeout) {
  const absl::Time deadline = Clock::Steady()->Now() + timeout;
  while (true) {
    const std::optional<int> exit_code = ExitCode();
    if (exit_code.has_value() || Clock::Steady()->Now() >= deadline) return exit_code;
    absl::SleepFor(kPollInterval);
  }
}

void ChildProcess::Signal(int signal) {
  MutexLock lock(&mutex_);
  // Not reaped yet, so the number is still this process's, and its group's.
  if (!exit_code_.has_value()) kill(-pid_, signal);
}

std::string ChildProcess::LastOutput(int lines) const {
  const auto output = ReadFile(output_path_);
  if (!output.ok()) return "";
  std::vector<std::string> all = absl::StrSplit(*output, '\n');
  if (all.back().empty()) all.pop_back();
  const size_t skipped = all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0;
  return absl::StrJoin(all.begin() + static_cast<ptrdiff_t>(skipped), all.end(), "\n");
}

std::string ChildProcess::Ended(int lines) {
  const int exit_code = ExitCode().value_or(0);
  const std::string output = LastOutput(lines);
  return absl::StrCat(exit_code > 128 ? "was killed by signal " : "ended with exit code ",
                      exit_code > 128 ? exit_code - 128 : exit_code,
                      output.empty() ? ", without a word" : absl::StrCat(":\n", output));
}

absl::StatusOr<ChildProcess*> ChildGroup::Start(const std::vector<std::string>& command,
                                                const std::string& output_path) {
  MutexLock lock(&mutex_);
  if (stopped_) return absl::CancelledError("stopped");
  auto child = ChildProcess::Start(command, output_path);
  if (!child.ok()) return child.status();
  children_.push_back(*std::move(child));
  return children_.back().get();
}

void ChildGroup::Stop(absl::Duration grace) {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (const auto& child : children_) child->Signal(SIGTERM);
  const absl::Time deadline = Clock::Steady()->Now() + grace;
  for (const auto& child : children_) {
    if (child->Wait(deadline - Clock::Steady()->Now()).has_value()) continue;
    child->Signal(SIGKILL);
    child->Wait(absl::InfiniteDuration());
  }
}

}  // namespace paramd
