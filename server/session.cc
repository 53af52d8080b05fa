#include "server/session.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/memory.h"
#include "proto/encoding.h"
#include "proto/status.h"
#include "server/commit_check.h"
#include "server/pollers.h"

namespace paramd {
namespace {

// Whoever would wait longer waits without end.
constexpr uint64_t kMaxWaitMs = uint64_t{24} * 60 * 60 * 1000;

// To apply so many takes as long as it takes to wake a thread several times over.
constexpr uint64_t kLongFloats = kBlockFloats;
// That are copied to a segment at a time: few enough for the worker's copy out of it to go on at the same time, many
// enough for the messages between them not to count.
constexpr size_t kSharedBlocks = 4;

// Of a message that waits with its header.
constexpr size_t kMaxWaitingBytes = kMaxHeaderChunkBytes + (size_t{4} << 10);

// A peer makes progress with so many bytes, or with all that is left: less in a stall timeout is none. And with such a
// part of the whole, so that nobody holds room for longer than as many timeouts, however much that is.
constexpr uint64_t kProgressBytes = uint64_t{1} << 20;
constexpr uint64_t kProgressParts = 32;

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

struct Session::Exchange : public ExchangeOwner {
  // Whether the first message has all floats of the commit, so that nothing more is read.
  bool ComesWhole(const DecodedExchange& first) const {
    return first.shared_floats != 0 || ChunkBytes(first) >= call.floats * FloatBytes(encoding);
  }

  uint64_t ProgressBytes() const {
    return std::max<uint64_t>(kProgressBytes, call.floats / kProgressParts * FloatBytes(encoding));
  }

  void OnGone(const absl::Status& why) override {
    if (const auto owner = session.lock(); owner != nullptr) owner->OnGone(this, why);
  }

  std::weak_ptr<Session> session;
  std::shared_ptr<Model> model;
  ExchangeCall call;
  bool initialize = false;
  FirstPoint first_point;  // of an initialization
  v1::Encoding encoding = v1::FLOAT32;
  std::shared_ptr<const Segment> segment;  // that the floats go through; null: through messages
  std::shared_ptr<Lease> lease;            // renewed as they go; may be null
  uint64_t progress_bytes = 0;             // that came since the last progress
  absl::Status gone;                       // guarded by the session's lock
};

Session::Session(const SessionEnvironment* environment)
    : live_(environment->calls), environment_(*environment), stream_(&context_) {}

void Session::Listen(const SessionEnvironment* environment) {
  const std::shared_ptr<Session> session(new Session(environment));
  session->context_.AsyncNotifyWhenDone(session->on_done_.Arm(session));
  environment->service->RequestExchange(&session->context_, &session->stream_, environment->queue, environment->queue,
                                        session->on_started_.Arm(session));
}

// ---------------------------------------------------------------------------------------------------------------------
// The stream

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
  watch_ = environment_.models->budget()->Watch(weak_from_this());
  const MethodRule* const rule = FindRule("/paramd.v1.ParameterServer/Exchange");
  if (auto status = environment_.access->Admit(context_, rule, &principal_); !status.ok()) {
    environment_.access->Tell(context_, rule, principal_, /*model=*/"", /*worker=*/"", status);
    return End(status);
  }
  Read();
}

void Session::OnDone(bool /*ok*/) {
  done_ = true;
  std::shared_ptr<Model> model;
  {
    MutexLock lock(&mutex_);
    model = in_model_;
  }
  if (model != nullptr) model->CancelWait(this);
  if (environment_.models->budget()->Cancel(this)) End(absl::CancelledError(""));
  environment_.sessions->Remove(shared_from_this());
}

void Session::Drain() {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    // What an exchange under way still sends is waited for.
    if (at_ != At::kReading || exchange_ != nullptr) return;
    at_ = At::kNowhere;
  }
  End(ShuttingDown());
}

void Session::Abandon() {
  bool reads = false;
  {
    MutexLock lock(&mutex_);
    reads = at_ == At::kReading;
    if (reads) at_ = At::kNowhere;
  }
  // What can't be written ends as its write fails.
  reads
      ? End(absl::UnavailableError("the server has shut down before this exchange was over; try again when it is back"))
      : context_.TryCancel();
}

