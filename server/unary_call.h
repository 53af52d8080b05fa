// One method of the control plane on the completion queue.
#ifndef PARAMD_SERVER_UNARY_CALL_H_
#define PARAMD_SERVER_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "process/memory.h"
#include "proto/status.h"
#include "server/event.h"

namespace paramd {

// Deletes itself when its call is over. `handle` must be quick and thread-safe. It reads and writes the messages
// itself: for what can't be read gRPC would answer INTERNAL.
template <typename Request, typename Reply>
class UnaryCall : public Event {
 public:
  using Handler = std::function<absl::Status(const Request&, Reply*)>;
  // The generated RequestXxx of the service, raw, bound to it.
  using RequestNext = std::function<void(grpc::ServerContext*, grpc::ByteBuffer*,
                                         grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>*, void* tag)>;

  static void Listen(LiveCalls* calls, RequestNext request_next, Handler handle) {
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
    grpc::ByteBuffer reply;
    const absl::Status status = Handle(&reply);
    if (status.ok()) {
      writer_.Finish(reply, grpc::Status::OK, static_cast<Event*>(this));
    } else {
      context_.AddTrailingMetadata(kAnsweredKey, "1");
      writer_.FinishWithError(ToGrpcStatus(status), static_cast<Event*>(this));
    }
  }

 private:
  UnaryCall(LiveCalls* calls, RequestNext request_next, Handler handle)
      : live_(calls), request_next_(std::move(request_next)), handle_(std::move(handle)) {}

  absl::Status Handle(grpc::ByteBuffer* out) {
    try {
      // What is small may be what makes room.
      const size_t bytes = request_.Length();
      if (bytes > kSmallRequestBytes && !MemoryPromise::Make(kParsedFactor * bytes).has_value()) return NoMemory();
      return HandleParsed(out);
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
  }

  static absl::Status NoMemory() {
    return absl::ResourceExhaustedError(
        "the server has no memory for this request; try again later, give it more, or delete models");
  }

  absl::Status HandleParsed(grpc::ByteBuffer* out) {
    Request request;
    if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, Request>(&request_, &request).ok()) {
      return absl::InvalidArgumentError(
          "the request can't be read: it is malformed, or one of its texts is not UTF-8; is the client newer?");
    }
    Reply reply;
    if (auto status = handle_(request, &reply); !status.ok()) return status;
    bool own = false;
    return FromGrpcStatus(grpc::GenericSerialize<grpc::ProtoBufferWriter, Reply>(reply, out, &own));
  }

  static constexpr size_t kSmallRequestBytes = 4096;
  static constexpr size_t kParsedFactor = 4;  // of a message's bytes, once it is parsed

  const LiveCall live_;
  const RequestNext request_next_;
  const Handler handle_;
  grpc::ServerContext context_;
  grpc::ByteBuffer request_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer_{&context_};
  bool answered_ = false;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_UNARY_CALL_H_
