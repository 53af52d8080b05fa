#include "client/exchange_stream.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/shared_memory.h"
#include "proto/encoding.h"
#include "proto/status.h"
#include "proto/stream_copy.h"
#include "proto/tensor_codec.h"

namespace paramd {
namespace {

constexpr char kExchangeMethod[] = "/paramd.v1.ParameterServer/Exchange";

// The server answers at the deadline, "still waiting for X" at the latest; so much later that answer has arrived.
constexpr absl::Duration kAnswerGrace = absl::Milliseconds(250);

// So many floats of a commit may be on their way without the server's having taken any: what was sent beyond is a sign
// of life.
constexpr size_t kUntakenFloats = 4 * kChunkFloats;

// What the operations of a stream that has ended usually take to end is far less.
constexpr absl::Duration kCloseTimeout = absl::Milliseconds(200);

// Tags of the stream's operations.
enum Operation : intptr_t { kStart = 1, kWrite, kRead, kFinish };
void* Tag(Operation operation) { return reinterpret_cast<void*>(operation); }

absl::Status CopyChunk(const DecodedExchange& message, v1::Encoding encoding, absl::Span<float> center,
                       size_t* received) {
  size_t bytes = 0;
  for (const std::string_view piece : message.data) bytes += piece.size();
  const size_t width = FloatBytes(encoding);
  if (message.offset != *received || bytes % width != 0 || bytes / width > center.size() - *received) {
    return absl::InternalError(absl::StrCat("the server sent a chunk of ", bytes, " bytes at float ", message.offset,
                                            " of a center of ", center.size(), " floats, where float ", *received,
                                            " was due"));
  }
  Widen(encoding, message.data, center.data() + *received, center.size() >= kLargeFloats);
  *received += bytes / width;
  return absl::OkStatus();
}

}  // namespace

// What gRPC writes to while operations are under way.
struct ExchangeStream::Call {
  grpc::ClientContext context;
  uint64_t credentials = 0;  // that it goes with
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer in;
  grpc::Status status;
  std::atomic<bool> interrupted{false};
  std::optional<Cancellation::Interrupt> interrupt;

  // Whether all operations have ended by `deadline`.
  bool Drain(gpr_timespec deadline) {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue.AsyncNext(&tag, &ok, deadline);
      if (next != grpc::CompletionQueue::GOT_EVENT) return next == grpc::CompletionQueue::SHUTDOWN;
    }
  }
};

// The two halves of one attempt. Thread-compatible.
class ExchangeStream::Transfer {
 public:
  Transfer(const v1::ExchangeHeader& header, absl::Span<const float> commit, absl::Span<float> center,
           const SharedMemory* shared)
      : header_(header), commit_(commit), center_(center), shared_(header.segment() != 0 ? shared : nullptr) {}

  bool sent() const { return header_sent_ && sent_ == commit_.size(); }
  // What was not sent by then is of no use.
  bool sending() const { return !replied_ && !sent(); }
  // For the server: for its answer, or for room that it has for the rest.
  bool waiting() const { return header_sent_ && !replied_; }
  bool complete() const { return replied_ && received_ == reply_.pull_floats(); }
  // 0 if they do not go through the stream.
  size_t sent_floats() const { return shared_ != nullptr ? 0 : sent_; }
  v1::ReplyHeader& reply() { return reply_; }

  grpc::ByteBuffer NextMessage(ChunkPool* chunks);
  // Makes what NextMessage will return, while the system still takes the one before.
  void Prepare(ChunkPool* chunks);
  absl::Status Take(grpc::ByteBuffer* in);

 private:
  const v1::ExchangeHeader& header_;
  const absl::Span<const float> commit_;
  const absl::Span<float> center_;
  const SharedMemory* const shared_;  // null: the floats are in the messages
  bool header_sent_ = false;
  size_t sent_ = 0;
  std::optional<grpc::Slice> ahead_;  // the chunk that follows
  v1::ReplyHeader reply_;
  bool replied_ = false;
  size_t received_ = 0;
};

