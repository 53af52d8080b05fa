// Processes that a launcher starts, and that never outlive it.
#ifndef PARAMD_EXAMPLES_MNIST_CHILD_PROCESS_H_
#define PARAMD_EXAMPLES_MNIST_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sync/mutex.h"

namespace paramd {

// One started process, its stdout and stderr in a file. Thread-safe.
class ChildProcess {
 public:
  // Runs command[0] with the rest as its arguments, in a process group of its own, with no signal blocked. When the
  // calling thread ends, for whatever reason, the kernel sends the child SIGTERM. NOT_FOUND if the program can't be
  // run, or its output not be kept.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& command,
                                                             const std::string& output_path);

  // Kills the process if it still runs.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // The exit code, 128 + n after signal n; nothing while the process runs.
  std::optional<int> ExitCode();

  // Waits for the end, at most `timeout`.
  std::optional<int> Wait(absl::Duration timeout);

  // Sends a signal to the process and to its own children, unless it has ended.
  void Signal(int signal);

  // The last `lines` lines of its output.
  std::string LastOutput(int lines) const;

  // "ended with exit code 1:" and these lines. To be called after the end.
  std::string Ended(int lines);

 private:
  ChildProcess(pid_t pid, std::string output_path);

  const pid_t pid_;
  const std::string output_path_;
  Mutex mutex_;
  std::optional<int> exit_code_ ABSL_GUARDED_BY(mutex_);
};

// Children that are stopped together. Thread-safe.
class ChildGroup {
 public:
  // As ChildProcess::Start; CANCELLED after Stop. The child lives as long as the group.
  absl::StatusOr<ChildProcess*> Start(const std::vector<std::string>& command, const std::string& output_path);

  // Sends SIGTERM to all, SIGKILL to those that still run after `grace`, and returns when all have ended.
  void Stop(absl::Duration grace);

 private:
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<ChildProcess>> children_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_CHILD_PROCESS_H_
