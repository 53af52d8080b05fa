// What a completion queue's tags point to.
#ifndef PARAMD_SERVER_EVENT_H_
#define PARAMD_SERVER_EVENT_H_

#include <memory>
#include <utility>

namespace paramd {

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
