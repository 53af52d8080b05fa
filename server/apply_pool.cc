#include "server/apply_pool.h"

namespace paramd {

ApplyPool::ApplyPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this] { Help(); });
  }
}

ApplyPool::~ApplyPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  job_changed_.SignalAll();
  for (std::thread& helper : helpers_) helper.join();
}

void ApplyPool::ForEach(size_t n, absl::FunctionRef<void(size_t)> work) {
  Job job{.work = work, .n = n};
  bool helped = false;
  if (n > 1 && !helpers_.empty()) {
    MutexLock lock(&mutex_);
    helped = job_ == nullptr;
    if (helped) job_ = &job;
  }
  if (helped) job_changed_.SignalAll();
  Work(&job);
  if (!helped) return;
  MutexLock lock(&mutex_);
  // A helper that wakes up only now finds nothing to do, so it is not waited for.
  job_ = nullptr;
  while (job.helpers > 0) helper_ended_.Wait(&mutex_);
}

void ApplyPool::Work(Job* job) {
  for (size_t i = job->next.fetch_add(1); i < job->n; i = job->next.fetch_add(1)) job->work(i);
}

void ApplyPool::Help() {
  while (true) {
    Job* job = nullptr;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (job_ == nullptr || job_->next.load() >= job_->n)) job_changed_.Wait(&mutex_);
      if (stopping_) return;
      job = job_;
      ++job->helpers;
    }
    Work(job);
    MutexLock lock(&mutex_);
    if (--job->helpers == 0) helper_ended_.SignalAll();
  }
}

}  // namespace paramd