grpc::ByteBuffer ExchangeStream::Transfer::NextMessage(ChunkPool* chunks) {
  const v1::ExchangeHeader* const header = std::exchange(header_sent_, true) ? nullptr : &header_;
  if (commit_.empty()) return EncodeExchange(header, 0, nullptr);
  if (shared_ != nullptr) {
    sent_ = commit_.size();
    return shared_->Put(header_, commit_);
  }
  // The header of all but a small commit goes alone: the server reads on when it has room.
  const v1::Encoding encoding = header_.encoding();
  if (header != nullptr && commit_.size() * FloatBytes(encoding) > kMaxHeaderChunkBytes) {
    return EncodeExchange(header, 0, nullptr);
  }
  const size_t begin = sent_;
  const size_t n = std::min(kChunkFloats, commit_.size() - begin);
  if (!ahead_.has_value()) Prepare(chunks);
  const grpc::Slice slice = *std::exchange(ahead_, std::nullopt);
  sent_ += n;
  return EncodeExchange(header, begin, &slice);
}

void ExchangeStream::Transfer::Prepare(ChunkPool* chunks) {
  if (shared_ != nullptr || ahead_.has_value() || !sending()) return;
  // A copy: a connection that is stuck must not hold on to the caller's memory.
  ahead_ = chunks->Encode(header_.encoding(), commit_.subspan(sent_, std::min(kChunkFloats, commit_.size() - sent_)));
}

absl::Status ExchangeStream::Transfer::Take(grpc::ByteBuffer* in) {
  DecodedExchange message;
  if (auto status = DecodeExchange(in, &reply_, &message); !status.ok()) return status;
  in->Clear();
  if (message.has_header) {
    replied_ = true;
    if (reply_.pull_floats() != 0 && reply_.pull_floats() != center_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the model's center has ", reply_.pull_floats(),
                                                     " floats, but there is room for ", center_.size(),
                                                     "; compare the tensors with the model's"));
    }
  }
  if (!message.has_chunk) return absl::OkStatus();
  return shared_ != nullptr ? shared_->Take(message, center_, &received_)
                            : CopyChunk(message, header_.encoding(), center_, &received_);
}

ExchangeStream::ExchangeStream(std::shared_ptr<Connection> connection, Cancellation* cancellation)
    : connection_(std::move(connection)), cancellation_(cancellation), chunks_(ChunkPool::Create()) {}

ExchangeStream::~ExchangeStream() { Close(/*broken=*/false).IgnoreError(); }

void ExchangeStream::OpenChannel() {
  const uint64_t generation = connection_->generation();
  if (channel_ != nullptr && channel_generation_ == generation) return;
  channel_generation_ = generation;
  channel_ = connection_->OpenChannel();
}

absl::Status ExchangeStream::Start(absl::Time deadline) {
  if (call_ != nullptr && !call_->interrupted) return absl::OkStatus();
  Close(/*broken=*/false).IgnoreError();
  OpenChannel();
  call_ = std::make_unique<Call>();
  call_->credentials = connection_->Authorize(&call_->context);
  grpc::GenericStub stub(channel_);
  call_->stream = stub.PrepareCall(&call_->context, kExchangeMethod, &call_->queue);
  call_->interrupt.emplace(cancellation_, [call = call_.get()] {
    call->interrupted = true;
    call->context.TryCancel();
  });
  call_->stream->StartCall(Tag(kStart));
  auto started = Step(deadline);
  return started.ok() && !*started ? absl::UnavailableError("the stream could not be opened") : started.status();
}

absl::StatusOr<bool> ExchangeStream::Step(absl::Time deadline) {
  void* tag = nullptr;
  bool ok = false;
  const auto next = call_->queue.AsyncNext(&tag, &ok, connection_->Deadline(deadline));
  if (next != grpc::CompletionQueue::GOT_EVENT) return absl::DeadlineExceededError("no answer in time");
  if (tag == Tag(kWrite)) writing_ = false;
  if (tag == Tag(kRead)) {
    reading_ = false;
    arrived_ = ok;
  }
  return ok;
}

