#include "server/reflection_call.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace paramd {
namespace {

// The messages of both are the same.
bool IsReflection(const std::string& method) {
  return method == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" ||
         method == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

}  // namespace

ReflectionCall::ReflectionCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCalls* calls,
                               Streams* streams, Access* access, const Reflect* reflect)
    : live_(calls), service_(service), queue_(queue), streams_(streams), access_(access), reflect_(reflect) {}

void ReflectionCall::Listen(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCalls* calls,
                            Streams* streams, Access* access, const Reflect* reflect) {
  const std::shared_ptr<ReflectionCall> call(new ReflectionCall(service, queue, calls, streams, access, reflect));
  call->context_.AsyncNotifyWhenDone(call->on_done_.Arm(call));
  service->RequestCall(&call->context_, &call->stream_, queue, queue, call->on_started_.Arm(call));
}

void ReflectionCall::OnStarted(bool ok) {
  if (!ok) {
    // The server shuts down, and OnDone will not come.
    on_done_.Arm(nullptr);
    return;
  }
  Listen(service_, queue_, live_.calls(), streams_, access_, reflect_);
  streams_->Add(shared_from_this());
  // OnDone may have come already, on another thread.
  if (done_) streams_->Remove(shared_from_this());
  if (*reflect_ != nullptr && IsReflection(context_.method())) {
    Principal principal;
    const absl::Status status = access_->Admit(context_, FindRule(context_.method()), &principal);
    return status.ok() ? Read() : Finish(ToGrpcStatus(status));
  }
  Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat("this server has no method ", context_.method(), "; is the client newer?")));
}

void ReflectionCall::OnDone(bool /*ok*/) {
  done_ = true;
  streams_->Remove(shared_from_this());
}

void ReflectionCall::Drain() { context_.TryCancel(); }

void ReflectionCall::Read() { stream_.Read(&in_, on_read_.Arm(shared_from_this())); }

void ReflectionCall::OnRead(bool ok) {
  if (!ok) return Finish(grpc::Status::OK);
  std::vector<grpc::Slice> slices;
  if (!in_.Dump(&slices).ok()) return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "a message can't be read"));
  std::string request;
  for (const grpc::Slice& slice : slices) {
    request.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  in_.Clear();
  const grpc::Slice answer((*reflect_)(request));
  stream_.Write(grpc::ByteBuffer(&answer, 1), on_written_.Arm(shared_from_this()));
}

void ReflectionCall::OnWritten(bool ok) { ok ? Read() : Finish(grpc::Status::OK); }

void ReflectionCall::Finish(const grpc::Status& status) {
  stream_.Finish(status, on_finished_.Arm(shared_from_this()));
}

void ReflectionCall::OnFinished(bool /*ok*/) {}

}  // namespace paramd
