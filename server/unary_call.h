// One method of the control plane on the completion queue.
#ifndef PARAMD_SERVER_UNARY_CALL_H_
#define PARAMD_SERVER_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "proto/status.h"
#include "server/event.h"

namespace paramd {

// Deletes itself when its call is over. `handle` must be quick and thread-safe.
template <typename Request, typename Reply>
class UnaryCall : public Event {
 public:
  using Handle = std::function<absl::Status(const Request&, Reply*)>;
  // The generated RequestXxx of the service, bound to it.
  using RequestNext =
      std::function<void(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Reply>*, void* tag)>;

  static void Listen(LiveCalls* calls, RequestNext request_next, Handle handle) {
    auto* call = new UnaryCall(calls, std::move(request_next), std::move(handle));
    call->request_next_(&call->context_, &call->request_, &call->writer_, static_cast<Event*>(call));
  }

  void Fire(bool ok) override {
    if (!ok || answered_) {
      delete this;
      return;
    }
    Listen(live_.calls(), request_next_, handle_);
    answered_ = true;
    Reply reply;
    const absl::Status status = handle_(request_, &reply);
    if (status.ok()) {
      writer_.Finish(reply, grpc::Status::OK, static_cast<Event*>(this));
    } else {
      context_.AddTrailingMetadata(kAnsweredKey, "1");
      writer_.FinishWithError(ToGrpcStatus(status), static_cast<Event*>(this));
    }
  }

 private:
  UnaryCall(LiveCalls* calls, RequestNext request_next, Handle handle)
      : live_(calls), request_next_(std::move(request_next)), handle_(std::move(handle)) {}

  const LiveCall live_;
  const RequestNext request_next_;
  const Handle handle_;
  grpc::ServerContext context_;
  Request request_;
  grpc::ServerAsyncResponseWriter<Reply> writer_{&context_};
  bool answered_ = false;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_UNARY_CALL_H_
