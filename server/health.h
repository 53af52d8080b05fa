// The standard gRPC health service, for probes and load balancers. gRPC has one of its own, but it brings threads that
// poll beside ours, and then every exchange is handed from one to the other.
#ifndef PARAMD_SERVER_HEALTH_H_
#define PARAMD_SERVER_HEALTH_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>

#include "proto/health.grpc.pb.h"
#include "server/access.h"
#include "server/event.h"
#include "server/streams.h"

namespace paramd {

// Thread-safe.
class Health {
 public:
  using Service = grpc::health::v1::Health::WithRawMethod_Check<
      grpc::health::v1::Health::WithAsyncMethod_Watch<grpc::health::v1::Health::Service>>;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // To be registered with the server before it is built.
  grpc::Service* service() { return &service_; }

  // Answers on the queue from now on. All must outlive the last call.
  void Listen(grpc::ServerCompletionQueue* queue, LiveCalls* calls, Access* access);

  // NOT_SERVING from now on; those that watch are told so, and their calls end.
  void Drain();

 private:
  class Watch;

  // Of one service; SERVICE_UNKNOWN if there is none of that name.
  Status Get(const std::string& service) const;

  Service service_;
  std::atomic<bool> draining_{false};
  Streams watches_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_HEALTH_H_
