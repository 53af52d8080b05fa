#include "server/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/encoding.h"
#include "proto/status.h"
#include "server/pollers.h"

namespace paramd {
namespace {

constexpr absl::Duration kMaxWait = absl::Hours(24);

// To apply so many takes as long as it takes to wake a thread several times over.
constexpr uint64_t kLongFloats = kBlockFloats;
// That are copied to a segment at a time: few enough for the worker's copy out of it to go on at the same time, many
// enough for the messages between them not to count.
constexpr size_t kSharedBlocks = 4;

size_t ChunkBytes(const DecodedExchange& message) {
  size_t bytes = 0;
  for (const std::string_view piece : message.data) bytes += piece.size();
  return bytes;
}

// A slice over a block's memory, which keeps the block until the transport is done with it.
grpc::Slice BlockSlice(const BlockRef& block) {
  const absl::Span<const float> floats = block.floats();
  return grpc::Slice(
      const_cast<float*>(floats.data()), floats.size() * sizeof(float),
      [](void* ref) { delete static_cast<BlockRef*>(ref); }, new BlockRef(block));
}

// FAILED_PRECONDITION if a float of the center would arrive as infinity.
absl::Status FitsEncoding(const Snapshot& center, v1::Encoding encoding) {
  for (size_t b = 0; b < center.blocks.size(); ++b) {
    const absl::Span<const float> floats = center.blocks[b].floats();
    const int64_t i = FirstOverflow(encoding, floats.data(), floats.size());
    if (i < 0) continue;
    const auto index = static_cast<size_t>(i);
    return absl::FailedPreconditionError(absl::StrCat(
        "the center can't be sent: ", DescribeOverflow(encoding, b * kBlockFloats + index, floats[index])));
  }
  return absl::OkStatus();
}

}  // namespace

Session::Session(const SessionEnvironment* environment)
    : live_(environment->calls), environment_(*environment), stream_(&context_) {}

void Session::Listen(const SessionEnvironment* environment) {
  const std::shared_ptr<Session> session(new Session(environment));
  session->context_.AsyncNotifyWhenDone(session->on_done_.Arm(session));
  environment->service->RequestExchange(&session->context_, &session->stream_, environment->queue, environment->queue,
                                        session->on_started_.Arm(session));
}

void Session::OnStarted(bool ok) {
  if (!ok) {
    // The server shuts down, and OnDone will not come: let go of the reference that waits for it.
    on_done_.Arm(nullptr);
    return;
  }
  Listen(&environment_);
  environment_.sessions->Add(shared_from_this());
  // OnDone may have come already, on another thread.
  if (done_) environment_.sessions->Remove(shared_from_this());
  Read();
}

void Session::OnDone(bool /*ok*/) {
  done_ = true;
  std::shared_ptr<Model> model;
  {
    MutexLock lock(&mutex_);
    model = waiting_in_;
  }
  if (model != nullptr) model->CancelWait(this);
  if (environment_.models->budget()->Cancel(this)) Finish(absl::CancelledError(""));
  environment_.sessions->Remove(shared_from_this());
}

void Session::Drain() {
  draining_ = true;
  if (interruptible_) context_.TryCancel();
}

void Session::WaitingIn(std::shared_ptr<Model> model) {
  MutexLock lock(&mutex_);
  waiting_in_.swap(model);
}

void Session::Read() {
  interruptible_ = true;
  if (draining_) context_.TryCancel();
  stream_.Read(&in_, on_read_.Arm(shared_from_this()));
}

void Session::Finish(const absl::Status& status) {
  if (!status.ok()) context_.AddTrailingMetadata(kAnsweredKey, "1");
  stream_.Finish(ToGrpcStatus(status), on_finished_.Arm(shared_from_this()));
}

void Session::OnFinished(bool /*ok*/) {}

void Session::OnRead(bool ok) {
  interruptible_ = false;
  if (!ok) {
    commit_.reset();
    reservation_.Release();
    return Finish(absl::OkStatus());
  }
  v1::ExchangeHeader header;
  DecodedExchange message;
  if (auto status = DecodeExchange(&in_, &header, &message); !status.ok()) return Finish(status);
  in_.Clear();
  if (message.has_header) {
    header_ = std::move(header);
    return BeginExchange(std::move(message));
  }
  // Without a commit under way, these are the rest of one that was refused.
  if (commit_.has_value() || dropping_) return Receive(message);
  Read();
}

void Session::BeginExchange(DecodedExchange message) {
  commit_.reset();
  segment_.reset();
  reservation_.Release();
  dropping_ = false;
  const v1::Participant& participant = header_.participant();
  auto model = environment_.models->Find(participant);
  if (header_.has_acknowledge()) {
    if (model.ok()) {
      (*model)->Acknowledge(CallerOf(participant), header_.acknowledge().sequence());
    }
    return Read();
  }
  if (!model.ok()) return ReplyStatus(model.status());
  if (header_.must_understand() != 0) {
    return ReplyStatus(absl::UnimplementedError(
        absl::StrCat("the exchange requires features (bits ", header_.must_understand(),
                     ") that this server does not know; is the client newer than the server?")));
  }
  model_ = *std::move(model);
  const absl::Duration wait = std::min(absl::Milliseconds(header_.wait_ms()), kMaxWait);
  call_ = {.caller = CallerOf(participant),
           .pull = header_.has_pull() || header_.commit().pull() || header_.await().pull(),
           .deadline = model_->Now() + wait,
           .tag = this,
           .cancelled = &done_};
  switch (header_.operation_case()) {
    case v1::ExchangeHeader::kInitialize:
      call_.floats = header_.initialize().floats();
      break;
    case v1::ExchangeHeader::kCommit:
      call_.sequence = header_.commit().sequence();
      call_.base_version = header_.commit().base_version();
      call_.floats = header_.commit().floats();
      break;
    case v1::ExchangeHeader::kAwait:
      call_.sequence = header_.await().sequence();
      break;
    default:
      break;
  }
  if (FloatBytes(header_.encoding()) == 0) {
    return ReplyStatus(absl::UnimplementedError(
        absl::StrCat("encoding ", header_.encoding(),
                     " is unknown to this server; it knows FLOAT32 (0), FLOAT16 (1) and BFLOAT16 (2). Is the client "
                     "newer than the server?")));
  }
  if (header_.segment() != 0) {
    if (auto status = FindSegment(); !status.ok()) return ReplyStatus(status);
  }
  switch (header_.operation_case()) {
    case v1::ExchangeHeader::kInitialize:
    case v1::ExchangeHeader::kCommit:
      return BeginCommit(std::move(message));
    case v1::ExchangeHeader::kPull:
    case v1::ExchangeHeader::kAwait:
      return Wait();
    default:
      return ReplyStatus(absl::InvalidArgumentError(
          "an exchange without an operation that this server knows: initialize, commit, pull, await or acknowledge"));
  }
}

absl::Status Session::FindSegment() {
  if (header_.has_initialize() || header_.encoding() != v1::FLOAT32) {
    return absl::InvalidArgumentError(
        "an initial center, and floats that are narrowed, do not go through shared memory; send them as data");
  }
  // Whoever knows this random number was given the segment.
  segment_ = environment_.segments != nullptr ? environment_.segments->Find(header_.segment()) : nullptr;
  if (segment_ == nullptr) {
    return absl::UnavailableError("this server does not know that shared memory (any more); ask it for some again");
  }
  const uint64_t floats = model_->checked_spec().floats;
  if (segment_->Floats(LayOutSegment(floats).center_begin, floats).data() == nullptr) {
    std::shared_ptr<const Segment> small = std::move(segment_);
    return absl::InvalidArgumentError(absl::StrCat("shared memory of ", small->bytes(), " bytes is too small for the ",
                                                   floats, " floats of model '", model_->name(), "'"));
  }
  return absl::OkStatus();
}

void Session::Exchange(std::optional<CommitBuffer> commit) {
  // Once the model answers, this session may already be at its next exchange, on another thread.
  const std::shared_ptr<Model> model = model_;
  WaitingIn(model);
  model->Exchange(call_, std::move(commit), std::move(reservation_),
                  [self = shared_from_this()](ExchangeAnswer answer) { self->Exchanged(std::move(answer)); });
}

void Session::Wait() {
  const std::shared_ptr<Model> model = model_;
  WaitingIn(model);
  Model::Done done = [self = shared_from_this()](ExchangeAnswer answer) { self->Exchanged(std::move(answer)); };
  call_.sequence == 0 ? model->BeginPull(call_, std::move(done)) : model->Await(call_, std::move(done));
}

void Session::BeginCommit(DecodedExchange first) {
  if (header_.has_initialize()) {
    if (call_.floats != model_->checked_spec().floats) {
      return ReplyStatus(absl::InvalidArgumentError(absl::StrCat(
          "the initial center of model '", model_->name(), "' has ", call_.floats, " floats where the model has ",
          model_->checked_spec().floats, "; compare the tensors with `paramctl show`")));
    }
    if (header_.encoding() != v1::FLOAT32) {
      return ReplyStatus(absl::InvalidArgumentError(
          absl::StrCat("the initial center of model '", model_->name(), "' comes as ", EncodingName(header_.encoding()),
                       ", but all workers begin with what it is exactly; send it as FLOAT32 (0)")));
    }
    lease_ = nullptr;
    return ReserveForCommit(std::move(first));
  }
  lease_ = model_->FindLease(call_.caller);
  const std::shared_ptr<Model> model = model_;
  WaitingIn(model);
  model->BeginCommit(call_, [self = shared_from_this(), first = std::move(first)](ExchangeAnswer answer) mutable {
    if (!answer.status.ok()) return self->ReplyStatus(answer.status);
    if (answer.committed) {
      self->dropping_ = true;
      self->dropped_floats_ = 0;
      return self->Receive(first);
    }
    self->ReserveForCommit(std::move(first));
  });
}

void Session::ReserveForCommit(DecodedExchange first) {
  const size_t float_bytes = FloatBytes(header_.encoding());
  const uint64_t bytes = header_.has_initialize() ? model_->RoomToInitialize(float_bytes)
                                                  : model_->RoomToReceive(float_bytes, segment_ != nullptr, call_.pull);
  if (bytes == 0) return ReceiveCommit(first);
  const auto receive = [self = shared_from_this()](Reservation reservation, const DecodedExchange& message) {
    self->reservation_ = std::move(reservation);
    self->ReceiveCommit(message);
  };
  Budget* const budget = environment_.models->budget();
  if (Reservation now = budget->TryReserve(bytes); !now.empty()) return receive(std::move(now), first);
  if (ChunkBytes(first) > kMaxHeaderChunkBytes) return ReplyStatus(NoRoom());
  budget->Reserve({.tag = this, .bytes = bytes, .deadline = call_.deadline},
                  [self = shared_from_this(), receive, first = std::move(first)](Reservation reservation) {
                    reservation.empty() ? self->ReplyStatus(self->NoRoom()) : receive(std::move(reservation), first);
                  });
  if (done_ && budget->Cancel(this)) Finish(absl::CancelledError(""));
}

absl::Status Session::NoRoom() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      environment_.models->budget()->used_bytes(BudgetKind::kInFlight), " bytes are in flight, and the cap is ",
      environment_.models->budget()->max_in_flight_bytes(),
      "; back off and try again, the header of a commit before its bytes (or raise --max_in_flight_bytes)"));
}