void Session::OnStall() {
  bool reads = false;
  {
    MutexLock lock(&mutex_);
    if (at_ == At::kNowhere || !watch_.Stalled()) return;
    reads = at_ == At::kReading;
    if (reads) at_ = At::kNowhere;
  }
  // What can't be written ends as its write fails.
  if (!reads) return context_.TryCancel();
  const absl::Status status = absl::DeadlineExceededError(
      absl::StrCat("less than ", exchange_->ProgressBytes() >> 20, " MiB of the commit came in ",
                   absl::FormatDuration(environment_.models->budget()->stall_timeout()),
                   " (--stall_timeout), while it held room that others may need, so it was given up; send it again"));
  if (!exchange_->initialize) exchange_->model->CountRejected(exchange_->call.caller, status);
  End(status);
}

void Session::OnGone(Exchange* exchange, const absl::Status& why) {
  bool reads = false;
  {
    MutexLock lock(&mutex_);
    exchange->gone = why;
    if (at_ == At::kNowhere || exchange_.get() != exchange) return;
    reads = at_ == At::kReading;
    if (reads) at_ = At::kNowhere;
  }
  reads ? End(why) : context_.TryCancel();
}

bool Session::TakeTurn(At from) {
  MutexLock lock(&mutex_);
  if (at_ != from) return false;
  at_ = At::kNowhere;
  return true;
}

void Session::Read() {
  // Between exchanges a peer may take its time.
  if (exchange_ == nullptr) watch_.Pause();
  absl::Status gone;
  {
    MutexLock lock(&mutex_);
    if (exchange_ != nullptr) gone = exchange_->gone;
    if (gone.ok() && draining_ && exchange_ == nullptr) gone = ShuttingDown();
    if (gone.ok()) at_ = At::kReading;
  }
  if (!gone.ok()) return End(gone);
  stream_.Read(&in_, on_read_.Arm(shared_from_this()));
}

void Session::Write(const grpc::ByteBuffer& message, bool progress) {
  if (progress) watch_.Progress();
  absl::Status gone;
  {
    MutexLock lock(&mutex_);
    if (exchange_ != nullptr) gone = exchange_->gone;
    if (gone.ok()) at_ = At::kWriting;
  }
  if (!gone.ok()) return End(gone);
  stream_.Write(message, on_written_.Arm(shared_from_this()));
}

void Session::End(const absl::Status& status) {
  phase_ = Ended();
  exchange_.reset();
  if (!status.ok()) context_.AddTrailingMetadata(kAnsweredKey, "1");
  stream_.Finish(ToGrpcStatus(status), on_finished_.Arm(shared_from_this()));
}

void Session::OnFinished(bool /*ok*/) {}

void Session::OnRead(bool ok) {
  if (!TakeTurn(At::kReading)) return;
  if (!ok) return End(absl::OkStatus());
  v1::ExchangeHeader header;
  DecodedExchange message;
  if (auto status = DecodeExchange(&in_, &header, &message); !status.ok()) return End(status);
  in_.Clear();
  if (message.has_header) {
    begun_ = true;
    return Begin(header, std::move(message));
  }
  if (exchange_ != nullptr) return Receive(message);
  // What is left of an exchange that was refused has no header either.
  if (begun_) return Read();
  ReplyStatus(absl::InvalidArgumentError("a stream begins with a header, but its first message has none; send one"));
}

void Session::OnWritten(bool ok) {
  if (!TakeTurn(At::kWriting)) return;
  if (!ok) return End(absl::OkStatus());
  const auto* const sending = std::get_if<Sending>(&phase_);
  if (sending != nullptr && sending->center != nullptr &&
      sending->next_block < sending->center->snapshot->blocks.size()) {
    if (exchange_->lease != nullptr) exchange_->lease->Renew(exchange_->model->Now());
    return WriteBlocks(nullptr);
  }
  phase_ = Idle();
  exchange_.reset();
  Read();
}

// ---------------------------------------------------------------------------------------------------------------------
// From header to commit

