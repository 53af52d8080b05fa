#include "client/transport.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/shared_memory.h"
#include "proto/encoding.h"

namespace paramd {
namespace {

constexpr char kExchangeMethod[] = "/paramd.v1.ParameterServer/Exchange";
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
// What an answer is given to travel.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(500);

// What the operations of a cancelled stream usually take to end is far less.
constexpr absl::Duration kCloseTimeout = absl::Milliseconds(200);

absl::Status Cancelled() { return absl::CancelledError("cancelled by this process"); }

// gRPC's clock can't hold absl::InfiniteFuture().
absl::Time Finite(absl::Time deadline) { return std::min(deadline, absl::Now() + absl::Hours(24 * 365)); }

}  // namespace

bool IsTransient(const absl::Status& status) {
  // CANCELLED by the server is a stream that ended with its process.
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

void Cancellation::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.SignalAll();
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

void Cancellation::Reset() {
  MutexLock lock(&mutex_);
  cancelled_ = false;
}

void Cancellation::Add(grpc::ClientContext* call) {
  MutexLock lock(&mutex_);
  calls_.insert(call);
  if (cancelled_) call->TryCancel();
}

void Cancellation::Remove(grpc::ClientContext* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
}

bool Cancellation::cancelled() const {
  MutexLock lock(&mutex_);
  return cancelled_;
}

bool Cancellation::WaitFor(absl::Duration duration) {
  const absl::Time deadline = absl::Now() + duration;
  MutexLock lock(&mutex_);
  while (!cancelled_ && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  return cancelled_;
}

Retry::Retry(absl::Time deadline, absl::Duration patience, Cancellation* cancellation)
    : deadline_(deadline), patience_(patience), cancellation_(cancellation) {}

void Retry::SignOfLife() {
  last_life_ = absl::Now();
  reason_ = absl::OkStatus();
}

absl::Time Retry::attempt_deadline() const { return Finite(std::min(deadline_, last_life_ + patience_)); }

absl::Status Retry::Next(const absl::Status& error) {
  if (cancellation_->cancelled()) return Cancelled();
  if (!IsTransient(error)) return error;
  // An attempt that the deadline cut off knows less than the one before it.
  if (reason_.ok() || !absl::IsDeadlineExceeded(error)) reason_ = error;
  const absl::Time now = absl::Now();
  if (now >= deadline_) return absl::DeadlineExceededError(reason_.message());
  if (now >= last_life_ + patience_) return absl::UnavailableError(reason_.message());
  // Full jitter spreads workers that failed together.
  const absl::Duration wait = std::min(backoff_ * absl::Uniform(random_, 0.5, 1.0), attempt_deadline() - now);
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  return cancellation_->WaitFor(wait) ? Cancelled() : absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------------
// Connection

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(const std::string& server) {
  const size_t colon = server.rfind(':');
  const bool good = absl::StartsWith(server, "unix:")
                        ? server.size() > 5
                        : colon != std::string::npos && colon > 0 && colon + 1 < server.size();
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat("server address '", server, "': use HOST:PORT or unix:PATH"));
  }
  return std::shared_ptr<Connection>(new Connection(server));
}

Connection::Connection(std::string server) : server_(std::move(server)), channel_(OpenChannel()) {}

std::shared_ptr<grpc::Channel> Connection::OpenChannel() const {
  grpc::ChannelArguments arguments;
  // A connection of its own for every object: one worker's bytes don't queue behind another's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries are ours; gRPC's would keep copies of what is sent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 20);
  // Histories of many workers are long, and the server is one that the user chose.
  arguments.SetMaxReceiveMessageSize(1 << 30);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(server_, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status Connection::Explain(const absl::Status& status) const {
  if (absl::IsUnavailable(status) && !absl::StrContains(status.message(), "shutting down")) {
    return absl::UnavailableError(absl::StrCat("can't reach paramd at ", server_, " (", status.message(),
                                               "); is the daemon running, and is the address right?"));
  }
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat("paramd at ", server_, " did not answer in time (",
                                                    status.message(),
                                                    "); is it overloaded, stopped, or behind a "
                                                    "broken link?"));
  }
  return status;
}

// ---------------------------------------------------------------------------------------------------------------------
// ExchangeStream

namespace {

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
  Widen(encoding, message.data, center.data() + *received);
  *received += bytes / width;
  return absl::OkStatus();
}

}  // namespace

// What gRPC writes to while operations are under way.
struct ExchangeStream::Call {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer in;
  grpc::Status status;

