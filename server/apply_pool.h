// Threads that help whoever applies a commit.
#ifndef PARAMD_SERVER_APPLY_POOL_H_
#define PARAMD_SERVER_APPLY_POOL_H_

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe.
class ApplyPool {
 public:
  // `threads` >= 1 counts the one that calls ForEach.
  explicit ApplyPool(int threads);
  ~ApplyPool();

  ApplyPool(const ApplyPool&) = delete;
  ApplyPool& operator=(const ApplyPool&) = delete;

  // Calls work(i) for every i < n, beginning them in order, on this thread and on those that are free; returns when all
  // have ended. While another call is under way, this one does its work alone rather than wait.
  void ForEach(size_t n, absl::FunctionRef<void(size_t)> work);

 private:
  struct Job {
    const absl::FunctionRef<void(size_t)> work;
    const size_t n;
    std::atomic<size_t> next{0};
    int helpers = 0;  // at work on it; guarded by mutex_
  };

  static void Work(Job* job);
  void Help();

  Mutex mutex_;
  CondVar job_changed_;
  CondVar helper_ended_;
  Job* job_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that takes helpers
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> helpers_;  // constant after construction
};

}  // namespace paramd

#endif  // PARAMD_SERVER_APPLY_POOL_H_
