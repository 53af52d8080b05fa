// How the client talks to a server: connections, retries, the exchange stream. Internal to the client.
#ifndef PARAMD_CLIENT_TRANSPORT_H_
#define PARAMD_CLIENT_TRANSPORT_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/chunk_pool.h"
#include "proto/paramd.grpc.pb.h"
#include "proto/status.h"
#include "proto/tensor_codec.h"
#include "sync/mutex.h"

namespace paramd {

class SharedMemory;

// Whether to try again: the server is away, going or full, rather than saying no.
bool IsTransient(const absl::Status& status);

// Something that Cancel interrupts, until Reset. Thread-safe.
class Cancellation {
 public:
  void Cancel();
  void Reset();
  bool cancelled() const;
  // Waits; returns true if it was cancelled.
  bool WaitFor(absl::Duration duration);

  // Cancels a call with everything else, also if that has happened before. Balanced by Remove.
  void Add(grpc::ClientContext* call);
  void Remove(grpc::ClientContext* call);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

// Decides whether and when a failed call is tried again: capped exponential backoff with jitter, until the deadline, or
// until the server has been out of reach for too long. Thread-compatible.
class Retry {
 public:
  // `cancellation` must outlive it.
  Retry(absl::Time deadline, absl::Duration patience, Cancellation* cancellation);

  // The server said something: its patience begins anew.
  void SignOfLife();

  // When an attempt must have ended, unless there is another sign of life.
  absl::Time attempt_deadline() const;
  absl::Time deadline() const { return deadline_; }
  Cancellation* cancellation() const { return cancellation_; }

  // After an attempt failed with `error`: waits and returns OK to try again, or returns what the caller should.
  absl::Status Next(const absl::Status& error);

 private:
  const absl::Time deadline_;
  const absl::Duration patience_;
  Cancellation* const cancellation_;
  absl::Time last_life_ = absl::Now();
  absl::Duration backoff_ = absl::Milliseconds(20);
  absl::Status reason_;  // why the attempts since the last sign of life failed
  absl::BitGen random_;
};

// One server: a channel for the control plane, and others for streams. Thread-safe.
class Connection {
 public:
  // INVALID_ARGUMENT for a malformed address.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(const std::string& server);

  const std::string& server() const { return server_; }

  // With a TCP connection of its own, so that nothing queues behind its bytes.
  std::shared_ptr<grpc::Channel> OpenChannel() const;

  // One call of the control plane, tried again while that makes sense.
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, Retry* retry) {
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(retry->attempt_deadline()));
      const auto stub = v1::ParameterServer::NewStub(channel_);
      retry->cancellation()->Add(&context);
      const absl::Status status = FromGrpcStatus(((*stub).*method)(&context, request, reply));
      retry->cancellation()->Remove(&context);
      if (status.ok()) return status;
      const absl::Status next = retry->Next(Explain(status));
      if (!next.ok()) return next;
    }
  }

  // Adds the server's address, the likely cause and the next step to an error of the transport.
  absl::Status Explain(const absl::Status& status) const;

 private:
  explicit Connection(std::string server);

  const std::string server_;
  const std::shared_ptr<grpc::Channel> channel_;
};

// The long-lived stream of one worker or reader. Thread-compatible.
class ExchangeStream {
 public:
  ExchangeStream(std::shared_ptr<Connection> connection, Cancellation* cancellation);
  ~ExchangeStream();

  ExchangeStream(const ExchangeStream&) = delete;
  ExchangeStream& operator=(const ExchangeStream&) = delete;

  // One attempt of one exchange: sends the header and `commit` (empty: none), receives the reply and the pulled floats
  // into `center`. Both travel in the header's encoding, or through `shared` if the header names a segment. An error is
  // the transport's, and the stream begins anew with the next attempt; the server's own answer is in the reply. Returns
  // soon after `retry`'s deadlines, and then nothing refers to the spans any more.
  absl::StatusOr<v1::ReplyHeader> Run(const v1::ExchangeHeader& header, absl::Span<const float> commit,
                                      absl::Span<float> center, const SharedMemory* shared, Retry* retry);

  // Tells the server that an answer arrived; nothing comes back.
  void Acknowledge(const v1::ExchangeHeader& header);

  // Closes the stream and its TCP connection, until there is another attempt.
  void Disconnect();

 private:
  struct Call;

  absl::Status Start(absl::Time deadline);
  // Waits for one operation and returns whether it succeeded; DEADLINE_EXCEEDED at `deadline`.
  absl::StatusOr<bool> Step(absl::Time deadline);
  void Write(const grpc::ByteBuffer& message);
  void Read();
  // Ends the stream, whatever state it is in; returns why it broke.
  absl::Status Close();

  const std::shared_ptr<Connection> connection_;
  Cancellation* const cancellation_;
  const std::shared_ptr<ChunkPool> chunks_;
  std::shared_ptr<grpc::Channel> channel_;  // null: to be opened
  std::unique_ptr<Call> call_;              // null: to be started
  bool writing_ = false;
  bool reading_ = false;
  bool arrived_ = false;  // the call's `in` holds a message
};

// Exchanges with retries: what Worker and Admin have in common. Thread-compatible.
class ExchangeClient {
 public:
  ExchangeClient(std::shared_ptr<Connection> connection, absl::Duration rpc_timeout, Cancellation* cancellation,
                 std::function<void(absl::string_view)> on_event);

  // What exchanges go through from now on where that is possible. It must outlive them.
  void set_shared_memory(SharedMemory* shared) { shared_ = shared; }

  // `header` with everything but wait_ms and segment; its encoding is that of floats that do not go through a segment.
  // Errors: the server's; INVALID_ARGUMENT for a commit that the encoding can't hold; CANCELLED; DEADLINE_EXCEEDED;
  // UNAVAILABLE.
  absl::StatusOr<v1::ReplyHeader> Exchange(v1::ExchangeHeader header, absl::Span<const float> commit,
                                           absl::Span<float> center, absl::Duration timeout);

  // Closes its connection, until there is another exchange.
  void Disconnect() { stream_.Disconnect(); }

 private:
  absl::StatusOr<v1::ReplyHeader> Attempts(v1::ExchangeHeader header, absl::Span<const float> commit,
                                           absl::Span<float> center, absl::Duration timeout);

  const std::shared_ptr<Connection> connection_;
  const absl::Duration rpc_timeout_;
  Cancellation* const cancellation_;
  const std::function<void(absl::string_view)> on_event_;
  SharedMemory* shared_ = nullptr;
  ExchangeStream stream_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_TRANSPORT_H_