  // Whether all operations have ended by `deadline`.
  bool Drain(absl::Time deadline) {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue.AsyncNext(&tag, &ok, absl::ToChronoTime(Finite(deadline)));
      if (next != grpc::CompletionQueue::GOT_EVENT) return next == grpc::CompletionQueue::SHUTDOWN;
    }
  }
};

ExchangeStream::ExchangeStream(std::shared_ptr<Connection> connection, Cancellation* cancellation)
    : connection_(std::move(connection)), cancellation_(cancellation), chunks_(ChunkPool::Create()) {}

ExchangeStream::~ExchangeStream() { Close().IgnoreError(); }

absl::Status ExchangeStream::Start(absl::Time deadline) {
  if (call_ != nullptr) return absl::OkStatus();
  if (channel_ == nullptr) channel_ = connection_->OpenChannel();
  call_ = std::make_unique<Call>();
  grpc::GenericStub stub(channel_);
  call_->stream = stub.PrepareCall(&call_->context, kExchangeMethod, &call_->queue);
  cancellation_->Add(&call_->context);
  call_->stream->StartCall(Tag(kStart));
  auto started = Step(deadline);
  return started.ok() && !*started ? absl::UnavailableError("the stream could not be opened") : started.status();
}

absl::StatusOr<bool> ExchangeStream::Step(absl::Time deadline) {
  void* tag = nullptr;
  bool ok = false;
  const auto next = call_->queue.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline));
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

absl::Status ExchangeStream::Close() {
  if (call_ == nullptr) return absl::OkStatus();
  std::unique_ptr<Call> call = std::move(call_);
  writing_ = reading_ = arrived_ = false;
  cancellation_->Remove(&call->context);
  call->context.TryCancel();
  call->stream->Finish(&call->status, Tag(kFinish));
  call->queue.Shutdown();
  if (call->Drain(absl::Now() + kCloseTimeout)) return FromGrpcStatus(call->status);
  // A write stays under way for as long as the system takes no more bytes from it, cancelled or not.
  channel_.reset();
  std::thread([stuck = std::move(call)] { stuck->Drain(absl::InfiniteFuture()); }).detach();
  return absl::OkStatus();
}

void ExchangeStream::Disconnect() {
  Close().IgnoreError();
  channel_.reset();
}

absl::StatusOr<v1::ReplyHeader> ExchangeStream::Run(const v1::ExchangeHeader& header, absl::Span<const float> commit,
                                                    absl::Span<float> center, const SharedMemory* shared,
                                                    Retry* retry) {
  const v1::Encoding encoding = header.encoding();
  const bool through_segment = header.segment() != 0;
  bool header_sent = false;
  size_t sent = 0;
  v1::ReplyHeader reply;
  bool replied = false;
  size_t received = 0;

  const auto send_next = [&] {
    if (through_segment && !commit.empty()) {
      Write(shared->Put(header, commit));
      header_sent = true;
      sent = commit.size();
      return;
    }
    // The header of all but a small commit goes alone: the server reads on when it has room.
    const bool header_alone = !header_sent && commit.size() * FloatBytes(encoding) > kMaxHeaderChunkBytes;
    if (commit.empty() || header_alone) {
      Write(EncodeExchange(&header, 0, nullptr));
    } else {
      const size_t n = std::min(kChunkFloats, commit.size() - sent);
      // A copy: a connection that is stuck must not hold on to the caller's memory.
      const grpc::Slice slice = chunks_->Encode(encoding, commit.subspan(sent, n));
      Write(EncodeExchange(header_sent ? nullptr : &header, sent, &slice));
      sent += n;
    }
    header_sent = true;
  };
  const auto take_message = [&]() -> absl::Status {
    arrived_ = false;
    DecodedExchange message;
    if (auto status = DecodeExchange(&call_->in, &reply, &message); !status.ok()) return status;
    call_->in.Clear();
    if (message.has_header) {
      replied = true;
      if (reply.pull_floats() != 0 && reply.pull_floats() != center.size()) {
        return absl::InternalError(absl::StrCat("the server sends a center of ", reply.pull_floats(), " floats where ",
                                                center.size(), " were expected"));
      }
    }
    if (!message.has_chunk) return absl::OkStatus();
    return through_segment ? shared->Take(message, center, &received) : CopyChunk(message, encoding, center, &received);
  };
  const auto run = [&]() -> absl::Status {
    if (auto status = Start(retry->attempt_deadline()); !status.ok()) return status;
    while (true) {
      const bool sending = !replied && (!header_sent || sent < commit.size());
      if (sending && !writing_) send_next();
      const bool complete = replied && received == reply.pull_floats();
      if (complete && !writing_) return absl::OkStatus();
      if (!complete && !reading_) Read();
      auto ok = Step(retry->attempt_deadline());
      if (!ok.ok()) return ok.status();
      if (!*ok) return absl::UnavailableError("the exchange stream broke");
      retry->SignOfLife();
      if (arrived_) {
        if (auto status = take_message(); !status.ok()) return status;
      }
    }
  };

  absl::Status status = run();
  if (status.ok()) return reply;
  const absl::Status why = Close();
  // The transport knows best why its stream broke.
  if (absl::IsUnavailable(status) && !why.ok()) status = why;
  // A silent connection may be dead: the next attempt makes another one.
  if (absl::IsDeadlineExceeded(status)) channel_.reset();
  return status;
}

