// What a completion queue's tags point to.
#ifndef PARAMD_SERVER_EVENT_H_
#define PARAMD_SERVER_EVENT_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sync/mutex.h"

namespace paramd {

// Counts the calls that may still start operations: a queue must not be shut down before, or gRPC aborts the process.
// Thread-safe.
class LiveCalls {
 public:
  void AwaitNone() {
    MutexLock lock(&mutex_);
    while (count_ > 0) none_.Wait(&mutex_);
  }

 private:
  friend class LiveCall;
  Mutex mutex_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One of them, for as long as it exists. The first member of a call, so that it goes last.
class LiveCall {
 public:
  explicit LiveCall(LiveCalls* calls) : calls_(calls) {
    MutexLock lock(&calls_->mutex_);
    ++calls_->count_;
  }
  ~LiveCall() {
    MutexLock lock(&calls_->mutex_);
    if (--calls_->count_ == 0) calls_->none_.SignalAll();
  }
  LiveCall(const LiveCall&) = delete;
  LiveCall& operator=(const LiveCall&) = delete;

  LiveCalls* calls() const { return calls_; }

 private:
  LiveCalls* const calls_;
};

class Event {
 public:
  virtual ~Event() = default;
  // The operation is done; `ok` as gRPC defines it for the operation.
  virtual void Fire(bool ok) = 0;
};

// Calls a method of an object, which it keeps alive while the operation is under way. One operation at a time.
template <typename T>
class MethodEvent : public Event {
 public:
  explicit MethodEvent(void (T::*method)(bool)) : method_(method) {}

  // The tag for an operation on `self`.
  void* Arm(std::shared_ptr<T> self) {
    self_ = std::move(self);
    return static_cast<Event*>(this);
  }

  void Fire(bool ok) override {
    // The object may go away in its own method.
    const std::shared_ptr<T> self = std::move(self_);
    ((*self).*method_)(ok);
  }

 private:
  void (T::*const method_)(bool);
  std::shared_ptr<T> self_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_EVENT_H_