void Session::Begin(const v1::ExchangeHeader& header, DecodedExchange first) {
  phase_ = Waiting();
  exchange_.reset();
  const v1::Participant& participant = header.participant();
  if (auto status = environment_.access->AuthorizeHeader(context_, header, &principal_); !status.ok()) {
    if (absl::IsUnauthenticated(status)) return End(status);
    if (!header.has_acknowledge()) return ReplyStatus(status);
    phase_ = Idle();
    return Read();
  }
  auto model = environment_.models->Find(participant);
  if (header.has_acknowledge()) {
    if (model.ok()) (*model)->Acknowledge(CallerOf(participant), header.acknowledge().sequence());
    phase_ = Idle();
    return Read();
  }
  if (!model.ok()) return ReplyStatus(model.status());
  if (header.must_understand() != 0) {
    return ReplyStatus(absl::UnimplementedError(
        absl::StrCat("the exchange requires features (bits ", header.must_understand(),
                     ") that this server does not know; is the client newer than the server?")));
  }
  if (FloatBytes(header.encoding()) == 0) {
    return ReplyStatus(absl::UnimplementedError(
        absl::StrCat("encoding ", header.encoding(),
                     " is unknown to this server; it knows FLOAT32 (0), FLOAT16 (1) and BFLOAT16 (2). Is the client "
                     "newer than the server?")));
  }
  const auto exchange = std::make_shared<Exchange>();
  exchange->session = weak_from_this();
  exchange->model = *std::move(model);
  exchange->initialize = header.has_initialize();
  exchange->encoding = header.encoding();
  ExchangeCall& call = exchange->call;
  call.caller = CallerOf(participant);
  call.deadline = header.wait_ms() > kMaxWaitMs ? absl::InfiniteFuture()
                                                : exchange->model->Now() + absl::Milliseconds(header.wait_ms());
  call.tag = this;
  call.cancelled = &done_;
  call.owner = exchange;
  exchange_ = exchange;
  if (header.segment() != 0) {
    if (auto status = FindSegment(header.segment(), exchange.get()); !status.ok()) return ReplyStatus(status);
  }
  const auto exchanged = [self = shared_from_this()](ExchangeAnswer answer) { self->Exchanged(std::move(answer)); };
  switch (header.operation_case()) {
    case v1::ExchangeHeader::kInitialize:
      call.floats = header.initialize().floats();
      exchange->first_point = {.version = header.initialize().version(), .rounds = header.initialize().rounds()};
      if (auto status = CheckInitialize(*exchange); !status.ok()) return ReplyStatus(status);
      exchange->lease = exchange->model->FindLease(call.caller);
      exchange->model->Watch(call);
      return ReserveToReceive(std::move(first));
    case v1::ExchangeHeader::kCommit:
      call.sequence = header.commit().sequence();
      call.base_version = header.commit().base_version();
      call.floats = header.commit().floats();
      call.pull = header.commit().pull();
      if (exchange->model->TakesAtOnce(call) && exchange->ComesWhole(first)) return ReserveToReceive(std::move(first));
      if (!exchange->ComesWhole(first)) exchange->lease = exchange->model->FindLease(call.caller);
      return InModel([&](Model* in) {
        // What came with the header, floats or not, is in nobody's budget: if it is more than a little, it can't wait.
        std::optional<ExchangeCall> at_once;
        if (first.owner_bytes > kMaxWaitingBytes) at_once.emplace(call).deadline = exchange->model->Now();
        in->BeginCommit(at_once.has_value() ? *at_once : call, [self = shared_from_this(), first = std::move(first)](
                                                                   const ExchangeAnswer& answer) mutable {
          self->LeaveModel();
          if (answer.status.code() == absl::StatusCode::kDeadlineExceeded && first.owner_bytes > kMaxWaitingBytes) {
            return self->ReplyStatus(absl::UnavailableError(
                "the commit has to wait for other workers; back off and try again, its header before its bytes"));
          }
          if (!answer.status.ok()) return self->ReplyStatus(answer.status);
          if (!answer.committed) return self->ReserveToReceive(std::move(first));
          self->phase_ = Dropping{0};
          self->watch_.Progress();
          self->Receive(first);
        });
      });
    case v1::ExchangeHeader::kPull:
      if (auto status = environment_.models->CheckPull(*exchange->model); !status.ok()) return ReplyStatus(status);
      call.pull = true;
      call.state = header.pull().state();
      if (call.state && (!call.caller.worker.empty() || exchange->encoding != v1::FLOAT32)) {
        return ReplyStatus(absl::InvalidArgumentError(
            "state vectors are for a reader that takes them as FLOAT32 (0); leave out the worker's name"));
      }
      return InModel([&](Model* in) { in->BeginPull(call, exchanged); });
    case v1::ExchangeHeader::kAwait:
      call.sequence = header.await().sequence();
      call.pull = header.await().pull();
      return InModel([&](Model* in) { in->Await(call, exchanged); });
    default:
      return ReplyStatus(absl::InvalidArgumentError(
          "an exchange without an operation that this server knows: initialize, commit, pull, await or acknowledge"));
  }
}

