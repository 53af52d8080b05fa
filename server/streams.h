// The streams that are open, so that a drain can end them.
#ifndef PARAMD_SERVER_STREAMS_H_
#define PARAMD_SERVER_STREAMS_H_

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// A call that lasts until its client ends it.
class Stream {
 public:
  virtual ~Stream() = default;

  // Ends the call: at once if it is idle, else after what it is doing. Thread-safe.
  virtual void Drain() = 0;

  // What it is doing still has had all the time there is. Thread-safe.
  virtual void Abandon() {}
};

// Thread-safe.
class Streams {
 public:
  // A stream that is added to ones that drain is drained at once.
  void Add(std::shared_ptr<Stream> stream) {
    bool drain = false;
    {
      MutexLock lock(&mutex_);
      streams_.insert(stream);
      drain = draining_;
    }
    if (drain) stream->Drain();
  }

  void Remove(const std::shared_ptr<Stream>& stream) {
    MutexLock lock(&mutex_);
    streams_.erase(stream);
    if (streams_.empty()) none_.SignalAll();
  }

  // Until there is none, or `deadline`; returns whether there is none.
  bool AwaitNone(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (!streams_.empty()) {
      if (none_.WaitWithTimeout(&mutex_, deadline - Clock::Steady()->Now()) && Clock::Steady()->Now() >= deadline)
        break;
    }
    return streams_.empty();
  }

  size_t size() const {
    MutexLock lock(&mutex_);
    return streams_.size();
  }

  void Drain() {
    {
      MutexLock lock(&mutex_);
      draining_ = true;
    }
    for (const auto& stream : All()) stream->Drain();
  }

  void Abandon() {
    for (const auto& stream : All()) stream->Abandon();
  }

 private:
  std::vector<std::shared_ptr<Stream>> All() const {
    MutexLock lock(&mutex_);
    return {streams_.begin(), streams_.end()};
  }

  mutable Mutex mutex_;
  CondVar none_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STREAMS_H_
