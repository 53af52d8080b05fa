#include "server/health.h"

#include <grpcpp/support/async_stream.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/paramd.grpc.pb.h"
#include "server/unary_call.h"
#include "sync/mutex.h"

namespace paramd {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One call of Watch. It writes the status when that changes, one write at a time, and ends when the client goes or the
// server drains.
class Health::Watch : public Stream, public std::enable_shared_from_this<Watch> {
 public:
  static void Listen(Health* health, grpc::ServerCompletionQueue* queue, LiveCalls* calls) {
    const std::shared_ptr<Watch> watch(new Watch(health, queue, calls));
    watch->context_.AsyncNotifyWhenDone(watch->on_done_.Arm(watch));
    health->service_.RequestWatch(&watch->context_, &watch->request_, &watch->writer_, queue, queue,
                                  watch->on_started_.Arm(watch));
  }

  void Drain() override { Go(); }

 private:
  Watch(Health* health, grpc::ServerCompletionQueue* queue, LiveCalls* calls)
      : live_(calls), health_(health), queue_(queue), writer_(&context_) {}

  void OnStarted(bool ok) {
    if (!ok) {
      // The server shuts down, and OnDone will not come.
      on_done_.Arm(nullptr);
      return;
    }
    Listen(health_, queue_, live_.calls());
    health_->watches_.Add(shared_from_this());
    // OnDone may have come already, on another thread.
    if (done_) health_->watches_.Remove(shared_from_this());
    Go();
  }

  void OnDone(bool /*ok*/) {
    done_ = true;
    health_->watches_.Remove(shared_from_this());
    Go();
  }

  void OnWritten(bool /*ok*/) {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
    }
    Go();
  }

  void OnFinished(bool /*ok*/) {}

  // Writes the status if it is another one than before, or ends the call if there is nothing more to say.
  void Go() {
    MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    const Status status = health_->Get(request_.service());
    if (!done_ && status != written_) {
      writing_ = true;
      written_ = status;
      HealthCheckResponse response;
      response.set_status(status);
      writer_.Write(response, on_written_.Arm(shared_from_this()));
    } else if (done_ || health_->draining_) {
      finished_ = true;
      writer_.Finish(grpc::Status::OK, on_finished_.Arm(shared_from_this()));
    }
  }

  const LiveCall live_;
  Health* const health_;
  grpc::ServerCompletionQueue* const queue_;

  grpc::ServerContext context_;
  HealthCheckRequest request_;
  grpc::ServerAsyncWriter<HealthCheckResponse> writer_;
  MethodEvent<Watch> on_started_{&Watch::OnStarted};
  MethodEvent<Watch> on_done_{&Watch::OnDone};
  MethodEvent<Watch> on_written_{&Watch::OnWritten};
  MethodEvent<Watch> on_finished_{&Watch::OnFinished};

  std::atomic<bool> done_{false};  // the client is gone

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  Status written_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
};

Health::Status Health::Get(const std::string& service) const {
  if (!service.empty() && service != v1::ParameterServer::service_full_name()) {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  return draining_ ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVING;
}

void Health::Listen(grpc::ServerCompletionQueue* queue, LiveCalls* calls, Access* access) {
  UnaryCall<HealthCheckRequest, HealthCheckResponse>::Listen(
      calls, access, "/grpc.health.v1.Health/Check",
      [this, queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestCheck(context, request, writer, queue, queue, tag);
      },
      [this](const HealthCheckRequest& request, HealthCheckResponse* response, auto*) -> absl::Status {
        response->set_status(Get(request.service()));
        if (response->status() != HealthCheckResponse::SERVICE_UNKNOWN) return absl::OkStatus();
        return absl::NotFoundError(absl::StrCat("no service '", request.service(), "' here; ask for '",
                                                v1::ParameterServer::service_full_name(), "' or for ''"));
      });
  Watch::Listen(this, queue, calls);
}

void Health::Drain() {
  draining_ = true;
  watches_.Drain();
}

}  // namespace paramd