template <typename Call>
void Session::InModel(const Call& call) {
  // Once the model answers, this session may already be at its next exchange, on another thread.
  const std::shared_ptr<Exchange> exchange = exchange_;
  {
    MutexLock lock(&mutex_);
    in_model_ = exchange->model;
  }
  call(exchange->model.get());
}

void Session::LeaveModel() {
  std::shared_ptr<Model> model;  // outside the lock
  MutexLock lock(&mutex_);
  model.swap(in_model_);
}

absl::Status Session::CheckInitialize(const Exchange& exchange) const {
  const CheckedSpec& spec = exchange.model->checked_spec();
  if (exchange.call.floats != spec.floats &&
      exchange.call.floats != spec.floats * (1 + exchange.model->state_vectors())) {
    return absl::InvalidArgumentError(absl::StrCat("the initial center of model '", exchange.model->name(), "' has ",
                                                   exchange.call.floats, " floats where the model has ", spec.floats,
                                                   "; compare the tensors with `paramctl show`"));
  }
  if (exchange.first_point.version < 0 || exchange.first_point.rounds < 0) {
    return absl::InvalidArgumentError(absl::StrCat("model '", exchange.model->name(), "' would begin at version ",
                                                   exchange.first_point.version, " and round ",
                                                   exchange.first_point.rounds, "; neither can be negative"));
  }
  if (exchange.encoding != v1::FLOAT32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the initial center of model '", exchange.model->name(), "' comes as ", EncodingName(exchange.encoding),
        ", but all workers begin with what it is exactly; send it as FLOAT32 (0)"));
  }
  return absl::OkStatus();
}

absl::Status Session::FindSegment(uint64_t number, Exchange* exchange) const {
  if (exchange->initialize || exchange->encoding != v1::FLOAT32) {
    return absl::InvalidArgumentError(
        "an initial center, and floats that are narrowed, do not go through shared memory; send them as data");
  }
  const SegmentUser user{.model_id = exchange->model->id(),
                         .worker = exchange->call.caller.worker,
                         .incarnation = exchange->call.caller.incarnation};
  // Whoever knows this random number was given the segment.
  auto segment = environment_.segments != nullptr ? environment_.segments->Find(number, user) : nullptr;
  if (segment == nullptr) {
    return absl::UnavailableError("this server does not know that shared memory (any more); ask it for some again");
  }
  const uint64_t floats = exchange->model->checked_spec().floats;
  if (segment->Floats(LayOutSegment(floats).center_begin, floats).data() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory of ", segment->bytes(),
                                                   " bytes is too small for the ", floats, " floats of model '",
                                                   exchange->model->name(), "'"));
  }
  exchange->segment = std::move(segment);
  return absl::OkStatus();
}

void Session::ReserveToReceive(DecodedExchange first) {
  const Exchange& exchange = *exchange_;
  const size_t float_bytes = FloatBytes(exchange.encoding);
  const uint64_t bytes =
      exchange.initialize ? exchange.model->RoomToInitialize(exchange.call.floats)
                          : exchange.model->RoomToReceive(float_bytes, exchange.segment != nullptr, exchange.call.pull);
  if (bytes == 0) return StartReceiving(Reservation(), first);
  Budget* const budget = environment_.models->budget();
  if (Reservation room = budget->TryReserve(bytes); !room.empty()) return StartReceiving(std::move(room), first);
  if (first.owner_bytes > kMaxWaitingBytes) return ReplyStatus(absl::UnavailableError(NoRoom().message()));
  budget->Reserve({.tag = this, .bytes = bytes, .deadline = exchange.call.deadline},
                  [self = shared_from_this(), first = std::move(first)](Reservation room) {
                    room.empty() ? self->ReplyStatus(self->NoRoom()) : self->StartReceiving(std::move(room), first);
                  });
  if (done_ && budget->Cancel(this)) End(absl::CancelledError(""));
}

absl::Status Session::NoRoom() const {
  return absl::DeadlineExceededError(absl::StrCat(
      environment_.models->budget()->used_bytes(BudgetKind::kInFlight), " bytes are in flight, and the cap is ",
      environment_.models->budget()->max_in_flight_bytes(),
      "; back off and try again, the header of a commit before its bytes (or raise --max_in_flight_bytes)"));
}

