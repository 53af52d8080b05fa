// One worker's exchange stream.
#ifndef PARAMD_SERVER_SESSION_H_
#define PARAMD_SERVER_SESSION_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>
#include <variant>

#include "process/memory.h"
#include "proto/chunk_pool.h"
#include "proto/paramd.grpc.pb.h"
#include "proto/tensor_codec.h"
#include "server/access.h"
#include "server/budget.h"
#include "server/commit_buffer.h"
#include "server/event.h"
#include "server/model.h"
#include "server/models.h"
#include "server/streams.h"
#include "shm/segment_server.h"
#include "sync/mutex.h"

namespace paramd {

// The methods of the wire: all asynchronous, and raw: we read and write the messages.
using AsyncService = v1::ParameterServer::WithRawMethod_CreateModel<v1::ParameterServer::WithRawMethod_Checkpoint<
    v1::ParameterServer::WithRawMethod_ListCheckpoints<v1::ParameterServer::WithRawMethod_RestoreModel<
        v1::ParameterServer::WithRawMethod_AddPast<v1::ParameterServer::WithRawMethod_GetModel<
            v1::ParameterServer::WithRawMethod_ListModels<v1::ParameterServer::WithRawMethod_DeleteModel<
                v1::ParameterServer::WithRawMethod_ListAlgorithms<v1::ParameterServer::WithRawMethod_Join<
                    v1::ParameterServer::WithRawMethod_Heartbeat<v1::ParameterServer::WithRawMethod_Leave<
                        v1::ParameterServer::WithRawMethod_ReportHistory<v1::ParameterServer::WithRawMethod_GetHistory<
                            v1::ParameterServer::WithRawMethod_GetStatus<v1::ParameterServer::WithRawMethod_Exchange<
                                v1::ParameterServer::Service>>>>>>>>>>>>>>>>;

// What the sessions of a server work with, and outlives them.
struct SessionEnvironment {
  AsyncService* service = nullptr;
  grpc::ServerCompletionQueue* queue = nullptr;
  LiveCalls* calls = nullptr;
  Access* access = nullptr;
  Models* models = nullptr;
  Streams* sessions = nullptr;
  SegmentServer* segments = nullptr;  // null: there is no shared memory
  ChunkPool* chunks = nullptr;        // for what is sent in another encoding than it has
};

// A session is in one phase at a time, which says what it does and owns what that takes. Reading or writing, it is at
// gRPC; otherwise its model or the budget has it. Whatever completes that has the turn, and goes on with the next thing
// on its own thread, so that the phase needs no lock. Who ends an exchange from elsewhere takes the turn first.
//
// Of its members more than half are what gRPC needs: the call, and an event for each of its operations. It is long, as
// one place has to tell what follows what in an exchange, and what ends it.
class Session : public Stream, public ReservationOwner, public std::enable_shared_from_this<Session> {
 public:
  // Waits for one stream on the queue; a new session waits for the next when it has come.
  static void Listen(const SessionEnvironment* environment);

  void Drain() override;
  void Abandon() override;

  // The peer neither sends what is left of its commit nor reads its center.
  void OnStall() override;

 private:
  // Where an operation of gRPC is under way, which has the turn when it completes.
  enum class At { kNowhere, kReading, kWriting };

  // What an exchange is about, from its header until it is over.
  struct Exchange;

  struct Idle {};     // reads: the header of the next exchange, and what is left of a commit that was refused
  struct Receiving {  // reads
    Reservation room;
    MemoryPromise memory;  // for what is still to come
    CommitBuffer commit;
  };
  struct Dropping {   // reads the floats of a commit that was applied before
    uint64_t floats;  // that have come
  };
  struct Waiting {};                           // for the model, or for room
  struct Sending {                             // writes
    std::shared_ptr<const HeldCenter> center;  // null once nothing of it is needed any more
    size_t next_block = 0;
    size_t next_progress = 0;  // the block with which the peer has gone on
    size_t sent = 0;           // floats
  };
  struct Replying {};  // writes a reply without a center
  struct Ended {};
  using Phase = std::variant<Idle, Receiving, Dropping, Waiting, Sending, Replying, Ended>;

  explicit Session(const SessionEnvironment* environment);

  void OnStarted(bool ok);
  void OnDone(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  // The operation at gRPC has completed; false if the turn was taken meanwhile.
  bool TakeTurn(At from);
  void Read();
  void Write(const grpc::ByteBuffer& message, bool progress = true);
  void End(const absl::Status& status);
  // The worker of an exchange is gone.
  void OnGone(Exchange* exchange, const absl::Status& why);

  void Begin(const v1::ExchangeHeader& header, DecodedExchange first);
  absl::Status CheckInitialize(const Exchange& exchange) const;
  // Finds the segment of that number, for both directions of the exchange.
  absl::Status FindSegment(uint64_t number, Exchange* exchange) const;
  void ReserveToReceive(DecodedExchange first);
  absl::Status NoRoom() const;
  void StartReceiving(Reservation room, const DecodedExchange& first);
  void Receive(const DecodedExchange& message);
  absl::Status Append(const DecodedExchange& message, CommitBuffer* commit) const;
  void Received();
  void Exchanged(ExchangeAnswer answer);
  void Send(const ExchangeAnswer& answer);
  void WriteBlocks(const v1::ReplyHeader* header);

  // Writes a reply without a center, and goes on reading: bytes of the commit that still come are dropped.
  void Reply(const ExchangeAnswer& answer);
  void ReplyStatus(const absl::Status& status);

  // What calls the model that the present exchange is about, with a callback. Until that is called, OnDone cancels it.
  template <typename Call>
  void InModel(const Call& call);
  void LeaveModel();

  // Constant after construction.
  const LiveCall live_;
  const SessionEnvironment& environment_;

  // Self-synchronized.
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_;
  std::atomic<bool> done_{false};
  Reservation watch_;  // of no bytes: stalls when the peer makes no progress in an exchange
  MethodEvent<Session> on_started_{&Session::OnStarted};
  MethodEvent<Session> on_done_{&Session::OnDone};
  MethodEvent<Session> on_read_{&Session::OnRead};
  MethodEvent<Session> on_written_{&Session::OnWritten};
  MethodEvent<Session> on_finished_{&Session::OnFinished};

  Mutex mutex_;
  At at_ ABSL_GUARDED_BY(mutex_) = At::kNowhere;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Model> in_model_ ABSL_GUARDED_BY(mutex_);

  // Of whoever has the turn.
  Principal principal_;
  bool begun_ = false;  // there was a header
  grpc::ByteBuffer in_;
  std::shared_ptr<Exchange> exchange_;  // null: none is under way
  Phase phase_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_SESSION_H_
