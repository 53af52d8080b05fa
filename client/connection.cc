#include "client/connection.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/process_guard.h"
#include "proto/status.h"
#include "proto/tensor_codec.h"

namespace paramd {
namespace {

// How long nobody looks whether a pause was cancelled.
constexpr absl::Duration kPauseSlice = absl::Milliseconds(20);
// gRPC's clock can't hold absl::InfiniteFuture().
constexpr absl::Duration kForEver = absl::Hours(24 * 365);

}  // namespace

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(std::string server, const Security& security,
                                                             const Clock* clock) {
  if (const char* const environment = std::getenv("PARAMD_SERVER"); server.empty() && environment != nullptr) {
    server = environment;
  }
  auto address = ParseServerAddress(server);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the server's ", address.status().message()));
  }
  if (auto status = ProcessGuard::CheckConnecting(); !status.ok()) return status;
  auto credentials = Credentials::Load(security, *address, clock);
  if (!credentials.ok()) return credentials.status();
  return std::shared_ptr<Connection>(new Connection(*std::move(address), *std::move(credentials), clock));
}

Connection::Connection(Address address, std::unique_ptr<Credentials> credentials, const Clock* clock)
    : server_(address.ToString()),
      target_(address.Target()),
      clock_(clock),
      credentials_(std::move(credentials)),
      channel_generation_(generation()),
      channel_(OpenChannel()) {}

std::shared_ptr<grpc::Channel> Connection::OpenChannel() const {
  grpc::ChannelArguments arguments;
  // A connection of its own for every object: one worker's bytes don't queue behind another's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries are ours; gRPC's would keep copies of what is sent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A daemon that is back is noticed soon; a host that says nothing is given a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 150);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 20);
  // A chunk in one frame. HTTP/2's own default is 16 KiB.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  arguments.SetInt(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, kMinReadBytes);
  // Descriptions can be long, and the server is one that the user chose.
  arguments.SetMaxReceiveMessageSize(1 << 30);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(target_, credentials_->ForChannel(), arguments);
}

std::shared_ptr<grpc::Channel> Connection::Channel() {
  const uint64_t now = generation();
  MutexLock lock(&mutex_);
  if (channel_generation_ != now) {
    channel_generation_ = now;
    channel_ = OpenChannel();
  }
  return channel_;
}

absl::Status Connection::CallWith(
    absl::FunctionRef<grpc::Status(v1::ParameterServer::Stub* stub, grpc::ClientContext* context)> call,
    Attempts* attempts) {
  while (true) {
    if (auto cancelled = attempts->cancellation->status(); !cancelled.ok()) return cancelled;
    const std::shared_ptr<grpc::Channel> channel = Channel();
    const auto stub = v1::ParameterServer::NewStub(channel);
    grpc::ClientContext context;
    const uint64_t used = Authorize(&context);
    context.set_deadline(Deadline(attempts->retry.attempt_deadline()));
    absl::Status status;
    {
      const Cancellation::Interrupt interrupt(attempts->cancellation, [&context] { context.TryCancel(); });
      status = FromGrpcStatus(call(stub.get(), &context));
    }
    if (status.ok()) return status;
    if (auto cancelled = attempts->cancellation->status(); !cancelled.ok()) return cancelled;
    status = Explain(status, used, &context);
    if (attempts->on_failure != nullptr && IsUnreachable(status) && attempts->retry.IsNews(status)) {
      attempts->on_failure(status.message());
    }
    const absl::StatusOr<absl::Time> next = attempts->retry.Next(status, IsUnreachable(status));
    if (!next.ok()) return next.status();
    if (auto cancelled = Pause(channel.get(), *next, attempts->cancellation); !cancelled.ok()) return cancelled;
  }
}

absl::Status Connection::Pause(grpc::Channel* channel, absl::Time until, Cancellation* cancellation) const {
  grpc_connectivity_state before = channel->GetState(/*try_to_connect=*/true);
  while (true) {
    if (auto cancelled = cancellation->status(); !cancelled.ok()) return cancelled;
    const absl::Time now = clock_->Now();
    if (now >= until) return absl::OkStatus();
    channel->WaitForStateChange(before, Deadline(std::min(until, now + kPauseSlice)));
    const grpc_connectivity_state after = channel->GetState(/*try_to_connect=*/true);
    if (after == GRPC_CHANNEL_READY && before != GRPC_CHANNEL_READY) return absl::OkStatus();
    before = after;
  }
}

absl::Status Connection::ExplainUnavailable(absl::string_view why) const {
  // Both sides are there and don't understand each other, which waiting does not mend.
  const auto unknown = [&](absl::string_view cause) {
    return absl::UnauthenticatedError(
        absl::StrCat("there is no secure connection to paramd at ", server_, " (", why, "); ", cause));
  };
  if (absl::StrContains(why, "certificate verify failed")) {
    return unknown(
        "tls_ca does not hold the authority of its certificate, or that has expired; is it the right server?");
  }
  if (absl::StrContains(why, "is not in peer certificate")) {
    return unknown("its certificate is not for the host that you connect to; use a name or address that is in it");
  }
  if (absl::StrContains(why, "wrong version number")) {
    return unknown("what listens there does not speak TLS; start paramd with --tls_cert, or connect without tls_ca");
  }
  absl::string_view next_step = "is the daemon running, and is the address right?";
  if (absl::StrContains(why, "Socket closed") || absl::StrContains(why, "http1.x")) {
    next_step = credentials_->tls() ? "was it stopped, or does it want a certificate of its clients' (tls_cert)?"
                                    : "was it stopped, or does it want TLS (tls_ca)?";
  }
  return absl::UnavailableError(absl::StrCat("can't reach paramd at ", server_, " (", why, "); ", next_step));
}

absl::Status Connection::Explain(const absl::Status& status, uint64_t used, const grpc::ClientContext* call) const {
  absl::Status explained = ExplainWhy(status, call);
  const bool unknown = absl::IsUnauthenticated(explained);
  // Also a connection that is broken off may have been for its certificate.
  if (!unknown && !absl::IsUnavailable(explained)) return explained;
  if (credentials_->Refresh(used) && unknown) {
    return absl::UnavailableError(
        absl::StrCat(explained.message(), " The client's files have changed, so it tries again with what is new."));
  }
  return explained;
}

absl::Status Connection::ExplainWhy(const absl::Status& status, const grpc::ClientContext* call) const {
  if (call != nullptr && call->GetServerTrailingMetadata().count(kAnsweredKey) != 0) return status;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return ExplainUnavailable(status.message());
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(absl::StrCat("paramd at ", server_, " did not answer in time (",
                                                      status.message(),
                                                      "); is it overloaded, stopped, or behind a broken link?"));
    // So ends what was under way when a server stops.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return absl::UnavailableError(
          absl::StrCat("paramd at ", server_, " ended the call (", status.message(), "); was the daemon stopped?"));
    default:
      return status;
  }
}

gpr_timespec Connection::Deadline(absl::Time time) const {
  const absl::Duration left = std::min(time - clock_->Now(), kForEver);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(absl::ToInt64Nanoseconds(left), GPR_TIMESPAN));
}

}  // namespace paramd