void Session::ReceiveCommit(const DecodedExchange& first) {
  commit_.emplace(call_.floats, header_.encoding());
  if (segment_ != nullptr) {
    commit_->set_still_whole(
        [segment = segment_, sequence = call_.sequence] { return segment->LoadCommitWord() == sequence; });
  }
  Receive(first);
}

absl::Status Session::Append(const DecodedExchange& message) {
  const bool shared = message.shared_floats != 0;
  if (shared != (segment_ != nullptr)) {
    return absl::InvalidArgumentError(
        "a commit goes through the shared memory that its header names and nothing else, or else as data");
  }
  if (!shared) return commit_->Append(message.offset, message.data, message.owner, message.owner_bytes);
  const absl::Span<const float> floats = segment_->Floats(message.shared_begin, message.shared_floats);
  if (floats.data() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there are no ", message.shared_floats, " floats from byte ",
                                                   message.shared_begin, " on in shared memory of ", segment_->bytes(),
                                                   " bytes, whose first page has none"));
  }
  // So nobody makes the daemon remember a place for every few floats.
  if (message.shared_floats != call_.floats) {
    return absl::InvalidArgumentError(absl::StrCat("a commit in shared memory is one chunk of all its ", call_.floats,
                                                   " floats, not of ", message.shared_floats));
  }
  return commit_->AppendUnstable(message.offset, floats, segment_);
}

