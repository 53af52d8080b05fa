// Reads minibatches ahead of the training loop, on a thread of its own.
#ifndef PARAMD_CLIENT_PREFETCH_H_
#define PARAMD_CLIENT_PREFETCH_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/guarded.h"
#include "client/trainable.h"
#include "sync/mutex.h"

namespace paramd {

// A bounded queue of minibatches that a thread fills from a BatchSource, epoch after epoch. It holds at most
// `max_prefetch` minibatches, the one being read included, beside the one that Next handed out; their memory is used
// again and again. Thread-compatible, but for Cancel.
class Prefetcher {
 public:
  // `source` must outlive the prefetcher. `epochs` and `max_prefetch` >= 1.
  Prefetcher(BatchSource* source, int64_t epochs, int64_t max_prefetch);
  ~Prefetcher();

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Begins to read. Called once at most.
  void Start();

  // The next minibatch, valid until the next call, or null at each epoch's end. Waits for the source as long as it
  // takes. Errors come after the minibatches read before them: those of the source, INTERNAL for its exceptions,
  // INVALID_ARGUMENT for an epoch without minibatches, OUT_OF_RANGE after the last epoch; CANCELLED comes at once.
  absl::StatusOr<const Batch*> Next();

  // Whether the epoch ends here. Waits at most `patience` for the source to say so.
  bool AtEpochEnd(absl::Duration patience);

  // Ends a Next that waits and makes later ones return CANCELLED. Thread-safe.
  void Cancel();

  // Cancels, and returns when the source is no longer in use.
  void Stop();

 private:
  void Read();
  absl::Status ReadEpoch(int64_t epoch);
  std::unique_ptr<Batch> TakeFree();  // Null if cancelled.
  void Push(std::unique_ptr<Batch> batch);

  const GuardedSource source_;
  const int64_t epochs_;
  const int64_t max_prefetch_;

  std::thread thread_;              // of the caller of Start and Stop
  std::unique_ptr<Batch> in_hand_;  // of the caller of Next

  Mutex mutex_;
  CondVar filled_;                                                    // the queue got longer, or reading ended
  CondVar room_;                                                      // the queue got shorter
  CondVar ended_;                                                     // reading ended
  std::deque<std::unique_ptr<Batch>> queue_ ABSL_GUARDED_BY(mutex_);  // null: an epoch's end
  int64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;                        // minibatches in queue_
  std::vector<std::unique_ptr<Batch>> free_ ABSL_GUARDED_BY(mutex_);
  // Why there is nothing after the queue, once reading ended.
  absl::Status end_ ABSL_GUARDED_BY(mutex_) = absl::OutOfRangeError("all epochs have been read");
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // the source may be in use
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_PREFETCH_H_