void Session::StartReceiving(Reservation room, const DecodedExchange& first) {
  const Exchange& exchange = *exchange_;
  std::optional<MemoryPromise> memory = MemoryPromise();
  if (exchange.segment == nullptr) {
    const uint64_t bytes = exchange.call.floats * FloatBytes(exchange.encoding);
    memory = MemoryPromise::Make(bytes);
    if (!memory.has_value()) {
      const absl::Status status = absl::ResourceExhaustedError(
          absl::StrCat("there is no memory for a commit of ", bytes, " bytes; send it again later, give the server ",
                       "more memory, or delete models"));
      if (!exchange.initialize) exchange.model->CountRejected(exchange.call.caller, status);
      return ReplyStatus(status);
    }
  }
  CommitBuffer commit(exchange.call.floats, exchange.encoding);
  if (exchange.segment != nullptr) {
    commit.set_still_whole([segment = exchange.segment, sequence = exchange.call.sequence] {
      return segment->LoadCommitWord() == sequence;
    });
  }
  phase_ = Receiving{std::move(room), *std::move(memory), std::move(commit)};
  if (!exchange.ComesWhole(first)) watch_.Progress();
  Receive(first);
}

void Session::Receive(const DecodedExchange& message) {
  Exchange& exchange = *exchange_;
  if (exchange.lease != nullptr) exchange.lease->Renew(exchange.model->Now());
  exchange.progress_bytes += ChunkBytes(message);
  if (exchange.progress_bytes >= exchange.ProgressBytes()) {
    exchange.progress_bytes = 0;
    watch_.Progress();
  }
  bool complete = false;
  if (auto* const dropping = std::get_if<Dropping>(&phase_); dropping != nullptr) {
    dropping->floats += ChunkBytes(message) / FloatBytes(exchange.encoding) + message.shared_floats;
    complete = dropping->floats >= exchange.call.floats;
  } else {
    CommitBuffer& commit = std::get<Receiving>(phase_).commit;
    if (message.has_chunk) {
      std::get<Receiving>(phase_).memory.Keep(ChunkBytes(message));
      if (auto status = Append(message, &commit); !status.ok()) {
        if (!exchange.initialize) exchange.model->CountRejected(exchange.call.caller, status);
        return ReplyStatus(status);
      }
    }
    complete = commit.complete();
  }
  complete ? Received() : Read();
}

absl::Status Session::Append(const DecodedExchange& message, CommitBuffer* commit) const {
  const std::shared_ptr<const Segment>& segment = exchange_->segment;
  const bool shared = message.shared_floats != 0;
  if (shared != (segment != nullptr)) {
    return absl::InvalidArgumentError(
        "a commit goes through the shared memory that its header names and nothing else, or else as data");
  }
  if (!shared) return commit->Append(message.offset, message.data, message.owner, message.owner_bytes);
  const absl::Span<const float> floats = segment->Floats(message.shared_begin, message.shared_floats);
  if (floats.data() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there are no ", message.shared_floats, " floats from byte ",
                                                   message.shared_begin, " on in shared memory of ", segment->bytes(),
                                                   " bytes, whose first page has none"));
  }
  // So nobody makes the daemon remember a place for every few floats.
  if (message.shared_floats != exchange_->call.floats) {
    return absl::InvalidArgumentError(absl::StrCat("a commit in shared memory is one chunk of all its ",
                                                   exchange_->call.floats, " floats, not of ", message.shared_floats));
  }
  return commit->AppendUnstable(message.offset, floats, segment);
}

