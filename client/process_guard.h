// Forks: what a process joined is of no use to its children. Internal to the client.
#ifndef PARAMD_CLIENT_PROCESS_GUARD_H_
#define PARAMD_CLIENT_PROCESS_GUARD_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace paramd {

// Remembers the process that it was made in. Immutable. Of forks it sees those by fork(3).
class ProcessGuard {
 public:
  // `what` it guards, for messages.
  explicit ProcessGuard(std::string what);

  // Whether this is a child of that process.
  bool forked() const;

  // FAILED_PRECONDITION in a child.
  absl::Status Check() const;

  // FAILED_PRECONDITION in a process that was forked while its parent used gRPC, whose threads and locks the child has
  // without what they wait for.
  static absl::Status CheckConnecting();

 private:
  const std::string what_;
  const pid_t pid_;
  int generation_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_PROCESS_GUARD_H_
