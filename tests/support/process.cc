#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  std::abort();
}

int OpenForWriting(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) Die(path);
  return fd;
}

}  // namespace

std::string TemporaryPath(const std::string& name) {
  static std::atomic<int> count{0};
  static const std::string folder = [] {
    std::string pattern = "/tmp/paramd_test_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) Die(pattern);
    return pattern;
  }();
  static const absl::Cleanup remover = [] {
    if (std::system(("rm -rf " + folder).c_str()) != 0) std::perror(folder.c_str());
  };
  return absl::StrCat(folder, "/", ++count, name);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Process::Process(const std::string& program, const std::vector<std::string>& arguments)
    : Process([&] {
        std::vector<std::string> words = {program};
        words.insert(words.end(), arguments.begin(), arguments.end());
        return words;
      }()) {}

Process::Process(std::vector<std::string> words) : out_path_(TemporaryPath("out")), err_path_(TemporaryPath("err")) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = OpenForWriting(out_path_);
  const int err = OpenForWriting(err_path_);
  const pid_t parent = getpid();
  // A handler of ours (Catch2 has some) would wait for locks that nobody in the child lets go of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) signal(number, SIG_DFL);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(out);
  close(err);
  if (pid_ < 0) Die("fork");
}

Process::~Process() {
  if (!Running()) return;
  Signal(SIGKILL);
  Wait();
}

void Process::Signal(int signal) const {
  if (!exit_code_.has_value()) kill(pid_, signal);
}

void Process::Stop() const {
  Signal(SIGSTOP);
  Await([this] { return absl::StrContains(ReadFile(absl::StrCat("/proc/", pid_, "/stat")), ") T "); });
}

std::optional<int> Process::Wait(absl::Duration timeout) {
  if (exit_code_.has_value()) return exit_code_;
  pollfd ended{.fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)), .events = POLLIN, .revents = 0};
  if (ended.fd < 0) Die("pidfd_open");
  const absl::Cleanup closer = [&ended] { close(ended.fd); };
  const absl::Time deadline = absl::Now() + timeout;
  int ready = 0;
  do {
    const int64_t left = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
    ready = poll(&ended, 1, static_cast<int>(std::max<int64_t>(0, left)));
  } while (ready <= 0 && absl::Now() < deadline);
  if (ready <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) Die("waitpid");
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

uint64_t Process::StatusNumber(const std::string& field) const {
  std::istringstream status(ReadFile(absl::StrCat("/proc/", pid_, "/status")));
  std::string line;
  while (std::getline(status, line)) {
    if (absl::StartsWith(line, field + ":")) return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10);
  }
  return 0;
}

}  // namespace paramd