void Session::Receive(const DecodedExchange& message) {
  if (lease_ != nullptr) lease_->Renew(model_->Now());
  if (message.has_chunk) {
    if (dropping_) {
      dropped_floats_ += ChunkBytes(message) / FloatBytes(header_.encoding()) + message.shared_floats;
    } else if (auto status = Append(message); !status.ok()) {
      model_->CountRejected(call_.caller, status);
      return ReplyStatus(status);
    }
  }
  const bool complete = dropping_ ? dropped_floats_ >= call_.floats : commit_->complete();
  complete ? CommitReceived() : Read();
}

void Session::CommitReceived() {
  dropping_ = false;
  if (header_.has_initialize()) {
    const std::shared_ptr<Model> model = model_;
    return model->Initialize(*std::exchange(commit_, std::nullopt), std::move(reservation_),
                             [self = shared_from_this()](const absl::Status& status) { self->ReplyStatus(status); });
  }
  Exchange(std::exchange(commit_, std::nullopt));
}

void Session::Exchanged(ExchangeAnswer answer) {
  WaitingIn(nullptr);
  const bool committed = call_.sequence == 0 || answer.committed;
  if (!answer.status.ok() || !call_.pull || !committed) return Reply(answer);
  if (answer.center != nullptr) return SendCenter(answer);
  environment_.models->budget()->Reserve(
      {.tag = this, .bytes = model_->bytes(), .deadline = call_.deadline},
      [self = shared_from_this(), answer](Reservation reservation) mutable {
        if (reservation.empty()) {
          answer.status = self->NoRoom();
          return self->Reply(answer);
        }
        const std::shared_ptr<Model> model = self->model_;
        model->Pull(self->call_, std::move(reservation), [self](const ExchangeAnswer& pulled) {
          pulled.status.ok() ? self->SendCenter(pulled) : self->Reply(pulled);
        });
      });
  if (done_ && environment_.models->budget()->Cancel(this)) Finish(absl::CancelledError(""));
}

