#include "client/prefetch.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "sync/clock.h"

namespace paramd {

Prefetcher::Prefetcher(BatchSource* source, int64_t epochs, int64_t max_prefetch)
    : source_(source), epochs_(epochs), max_prefetch_(max_prefetch) {}

Prefetcher::~Prefetcher() { Stop(); }

void Prefetcher::Start() {
  {
    MutexLock lock(&mutex_);
    if (cancelled_) return;
    reading_ = true;
  }
  try {
    thread_ = std::thread([this] { Read(); });
  } catch (...) {
    MutexLock lock(&mutex_);
    reading_ = false;
    throw;
  }
}

absl::StatusOr<const Batch*> Prefetcher::Next() {
  MutexLock lock(&mutex_);
  if (in_hand_ != nullptr) free_.push_back(std::move(in_hand_));
  while (queue_.empty() && reading_ && !cancelled_) filled_.Wait(&mutex_);
  if (cancelled_) return absl::CancelledError("reading minibatches was cancelled");
  if (queue_.empty()) return end_;
  in_hand_ = std::move(queue_.front());
  queue_.pop_front();
  if (in_hand_ != nullptr) {
    --queued_;
    room_.Signal();
  }
  return in_hand_.get();
}

bool Prefetcher::AtEpochEnd(absl::Duration patience) {
  const absl::Time deadline = Clock::Steady()->Now() + patience;
  MutexLock lock(&mutex_);
  while (queue_.empty() && reading_ && !cancelled_) {
    if (filled_.WaitWithTimeout(&mutex_, deadline - Clock::Steady()->Now())) break;
  }
  return !queue_.empty() && queue_.front() == nullptr;
}

void Prefetcher::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    filled_.SignalAll();
    room_.SignalAll();
    if (!reading_) return;
  }
  source_.Cancel();
}

void Prefetcher::Stop() {
  Cancel();
  if (!thread_.joinable()) return;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (reading_) ended_.WaitWithTimeout(&mutex_, absl::Milliseconds(20));
      if (!reading_) break;
    }
    // Again: a cancellation that came just before the source began to wait may have been lost on it.
    source_.Cancel();
  }
  thread_.join();
}

void Prefetcher::Read() {
  absl::Status status = absl::InternalError("the source ended the thread that reads it");
  const absl::Cleanup end = [&] {
    MutexLock lock(&mutex_);
    if (!status.ok()) end_ = std::move(status);
    reading_ = false;
    filled_.SignalAll();
    ended_.SignalAll();
  };
  status = CallUserCode(
      [this] {
        for (int64_t epoch = 0; epoch < epochs_; ++epoch) {
          if (absl::Status read = ReadEpoch(epoch); !read.ok()) return read;
        }
        return absl::OkStatus();
      },
      "reading minibatches ahead");
}

absl::Status Prefetcher::ReadEpoch(int64_t epoch) {
  if (absl::Status rewound = source_.Rewind(epoch); !rewound.ok()) return rewound;
  for (int64_t read = 0;; ++read) {
    std::unique_ptr<Batch> batch = TakeFree();
    if (batch == nullptr) return absl::CancelledError("reading minibatches was cancelled");
    absl::StatusOr<bool> more = source_.Next(batch.get(), epoch, read);
    if (!more.ok()) return more.status();
    if (*more) {
      Push(std::move(batch));
      continue;
    }
    if (read == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", epoch, " has no minibatch: ",
          epoch == 0 ? "this worker's share of the data is empty, perhaps because there are more workers than rows; "
                       "give it data or use fewer workers"
                     : "the source gave none after Rewind, which must begin the data again"));
    }
    MutexLock lock(&mutex_);
    free_.push_back(std::move(batch));
    queue_.push_back(nullptr);
    // At once with the last mark, so that whoever sees that one never cancels a source that is through.
    if (epoch + 1 == epochs_) reading_ = false;
    filled_.Signal();
    return absl::OkStatus();
  }
}

std::unique_ptr<Batch> Prefetcher::TakeFree() {
  MutexLock lock(&mutex_);
  while (queued_ >= max_prefetch_ && !cancelled_) room_.Wait(&mutex_);
  if (cancelled_) return nullptr;
  if (free_.empty()) return std::make_unique<Batch>();
  std::unique_ptr<Batch> batch = std::move(free_.back());
  free_.pop_back();
  return batch;
}

void Prefetcher::Push(std::unique_ptr<Batch> batch) {
  MutexLock lock(&mutex_);
  queue_.push_back(std::move(batch));
  ++queued_;
  filled_.Signal();
}

}  // namespace paramd
