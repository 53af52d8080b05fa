// How the client reaches a server, and calls its control plane. Internal to the client.
#ifndef PARAMD_CLIENT_CONNECTION_H_
#define PARAMD_CLIENT_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/credentials.h"
#include "client/request_check.h"
#include "client/retry.h"
#include "client/security.h"
#include "proto/address.h"
#include "proto/paramd.grpc.pb.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// What governs one call with all its attempts.
struct Attempts {
  Retry retry;
  Cancellation* cancellation = nullptr;
  // Told why attempts fail, each reason once; may be null.
  std::function<void(absl::string_view)> on_failure;
};

// One server: a channel for the control plane, and others for streams. Thread-safe.
class Connection {
 public:
  // INVALID_ARGUMENT for a malformed address (proto/address.h), and for files or options of `security` that can't be
  // used; FAILED_PRECONDITION where gRPC can't be used (ProcessGuard). An empty address is that of PARAMD_SERVER.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(std::string server, const Security& security,
                                                          const Clock* clock = Clock::Steady());

  const Clock* clock() const { return clock_; }

  // With a TCP connection of its own, so that nothing queues behind its bytes.
  std::shared_ptr<grpc::Channel> OpenChannel() const;
  // Grows when the client's certificates have changed: an older channel would only connect with the old ones.
  uint64_t generation() const { return credentials_->generation(); }
  // Puts the client's token into a call. Returns which credentials it goes with.
  uint64_t Authorize(grpc::ClientContext* call) const { return credentials_->Authorize(call); }

  // One call of the control plane, tried again for as long as the server is unreachable. Whatever else it answers is
  // final. Errors: the server's, or those of `attempts`; INVALID_ARGUMENT for a name that is not UTF-8.
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, Attempts* attempts) {
    if (auto status = CheckRequest(request); !status.ok()) return status;
    return CallWith([&](v1::ParameterServer::Stub* stub,
                        grpc::ClientContext* context) { return (stub->*method)(context, request, reply); },
                    attempts);
  }

  // Waits until then, or until `channel` is connected again, and keeps it trying meanwhile: unless somebody waits for
  // it, gRPC looks at a connection only every five seconds. Errors: the cancellation's.
  absl::Status Pause(grpc::Channel* channel, absl::Time until, Cancellation* cancellation) const;

  // Adds the server's address, the likely cause and the next step to an error of the transport. What the server itself
  // has said when it ended `call` needs none. What newer files of the client's than `used` may mend is UNAVAILABLE.
  absl::Status Explain(const absl::Status& status, uint64_t used, const grpc::ClientContext* call = nullptr) const;

  // A time of the clock, for gRPC.
  gpr_timespec Deadline(absl::Time time) const;

 private:
  Connection(Address address, std::unique_ptr<Credentials> credentials, const Clock* clock);
  absl::Status ExplainWhy(const absl::Status& status, const grpc::ClientContext* call) const;
  absl::Status ExplainUnavailable(absl::string_view why) const;
  // For the control plane.
  std::shared_ptr<grpc::Channel> Channel();
  absl::Status CallWith(
      absl::FunctionRef<grpc::Status(v1::ParameterServer::Stub* stub, grpc::ClientContext* context)> call,
      Attempts* attempts);

  const std::string server_;  // as people write it
  const std::string target_;  // as gRPC takes it
  const Clock* const clock_;
  const std::unique_ptr<Credentials> credentials_;

  Mutex mutex_;
  uint64_t channel_generation_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_CONNECTION_H_