void Session::SendCenter(ExchangeAnswer answer) {
  const Snapshot& center = *answer.center->snapshot;
  if (center.floats >= kLongFloats && header_.encoding() != v1::FLOAT32) Pollers::StepAside();
  if (auto status = FitsEncoding(center, header_.encoding()); !status.ok()) {
    answer.status = status;
    return Reply(answer);
  }
  held_ = answer.center;
  center_ = held_->snapshot;
  next_block_ = 0;
  v1::ReplyHeader header;
  header.set_committed(answer.committed);
  header.set_version(center_->version);
  header.set_staleness(answer.staleness);
  header.set_pull_floats(center_->floats);
  header.set_acknowledge(answer.acknowledge);
  answer.center = nullptr;
  segment_ != nullptr ? WriteShared(&header) : WriteBlock(&header);
}

void Session::WriteShared(const v1::ReplyHeader* header) {
  const size_t begin = next_block_ * kBlockFloats;
  const size_t end = std::min(begin + kSharedBlocks * kBlockFloats, center_->floats);
  const SegmentLayout layout = LayOutSegment(center_->floats);
  float* const to = segment_->Floats(layout.center_begin, center_->floats).data();
  for (size_t at = begin; at < end; at += kBlockFloats) {
    const absl::Span<const float> block = center_->blocks[next_block_++].floats();
    std::memcpy(to + at, block.data(), block.size() * sizeof(float));
  }
  const grpc::ByteBuffer out =
      EncodeSharedExchange(header, begin, layout.center_begin + begin * sizeof(float), end - begin);
  if (end == center_->floats) {
    center_.reset();
    held_.reset();
  }
  stream_.Write(out, on_written_.Arm(shared_from_this()));
}

void Session::WriteBlock(const v1::ReplyHeader* header) {
  const BlockRef& block = center_->blocks[next_block_];
  const grpc::Slice slice = header_.encoding() == v1::FLOAT32
                                ? BlockSlice(block)
                                : environment_.chunks->Encode(header_.encoding(), block.floats());
  const grpc::ByteBuffer out = EncodeExchange(header, next_block_ * kBlockFloats, &slice);
  ++next_block_;
  stream_.Write(out, on_written_.Arm(shared_from_this()));
}

void Session::OnWritten(bool ok) {
  if (ok && center_ != nullptr && next_block_ < center_->blocks.size()) {
    return segment_ != nullptr ? WriteShared(nullptr) : WriteBlock(nullptr);
  }
  center_.reset();
  held_.reset();
  segment_.reset();
  if (!ok) return Finish(absl::OkStatus());
  Read();
}

void Session::ReplyStatus(const absl::Status& status) { Reply({.status = status}); }

void Session::Reply(const ExchangeAnswer& answer) {
  commit_.reset();
  segment_.reset();
  reservation_.Release();
  v1::ReplyHeader header;
  header.set_code(static_cast<int>(answer.status.code()));
  header.set_message(std::string(answer.status.message()));
  header.set_committed(answer.committed);
  header.set_version(answer.version);
  header.set_staleness(answer.staleness);
  stream_.Write(EncodeExchange(&header, 0, nullptr), on_written_.Arm(shared_from_this()));
}

}  // namespace paramd
