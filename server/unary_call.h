// One method of the control plane on the completion queue.
#ifndef PARAMD_SERVER_UNARY_CALL_H_
#define PARAMD_SERVER_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "process/memory.h"
#include "proto/status.h"
#include "server/access.h"
#include "server/event.h"

namespace paramd {

// What may not be done is refused before `handle` sees it. Deletes itself when its call is over. `handle` must be quick
// and thread-safe; what its answer has to wait for it says in `until`, which is then told whom to tell, on any thread,
// and the reply stays until then. It reads and writes the messages itself: for what can't be read gRPC would answer
// INTERNAL.
template <typename Request, typename Reply>
class UnaryCall : public Event {
 public:
  using Until = std::function<void(std::function<void(const absl::Status&)>)>;
  using Handler = std::function<absl::Status(const Request&, Reply*, Until* until)>;
  // The generated RequestXxx of the service, raw, bound to it.
  using RequestNext = std::function<void(grpc::ServerContext*, grpc::ByteBuffer*,
                                         grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>*, void* tag)>;

  // `method`: its full name.
  static void Listen(LiveCalls* calls, Access* access, absl::string_view method, RequestNext request_next,
                     Handler handle) {
    Listen(calls, access, FindRule(method), std::move(request_next), std::move(handle));
  }
  static void Listen(LiveCalls* calls, Access* access, const MethodRule* rule, RequestNext request_next,
                     Handler handle) {
    auto* call = new UnaryCall(calls, access, rule, std::move(request_next), std::move(handle));
    call->request_next_(&call->context_, &call->request_, &call->writer_, static_cast<Event*>(call));
  }

  void Fire(bool ok) override {
    if (!ok || answered_) {
      delete this;
      return;
    }
    Listen(live_.calls(), access_, rule_, request_next_, handle_);
    answered_ = true;
    Until until;
    const absl::Status status = Handle(&until);
    if (!status.ok() || until == nullptr) return Answer(status);
    until([this](const absl::Status& settled) { Answer(settled); });
  }

 private:
  void Answer(absl::Status status) {
    grpc::ByteBuffer reply;
    if (status.ok()) status = Serialize(&reply);
    if (status.ok()) {
      writer_.Finish(reply, grpc::Status::OK, static_cast<Event*>(this));
    } else {
      context_.AddTrailingMetadata(kAnsweredKey, "1");
      writer_.FinishWithError(ToGrpcStatus(status), static_cast<Event*>(this));
    }
  }

  UnaryCall(LiveCalls* calls, Access* access, const MethodRule* rule, RequestNext request_next, Handler handle)
      : live_(calls),
        access_(access),
        rule_(rule),
        request_next_(std::move(request_next)),
        handle_(std::move(handle)) {}

  absl::Status Handle(Until* until) {
    try {
      // What is small may be what makes room.
      const size_t bytes = request_.Length();
      if (bytes > kSmallRequestBytes && !MemoryPromise::Make(kParsedFactor * bytes).has_value()) return NoMemory();
      return HandleParsed(until);
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
  }

  static absl::Status NoMemory() {
    return absl::ResourceExhaustedError(
        "the server has no memory for this request; try again later, give it more, or delete models");
  }

  absl::Status HandleParsed(Until* until) {
    Request request;
    Principal principal;
    absl::Status status = access_->Admit(context_, rule_, &principal);
    if (status.ok()) status = HandleFor(principal, &request, until);
    const auto tell = [this, principal, model = ModelOf(request),
                       worker = WorkerOf(request)](const absl::Status& outcome) {
      access_->Tell(context_, rule_, principal, model, worker, outcome);
    };
    if (!status.ok() || *until == nullptr) {
      tell(status);
      return status;
    }
    *until = [tell, settle = std::move(*until)](std::function<void(const absl::Status&)> done) {
      settle([tell, done = std::move(done)](const absl::Status& settled) {
        tell(settled);
        done(settled);
      });
    };
    return status;
  }

  absl::Status HandleFor(const Principal& principal, Request* read, Until* until) {
    Request& request = *read;
    if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, Request>(&request_, &request).ok()) {
      return absl::InvalidArgumentError(
          "the request can't be read: it is malformed, or one of its texts is not UTF-8; is the client newer?");
    }
    if constexpr (kNamesModel<Request>) {
      absl::Status status = access_->Authorize(principal, *rule_, ModelOf(request));
      const std::string other = OtherModelOf(request);
      if (status.ok() && !other.empty()) status = access_->Authorize(principal, *rule_, other);
      if (!status.ok()) return status;
    }
    if (auto status = handle_(request, &reply_, until); !status.ok()) return status;
    HideModels(principal, &reply_);
    return absl::OkStatus();
  }

  absl::Status Serialize(grpc::ByteBuffer* out) const {
    try {
      bool own = false;
      return FromGrpcStatus(grpc::GenericSerialize<grpc::ProtoBufferWriter, Reply>(reply_, out, &own));
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
  }

  static constexpr size_t kSmallRequestBytes = 4096;
  static constexpr size_t kParsedFactor = 4;  // of a message's bytes, once it is parsed

  const LiveCall live_;
  Access* const access_;
  const MethodRule* const rule_;
  const RequestNext request_next_;
  const Handler handle_;
  grpc::ServerContext context_;
  grpc::ByteBuffer request_;
  Reply reply_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer_{&context_};
  bool answered_ = false;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_UNARY_CALL_H_
