#include "bench/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paramd::bench {

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& command) {
  if (access(command[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("can't run ", command[0], ": ", strerror(errno), "; build it, or say with a flag where it is"));
  }
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("pipe: ", strerror(errno)));
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before the line above.
    if (getppid() != parent) _exit(1);
    if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0) _exit(126);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  if (pid < 0) {
    close(in[1]);
    close(out[0]);
    return absl::ResourceExhaustedError(absl::StrCat("fork: ", strerror(errno)));
  }
  const std::string name = command[0].substr(command[0].rfind('/') + 1);
  return std::unique_ptr<Child>(new Child(pid, fdopen(in[1], "w"), fdopen(out[0], "r"), name));
}

Child::Child(pid_t pid, std::FILE* in, std::FILE* out, std::string name)
    : pid_(pid), in_(in), out_(out), name_(std::move(name)) {}

Child::~Child() {
  if (!waited_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::fclose(in_);
  std::fclose(out_);
}

absl::Status Child::WriteLine(const std::string& line) {
  if (std::fprintf(in_, "%s\n", line.c_str()) < 0 || std::fflush(in_) != 0) {
    return absl::UnavailableError(absl::StrCat(name_, " (pid ", pid_, ") has ended; see its messages above"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Child::ReadLine() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, out_);
  std::string result = length > 0 ? std::string(line, static_cast<size_t>(length)) : "";
  std::free(line);
  if (result.empty()) {
    return absl::UnavailableError(absl::StrCat(name_, " (pid ", pid_, ") has ended; see its messages above"));
  }
  if (result.back() == '\n') result.pop_back();
  return result;
}

absl::Status Child::Wait() {
  int status = 0;
  waited_ = waitpid(pid_, &status, 0) == pid_;
  if (waited_ && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, " (pid ", pid_, ") failed; see its messages above"));
}

double Child::CpuSeconds() const {
  // Finer than the ticks of /proc/PID/stat.
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

uint64_t Child::StatusBytes(const std::string& field) const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, absl::StrCat(field, ":")))
      return std::strtoull(&line[field.size() + 1], nullptr, 10) << 10;
  }
  return 0;
}

}  // namespace paramd::bench
