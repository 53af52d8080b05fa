// A child process of a test.
#ifndef PARAMD_TESTS_SUPPORT_PROCESS_H_
#define PARAMD_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/await.h"

namespace paramd {

// A path for a file or socket that no other test uses; short enough for a socket.
std::string TemporaryPath(const std::string& name);

std::string ReadFile(const std::string& path);

// Thread-compatible. Aborts the test if the program can't be started.
class Process {
 public:
  // Runs `program`, a path from the root of the repository that the test has as data, or an absolute one. The kernel
  // kills it if the starting thread ends.
  Process(const std::string& program, const std::vector<std::string>& arguments);
  // The program first.
  explicit Process(std::vector<std::string> words);

  // Kills the process if it still runs.
  ~Process();

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Returns once a SIGSTOP has stopped it.
  void Stop() const;

  // The exit code, or 128 + n after signal n; nothing if it still runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout = kAwaitTimeout);
  bool Running() { return !Wait(absl::ZeroDuration()).has_value(); }

  // What it has written so far.
  std::string Out() const { return ReadFile(out_path_); }
  std::string Err() const { return ReadFile(err_path_); }

  // A number of /proc/PID/status, as it stands there: VmHWM in kB, Threads. 0 if there is none.
  uint64_t StatusNumber(const std::string& field) const;

 private:
  const std::string out_path_;
  const std::string err_path_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_SUPPORT_PROCESS_H_
