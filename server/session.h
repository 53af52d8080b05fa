// One worker's exchange stream.
#ifndef PARAMD_SERVER_SESSION_H_
#define PARAMD_SERVER_SESSION_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>
#include <optional>

#include "proto/chunk_pool.h"
#include "proto/paramd.grpc.pb.h"
#include "proto/tensor_codec.h"
#include "server/budget.h"
#include "server/commit_buffer.h"
#include "server/event.h"
#include "server/model.h"
#include "server/models.h"
#include "server/streams.h"
#include "shm/segment_server.h"
#include "sync/mutex.h"

namespace paramd {

// The methods of the wire: all asynchronous, and the bytes of the exchange raw.
using AsyncService = v1::ParameterServer::WithAsyncMethod_CreateModel<
    v1::ParameterServer::WithAsyncMethod_GetModel<v1::ParameterServer::WithAsyncMethod_ListModels<
        v1::ParameterServer::WithAsyncMethod_DeleteModel<v1::ParameterServer::WithAsyncMethod_ListAlgorithms<
            v1::ParameterServer::WithAsyncMethod_Join<v1::ParameterServer::WithAsyncMethod_Heartbeat<
                v1::ParameterServer::WithAsyncMethod_Leave<v1::ParameterServer::WithAsyncMethod_ReportHistory<
                    v1::ParameterServer::WithAsyncMethod_GetHistory<v1::ParameterServer::WithAsyncMethod_GetStatus<
                        v1::ParameterServer::WithRawMethod_Exchange<v1::ParameterServer::Service>>>>>>>>>>>>;

// What the sessions of a server work with, and outlives them.
struct SessionEnvironment {
  AsyncService* service = nullptr;
  grpc::ServerCompletionQueue* queue = nullptr;
  LiveCalls* calls = nullptr;
  Models* models = nullptr;
  Streams* sessions = nullptr;
  const SegmentServer* segments = nullptr;  // null: there is no shared memory
  ChunkPool* chunks = nullptr;              // for what is sent in another encoding than it has
};

// At any moment a session does one thing: it reads a message, waits for its model or for room in flight, or writes a
// message. Whatever completes that goes on with the next, on its own thread, so that no lock is needed. Only OnDone
// and Drain come from elsewhere.
class Session : public Stream, public std::enable_shared_from_this<Session> {
 public:
  // Waits for one stream on the queue; a new session waits for the next when it has come.
  static void Listen(const SessionEnvironment* environment);

  void Drain() override;

 private:
  explicit Session(const SessionEnvironment* environment);

  void OnStarted(bool ok);
  void OnDone(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  void Read();
  void Finish(const absl::Status& status);

  void BeginExchange(DecodedExchange message);
  // Finds the segment that the header names.
  absl::Status FindSegment();
  void BeginCommit(DecodedExchange first);
  void ReserveForCommit(DecodedExchange first);
  absl::Status NoRoom() const;
  void ReceiveCommit(const DecodedExchange& first);
  void Receive(const DecodedExchange& message);
  absl::Status Append(const DecodedExchange& message);
  void CommitReceived();
  void Exchange(std::optional<CommitBuffer> commit);
  // Until a pull, or an answer that is asked for again, may be given.
  void Wait();
  void Exchanged(ExchangeAnswer answer);
  void SendCenter(ExchangeAnswer answer);

  // Writes a reply without a center, and goes on reading: bytes of the commit that still come are dropped.
  void Reply(const ExchangeAnswer& answer);
  void ReplyStatus(const absl::Status& status);
  void WriteBlock(const v1::ReplyHeader* header);
  // Copies the next blocks to the segment and writes where they are.
  void WriteShared(const v1::ReplyHeader* header);

  // While something waits in `model` or for room in flight, OnDone cancels it there.
  void WaitingIn(std::shared_ptr<Model> model);

  // Constant after construction.
  const LiveCall live_;
  const SessionEnvironment& environment_;

  // Self-synchronized.
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_;
  std::atomic<bool> done_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> interruptible_{false};  // reads: nothing is lost if the stream ends now
  MethodEvent<Session> on_started_{&Session::OnStarted};
  MethodEvent<Session> on_done_{&Session::OnDone};
  MethodEvent<Session> on_read_{&Session::OnRead};
  MethodEvent<Session> on_written_{&Session::OnWritten};
  MethodEvent<Session> on_finished_{&Session::OnFinished};

  Mutex mutex_;
  std::shared_ptr<Model> waiting_in_ ABSL_GUARDED_BY(mutex_);

  // Of whoever goes on (see above).
  grpc::ByteBuffer in_;
  v1::ExchangeHeader header_;
  ExchangeCall call_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<Lease> lease_;
  std::shared_ptr<const Segment> segment_;  // that this exchange goes through, if it does
  Reservation reservation_;
  std::optional<CommitBuffer> commit_;  // being received
  uint64_t dropped_floats_ = 0;         // of a commit that was applied before
  bool dropping_ = false;
  std::shared_ptr<const HeldCenter> held_;
  std::shared_ptr<const Snapshot> center_;  // of it, being sent
  size_t next_block_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_SESSION_H_