void ExchangeStream::Write(const grpc::ByteBuffer& message) {
  writing_ = true;
  call_->stream->Write(message, Tag(kWrite));
}

void ExchangeStream::Read() {
  reading_ = true;
  call_->stream->Read(&call_->in, Tag(kRead));
}

absl::Status ExchangeStream::Close(bool broken) {
  if (call_ == nullptr) return absl::OkStatus();
  std::unique_ptr<Call> call = std::move(call_);
  writing_ = reading_ = arrived_ = false;
  call->interrupt.reset();
  // To cancel it now would replace the reason.
  if (!broken) call->context.TryCancel();
  call->stream->Finish(&call->status, Tag(kFinish));
  call->queue.Shutdown();
  const Clock* const clock = connection_->clock();
  bool ended = call->Drain(connection_->Deadline(clock->Now() + kCloseTimeout));
  if (!ended && broken) {
    call->context.TryCancel();
    ended = call->Drain(connection_->Deadline(clock->Now() + kCloseTimeout));
  }
  if (ended) return connection_->Explain(FromGrpcStatus(call->status), call->credentials, &call->context);
  // A write stays under way for as long as the system takes no more bytes from it, cancelled or not.
  channel_.reset();
  std::thread([stuck = std::move(call)] { stuck->Drain(gpr_inf_future(GPR_CLOCK_MONOTONIC)); }).detach();
  return absl::OkStatus();
}

void ExchangeStream::Disconnect() {
  Close(/*broken=*/false).IgnoreError();
  channel_.reset();
}

absl::StatusOr<v1::ReplyHeader> ExchangeStream::Run(const v1::ExchangeHeader& header, absl::Span<const float> commit,
                                                    absl::Span<float> center, const SharedMemory* shared, Retry* retry,
                                                    bool* commit_sent) {
  Transfer transfer(header, commit, center, shared);
  bool broken = false;
  const auto run = [&]() -> absl::Status {
    if (auto status = Start(retry->attempt_deadline()); !status.ok()) {
      broken = absl::IsUnavailable(status);
      return status;
    }
    while (true) {
      if (transfer.sending() && !writing_) {
        Write(transfer.NextMessage(chunks_.get()));
        *commit_sent = *commit_sent || (!commit.empty() && transfer.sent());
        transfer.Prepare(chunks_.get());
      }
      if (transfer.complete() && !writing_) return absl::OkStatus();
      if (!transfer.complete() && !reading_) Read();
      auto ok = Step(retry->attempt_deadline() + (transfer.waiting() ? kAnswerGrace : absl::ZeroDuration()));
      if (!ok.ok()) return ok.status();
      if (!*ok) {
        broken = true;
        return absl::UnavailableError("the exchange stream broke");
      }
      if (arrived_ || (!writing_ && transfer.sent_floats() > kUntakenFloats)) retry->SignOfLife();
      if (arrived_) {
        arrived_ = false;
        if (auto status = transfer.Take(&call_->in); !status.ok()) return status;
      }
    }
  };

  absl::Status status = run();
  if (status.ok()) return std::move(transfer.reply());
  const absl::Status why = Close(broken);
  // The transport, or the server, knows best why its stream broke.
  if (broken && !why.ok()) return why;
  // A silent connection may be dead: the next attempt makes another one.
  if (absl::IsDeadlineExceeded(status)) channel_.reset();
  return connection_->Explain(status, /*used=*/0);
}

void ExchangeStream::Acknowledge(const v1::ExchangeHeader& header) {
  if (call_ != nullptr && !writing_) Write(EncodeExchange(&header, 0, nullptr));
}

absl::Status ExchangeStream::Pause(absl::Time until) {
  OpenChannel();
  return connection_->Pause(channel_.get(), until, cancellation_);
}

}  // namespace paramd
