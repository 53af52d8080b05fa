// A process of the benchmark: a server that is measured, or a worker.
#ifndef PARAMD_BENCH_CHILD_H_
#define PARAMD_BENCH_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paramd::bench {

// Thread-compatible.
class Child {
 public:
  // Runs command[0] with the rest as its arguments. Its stdin and stdout are pipes to this object, its stderr is ours.
  // The kernel kills it when the calling thread ends.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& command);

  // Kills the process.
  ~Child();

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // UNAVAILABLE if the process has ended.
  absl::Status WriteLine(const std::string& line);
  absl::StatusOr<std::string> ReadLine();

  // Waits until the process has ended; to be called once. UNAVAILABLE if it did not end with 0.
  absl::Status Wait();

  pid_t pid() const { return pid_; }

  // Processor time of all its threads so far.
  double CpuSeconds() const;

  // A size of /proc/PID/status: VmHWM (the peak of resident memory), VmRSS. 0 if there is none.
  uint64_t StatusBytes(const std::string& field) const;

 private:
  Child(pid_t pid, std::FILE* in, std::FILE* out, std::string name);

  const pid_t pid_;
  std::FILE* const in_;
  std::FILE* const out_;
  const std::string name_;
  bool waited_ = false;
};

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_CHILD_H_
