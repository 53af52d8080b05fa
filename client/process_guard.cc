#include "client/process_guard.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// Whether a fork that is about to happen, or has made this process, leaves gRPC unusable in the child.
std::atomic<bool> grpc_in_use{false};
std::atomic<bool> grpc_lost{false};
// Forks between the first process that looked and this one.
std::atomic<int> generation{0};

void WatchForks() {
  static const int registered = pthread_atfork([] { grpc_in_use = grpc_is_initialized() != 0; }, nullptr,
                                               [] {
                                                 ++generation;
                                                 grpc_lost = grpc_lost || grpc_in_use;
                                               });
  static_cast<void>(registered);
}

}  // namespace

ProcessGuard::ProcessGuard(std::string what) : what_(std::move(what)), pid_(getpid()) {
  WatchForks();
  generation_ = generation;
}

// Without a system call: every exchange asks.
bool ProcessGuard::forked() const { return generation != generation_; }

absl::Status ProcessGuard::Check() const {
  if (!forked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what_, " belongs to process ", pid_, ", and this is process ",
                                                    getpid(), ", forked from it; fork first, and join in the child"));
}

absl::Status ProcessGuard::CheckConnecting() {
  WatchForks();
  if (!grpc_lost) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked from one with open connections (of a joined worker, or of an admin), which do not "
      "survive that; fork first, and join in the child, or start another program for it (Python: multiprocessing's "
      "'spawn')");
}

}  // namespace paramd