void Session::Received() {
  std::optional<CommitBuffer> commit;
  Reservation room;
  if (auto* const receiving = std::get_if<Receiving>(&phase_); receiving != nullptr) {
    commit = std::move(receiving->commit);
    room = std::move(receiving->room);
  }
  phase_ = Waiting();
  const ExchangeCall& call = exchange_->call;
  if (exchange_->initialize) {
    return InModel([&](Model* in) {
      in->Initialize(
          *std::move(commit), std::move(room),
          [self = shared_from_this()](const absl::Status& status) {
            self->LeaveModel();
            self->ReplyStatus(status);
          },
          exchange_->first_point);
    });
  }
  InModel([&](Model* in) {
    in->Exchange(call, std::move(commit), std::move(room),
                 [self = shared_from_this()](ExchangeAnswer answer) { self->Exchanged(std::move(answer)); });
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// From answer to reply

void Session::Exchanged(ExchangeAnswer answer) {
  LeaveModel();
  const ExchangeCall& call = exchange_->call;
  const bool has_center = call.pull && (call.sequence == 0 || answer.committed);
  if (!answer.status.ok() || !has_center) return Reply(answer);
  if (answer.center != nullptr) return Send(answer);
  Budget* const budget = environment_.models->budget();
  const uint64_t bytes = exchange_->model->bytes() * (call.state ? 1 + exchange_->model->state_vectors() : 1);
  budget->Reserve({.tag = this, .bytes = bytes, .deadline = call.deadline},
                  [self = shared_from_this(), answer = std::move(answer)](Reservation room) mutable {
                    if (room.empty()) {
                      answer.status = self->NoRoom();
                      return self->Reply(answer);
                    }
                    self->InModel([&](Model* in) {
                      in->Pull(self->exchange_->call, std::move(room), [self](const ExchangeAnswer& pulled) {
                        self->LeaveModel();
                        pulled.status.ok() ? self->Send(pulled) : self->Reply(pulled);
                      });
                    });
                  });
  if (done_ && budget->Cancel(this)) End(absl::CancelledError(""));
}

void Session::Send(const ExchangeAnswer& answer) {
  const Snapshot& center = *answer.center->snapshot;
  if (center.floats >= kLongFloats && exchange_->encoding != v1::FLOAT32) Pollers::StepAside();
  if (auto status = FitsEncoding(center, exchange_->encoding); !status.ok()) {
    ExchangeAnswer refused = answer;
    refused.status = status;
    return Reply(refused);
  }
  v1::ReplyHeader header;
  header.set_committed(answer.committed);
  header.set_version(center.version);
  header.set_staleness(answer.staleness);
  header.set_pull_floats(center.floats);
  if (exchange_->call.caller.worker.empty()) header.set_rounds(center.rounds);
  header.set_acknowledge(answer.acknowledge);
  // To be renewed between its messages.
  if (center.blocks.size() > 1 && exchange_->lease == nullptr && !exchange_->call.caller.worker.empty()) {
    exchange_->lease = exchange_->model->FindLease(exchange_->call.caller);
  }
  phase_ = Sending{.center = answer.center};
  WriteBlocks(&header);
}

void Session::WriteBlocks(const v1::ReplyHeader* header) {
  Sending& sending = std::get<Sending>(phase_);
  const Snapshot& center = *sending.center->snapshot;
  const bool progress = sending.next_block >= sending.next_progress;
  if (progress) {
    sending.next_progress += std::max<size_t>(1, center.blocks.size() / kProgressParts);
    sending.center->room.Progress();
  }
  const size_t begin = sending.sent;
  grpc::ByteBuffer out;
  if (exchange_->segment == nullptr) {
    const BlockRef& block = center.blocks[sending.next_block++];
    const grpc::Slice slice = exchange_->encoding == v1::FLOAT32
                                  ? BlockSlice(block)
                                  : environment_.chunks->Encode(exchange_->encoding, block.floats());
    sending.sent += block.floats().size();
    out = EncodeExchange(header, begin, &slice);
  } else {
    const size_t end = std::min(begin + kSharedBlocks * kBlockFloats, center.floats);
    const SegmentLayout layout = LayOutSegment(center.floats);
    float* const to = exchange_->segment->Floats(layout.center_begin, center.floats).data();
    for (size_t at = begin; at < end; at += kBlockFloats) {
      const absl::Span<const float> block = center.blocks[sending.next_block++].floats();
      std::memcpy(to + at, block.data(), block.size() * sizeof(float));
    }
    sending.sent = end;
    out = EncodeSharedExchange(header, begin, layout.center_begin + begin * sizeof(float), end - begin);
  }
  // Until it was written, unless it has been copied.
  if (exchange_->segment != nullptr && sending.next_block == center.blocks.size()) sending.center.reset();
  Write(out, progress);
}

void Session::ReplyStatus(const absl::Status& status) { Reply({.status = status}); }

void Session::Reply(const ExchangeAnswer& answer) {
  phase_ = Replying();
  exchange_.reset();
  v1::ReplyHeader header;
  header.set_code(static_cast<int>(answer.status.code()));
  if (!answer.status.ok()) header.set_message(ToWireMessage(answer.status));
  header.set_committed(answer.committed);
  header.set_version(answer.version);
  header.set_staleness(answer.staleness);
  header.set_pull_again(IsPullAgain(answer.status));
  Write(EncodeExchange(&header, 0, nullptr));
}

}  // namespace paramd