void ExchangeStream::Acknowledge(const v1::ExchangeHeader& header) {
  if (call_ != nullptr && !writing_) Write(EncodeExchange(&header, 0, nullptr));
}

// ---------------------------------------------------------------------------------------------------------------------
// ExchangeClient

ExchangeClient::ExchangeClient(std::shared_ptr<Connection> connection, absl::Duration rpc_timeout,
                               Cancellation* cancellation, std::function<void(absl::string_view)> on_event)
    : connection_(std::move(connection)),
      rpc_timeout_(rpc_timeout),
      cancellation_(cancellation),
      on_event_(std::move(on_event)),
      stream_(connection_, cancellation) {}

absl::StatusOr<v1::ReplyHeader> ExchangeClient::Exchange(v1::ExchangeHeader header, absl::Span<const float> commit,
                                                         absl::Span<float> center, absl::Duration timeout) {
  auto reply = Attempts(std::move(header), commit, center, timeout);
  if (!reply.ok() && shared_ != nullptr) shared_->TakeBack();
  return reply;
}

absl::StatusOr<v1::ReplyHeader> ExchangeClient::Attempts(v1::ExchangeHeader header, absl::Span<const float> commit,
                                                         absl::Span<float> center, absl::Duration timeout) {
  Retry retry(absl::Now() + timeout, rpc_timeout_, cancellation_);
  const v1::Encoding encoding = header.encoding();
  const uint64_t sequence = header.commit().sequence();
  while (true) {
    if (cancellation_->cancelled()) return Cancelled();
    // The server's "still waiting", which says for whom, is to come before the client gives up or calls it silent.
    const absl::Duration left = retry.deadline() - absl::Now();
    const absl::Duration wait = std::min(left - std::min(left / 2, kAnswerMargin), rpc_timeout_ / 2);
    header.set_wait_ms(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(wait))));
    // The initial center has no sequence, by which a commit in shared memory is known to be whole.
    if (shared_ != nullptr && !header.has_initialize()) {
      if (auto status = shared_->Begin(&header, &retry); !status.ok()) return status;
      header.set_encoding(header.segment() != 0 ? v1::FLOAT32 : encoding);
    }
    if (const int64_t i = FirstOverflow(header.encoding(), commit.data(), commit.size()); i >= 0) {
      const auto index = static_cast<size_t>(i);
      return absl::InvalidArgumentError(
          absl::StrCat("the commit was not sent: ", DescribeOverflow(header.encoding(), index, commit[index])));
    }
    auto reply = stream_.Run(header, commit, center, shared_, &retry);
    // Nor is it the same server, maybe.
    if (shared_ != nullptr && (!reply.ok() || reply->code() == static_cast<int>(absl::StatusCode::kUnavailable))) {
      shared_->Distrust();
    }
    absl::Status error;
    if (!reply.ok()) {
      error = connection_->Explain(reply.status());
      if (on_event_ != nullptr && IsTransient(error)) on_event_(absl::StrCat("exchange: ", error.message()));
    } else {
      retry.SignOfLife();
      if (reply->code() == 0) {
        if (reply->acknowledge()) {
          v1::ExchangeHeader acknowledge;
          *acknowledge.mutable_participant() = header.participant();
          acknowledge.mutable_acknowledge()->set_sequence(sequence);
          stream_.Acknowledge(acknowledge);
        }
        return reply;
      }
      error = FromWireStatus(reply->code(), reply->message());
      // The commit has been applied: only its answer is still to come.
      if (reply->committed()) {
        const bool pull = header.commit().pull() || header.await().pull();
        header.mutable_await()->set_sequence(sequence);
        header.mutable_await()->set_pull(pull);
        commit = {};
      }
      if (absl::IsDeadlineExceeded(error)) {
        if (retry.deadline() - absl::Now() < kAnswerMargin) return error;
        continue;  // Others are being waited for.
      }
    }
    if (auto next = retry.Next(error); !next.ok()) return next;
  }
}

}  // namespace paramd
