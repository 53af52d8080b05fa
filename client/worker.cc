#include "client/worker.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/cancellation.h"
#include "client/commit_sequence.h"
#include "client/connection.h"
#include "client/exchange_client.h"
#include "client/guarded.h"
#include "client/heartbeat.h"
#include "client/history_queue.h"
#include "client/process_guard.h"
#include "client/shared_memory.h"
#include "proto/encoding.h"
#include "proto/text.h"

namespace paramd {
namespace {

// What a Leave is given when nobody wants to wait for it.
constexpr absl::Duration kLastCall = absl::Seconds(1);
// And the question what became of the last commit, if steps depend on it.
constexpr absl::Duration kLastQuestion = absl::Milliseconds(300);

using Listener = std::function<void(absl::string_view)>;

v1::Encoding EncodingOf(Wire wire) {
  switch (wire) {
    case Wire::kFloat32:
      return v1::FLOAT32;
    case Wire::kFloat16:
      return v1::FLOAT16;
    case Wire::kBfloat16:
      return v1::BFLOAT16;
  }
  return v1::FLOAT32;
}

absl::Status LeftError() { return absl::FailedPreconditionError("this worker has left its model; join again"); }

}  // namespace

// One object of each part of a worker, and what the join has told: the parts do not know each other, so that each can
// be tested alone.
class Worker::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(WorkerOptions options, std::shared_ptr<Connection> connection)
      : options_(std::move(options)),
        tell_(options_.on_event != nullptr ? options_.on_event : [](absl::string_view) {}),
        connection_(std::move(connection)),
        process_(absl::StrCat("worker '", options_.worker, "'")),
        on_stop_(options_.stop, [this] { cancellation_.Cancel(); }),
        exchanges_(connection_, options_.rpc_timeout, &cancellation_, tell_) {}

  absl::Status Join();
  absl::StatusOr<Exchanged> Exchange(std::optional<absl::Span<const float>> update,
                                     std::optional<absl::Span<float>> center, absl::Duration timeout);
  absl::Status Initialize(absl::Span<const float> center, absl::Duration timeout);
  absl::Status Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
    if (auto status = CheckProcess(); !status.ok()) return status;
    for (const std::string& name : metric_names) {
      if (auto status = CheckName("metric", name); !status.ok()) return status;
    }
    return history_.Add(metric_names, steps);
  }
  void ReportOnceApplied(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps);
  absl::Status Leave(absl::string_view error, absl::Duration timeout);
  // Leaves if nobody did, and waits for the callback that may be under way on the heartbeats' thread.
  void End();
  void Cancel() {
    if (!forked()) cancellation_.Cancel();
  }
  void Resume();

  absl::Status CheckProcess() const { return process_.Check(); }
  bool forked() const { return process_.forked(); }
  const v1::ModelInfo& model() const { return joined_.model(); }
  uint64_t incarnation() const { return joined_.incarnation(); }
  Transport transport() const { return shared_->in_use() ? Transport::kShm : Transport::kGrpc; }
  Wire wire() const { return transport() == Transport::kShm ? Wire::kFloat32 : options_.wire; }
  absl::Status ended() const { return cancellation_.ended(); }
  CommitState last_commit() const { return commits_->last_commit(); }
  HistoryState history() const { return history_.state(); }
  int64_t* last_step() { return &last_step_; }
  absl::Span<float> commit_buffer() const { return shared_->commit_buffer(); }
  absl::Span<float> center_buffer() const { return shared_->center_buffer(); }
  std::optional<Segment> ReleaseBuffers() { return shared_->Release(); }

 private:
  // Holds the one exchange that may be under way.
  class Turn;

  absl::Time Deadline(absl::Duration timeout) const { return connection_->clock()->Now() + timeout; }
  Attempts NewAttempts(absl::Time deadline, Cancellation* cancellation) const {
    return {.retry = Retry(connection_->clock(), deadline, absl::InfiniteDuration()), .cancellation = cancellation};
  }
  absl::Status JoinModel(Attempts* attempts);
  absl::Status JoinSharedMemory(absl::Time deadline);
  bool HasUnsettledSteps();
  // Finds out whether the steps that wait for that were applied. Of the one exchange that is under way.
  absl::Status SettleSteps(absl::Time deadline);
  void StartHeartbeats();
  absl::Status SendHeartbeat(absl::Time deadline, Cancellation* cancellation, v1::HeartbeatReply* reply) const;
  absl::Status SendLeave(absl::string_view error, absl::Time deadline) const;
  void Refused(const absl::Status& why);

  // Constant after Join.
  const WorkerOptions options_;
  const Listener tell_;
  const std::shared_ptr<Connection> connection_;
  const ProcessGuard process_;
  v1::JoinReply joined_;
  v1::Participant participant_;

  // Self-synchronized.
  Cancellation cancellation_;  // of exchanges and of the join
  const std::stop_callback<std::function<void()>> on_stop_;
  HistoryQueue history_{HistoryQueue::Options{.on_event = tell_}};
  std::optional<Heartbeat> heartbeat_;

  // Of the one exchange that is under way.
  std::optional<SharedMemory> shared_;
  ExchangeClient exchanges_;
  std::optional<CommitSequence> commits_;

  int64_t last_step_ = 0;  // of the one window that there is at a time

  Mutex mutex_;
  CondVar turn_changed_;
  std::thread::id exchanging_ ABSL_GUARDED_BY(mutex_);  // nobody, if it is none
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> report_ ABSL_GUARDED_BY(mutex_);  // the steps of the pending commit, if it was applied
};

class Worker::Impl::Turn {
 public:
  Turn(Impl* impl, absl::Time deadline) : impl_(impl), status_(impl->CheckProcess()) {
    if (!status_.ok()) return;
    const std::thread::id self = std::this_thread::get_id();
    const Clock* const clock = impl_->connection_->clock();
    MutexLock lock(&impl_->mutex_);
    if (impl_->exchanging_ == self) {
      status_ = absl::FailedPreconditionError("an exchange within an exchange: call it after on_event has returned");
      return;
    }
    while (impl_->exchanging_ != std::thread::id() && clock->Now() < deadline) {
      clock->Wait(&impl_->turn_changed_, &impl_->mutex_, deadline);
    }
    if (impl_->left_) {
      status_ = LeftError();
    } else if (impl_->exchanging_ != std::thread::id()) {
      status_ = absl::DeadlineExceededError("another exchange of this worker is still under way");
    } else {
      impl_->exchanging_ = self;
      mine_ = true;
    }
  }
  ~Turn() {
    if (!mine_) return;
    MutexLock lock(&impl_->mutex_);
    impl_->exchanging_ = std::thread::id();
    impl_->turn_changed_.SignalAll();
  }
  const absl::Status& status() const { return status_; }

 private:
  Impl* const impl_;
  absl::Status status_;
  bool mine_ = false;
};

absl::Status Worker::Impl::Join() {
  const absl::Time deadline = Deadline(options_.join_timeout);
  Attempts attempts = NewAttempts(deadline, &cancellation_);
  attempts.on_failure = [this](absl::string_view why) { tell_(absl::StrCat("join: waiting for the server: ", why)); };
  if (auto status = JoinModel(&attempts); !status.ok()) return status;
  commits_.emplace(participant_, joined_.model().parameters(), EncodingOf(options_.wire), &exchanges_);
  absl::Status status = JoinSharedMemory(deadline);
  if (auto cancelled = cancellation_.status(); !cancelled.ok()) status = cancelled;
  if (!status.ok()) {
    SendLeave(status.message(), Deadline(kLastCall)).IgnoreError();
    return status;
  }
  StartHeartbeats();
  return absl::OkStatus();
}

absl::Status Worker::Impl::JoinModel(Attempts* attempts) {
  if (options_.create != nullptr) {
    v1::CreateModelRequest create;
    *create.mutable_spec() = *options_.create;
    create.mutable_spec()->set_name(options_.model);
    v1::ModelInfo created;
    auto status = connection_->Call(&v1::ParameterServer::Stub::CreateModel, create, &created, attempts);
    if (!status.ok()) return status;
  }
  v1::JoinRequest request;
  request.set_model(options_.model);
  request.set_worker(options_.worker);
  request.set_incarnation(options_.incarnation);
  request.set_nonce(absl::Uniform<uint64_t>(absl::IntervalClosed, absl::BitGen(), 1, ~uint64_t{0}));
  auto status = connection_->Call(&v1::ParameterServer::Stub::Join, request, &joined_, attempts);
  if (!status.ok()) return status;
  participant_.set_model(joined_.model().spec().name());
  participant_.set_worker(options_.worker);
  participant_.set_incarnation(joined_.incarnation());
  participant_.set_nonce(request.nonce());
  participant_.set_model_id(joined_.model().id());
  participant_.set_daemon_id(joined_.daemon_id());
  return absl::OkStatus();
}

absl::Status Worker::Impl::JoinSharedMemory(absl::Time deadline) {
  const auto find_socket = [this](absl::Time until) -> absl::StatusOr<std::string> {
    v1::HeartbeatReply reply;
    const absl::Status status = SendHeartbeat(until, &cancellation_, &reply);
    if (!status.ok()) return status;
    return reply.shared_memory_socket();
  };
  shared_.emplace(SharedMemory::Options{.floats = joined_.model().parameters(),
                                        .required = options_.transport == Transport::kShm,
                                        .find_socket = find_socket,
                                        .on_event = tell_,
                                        .clock = connection_->clock()});
  exchanges_.set_shared_memory(&*shared_);
  return options_.transport == Transport::kGrpc ? absl::OkStatus()
                                                : shared_->Join(joined_.shared_memory_socket(), deadline);
}

void Worker::Impl::StartHeartbeats() {
  Heartbeat::Options options;
  options.lease = absl::Seconds(joined_.lease_s());
  options.beat = [this](absl::Time deadline, Cancellation* cancellation) {
    v1::HeartbeatReply reply;
    return SendHeartbeat(deadline, cancellation, &reply);
  };
  options.report = [this](v1::ReportHistoryRequest report, absl::Time deadline, Cancellation* cancellation) {
    *report.mutable_participant() = participant_;
    Attempts attempts = NewAttempts(deadline, cancellation);
    v1::ReportHistoryReply reply;
    return connection_->Call(&v1::ParameterServer::Stub::ReportHistory, report, &reply, &attempts);
  };
  options.on_refused = [this](const absl::Status& why) { Refused(why); };
  options.on_event = tell_;
  options.clock = connection_->clock();
  heartbeat_.emplace(std::move(options), &history_);
  history_.set_on_due([this] { heartbeat_->Wake(); });
  heartbeat_->Start(shared_from_this());
}

absl::Status Worker::Impl::SendHeartbeat(absl::Time deadline, Cancellation* cancellation,
                                         v1::HeartbeatReply* reply) const {
  v1::HeartbeatRequest request;
  *request.mutable_participant() = participant_;
  Attempts attempts = NewAttempts(deadline, cancellation);
  return connection_->Call(&v1::ParameterServer::Stub::Heartbeat, request, reply, &attempts);
}

absl::Status Worker::Impl::SendLeave(absl::string_view error, absl::Time deadline) const {
  v1::LeaveRequest request;
  *request.mutable_participant() = participant_;
  request.set_error(Shortened(Repaired(error), kMaxLastWords));
  v1::LeaveReply reply;
  Cancellation never;
  Attempts attempts = NewAttempts(deadline, &never);
  return connection_->Call(&v1::ParameterServer::Stub::Leave, request, &reply, &attempts);
}

void Worker::Impl::Refused(const absl::Status& why) {
  cancellation_.End(why);
  history_.Close(why);
  tell_(absl::StrCat("this worker has ended: ", why.message()));
}

absl::Status Worker::Impl::Leave(absl::string_view error, absl::Duration timeout) {
  if (auto status = CheckProcess(); !status.ok()) return status;
  const absl::Time deadline = Deadline(std::min(timeout, options_.rpc_timeout));
  bool exchanging = false;
  {
    MutexLock lock(&mutex_);
    if (left_) return absl::OkStatus();
    left_ = true;
    exchanging = exchanging_ != std::thread::id();
  }
  if (!exchanging && cancellation_.ended().ok()) {
    // A cancel ends exchanges, not the leave, and none begins any more.
    if (HasUnsettledSteps()) cancellation_.Reset();
    SettleSteps(std::min(deadline, Deadline(kLastQuestion))).IgnoreError();
  }
  history_.Close(LeftError());
  heartbeat_->Stop();
  absl::Status status = cancellation_.ended();
  if (status.ok()) {
    heartbeat_->Flush(deadline).IgnoreError();
    status = SendLeave(error, deadline);
  }
  // None begins any more. An idle connection would hold up the end of a daemon that drains.
  if (!exchanging) exchanges_.Disconnect();
  return status;
}

void Worker::Impl::End() {
  Leave("", kLastCall).IgnoreError();
  cancellation_.Cancel();
  heartbeat_->Stop();
}

void Worker::Impl::Resume() {
  cancellation_.Reset();
  // It may have come in between.
  if (options_.stop.stop_requested()) cancellation_.Cancel();
}

absl::StatusOr<Exchanged> Worker::Impl::Exchange(std::optional<absl::Span<const float>> update,
                                                 std::optional<absl::Span<float>> center, absl::Duration timeout) {
  const absl::Time deadline = Deadline(timeout);
  const Turn turn(this, deadline);
  if (!turn.status().ok()) {
    if (update.has_value()) commits_->Refuse();
    return turn.status();
  }
  if (const absl::Status settled = SettleSteps(deadline); !settled.ok()) {
    if (update.has_value()) commits_->Refuse();
    return settled;
  }
  return commits_->Exchange(update, center, deadline);
}

void Worker::Impl::ReportOnceApplied(const std::vector<std::string>& metric_names,
                                     const std::vector<StepResult>& steps) {
  MutexLock lock(&mutex_);
  report_ = [this, metric_names, steps] { Report(metric_names, steps).IgnoreError(); };  // on_event is told
}

bool Worker::Impl::HasUnsettledSteps() {
  MutexLock lock(&mutex_);
  return report_ != nullptr;
}

absl::Status Worker::Impl::SettleSteps(absl::Time deadline) {
  if (!HasUnsettledSteps()) return absl::OkStatus();
  CommitState commit = CommitState::kUnknown;
  absl::Status status = commits_->FinishPending(deadline, &commit);
  if (commit == CommitState::kUnknown) return status;
  std::function<void()> report;
  {
    MutexLock lock(&mutex_);
    report.swap(report_);
  }
  if (commit == CommitState::kApplied && report != nullptr) report();
  return status;
}

absl::Status Worker::Impl::Initialize(absl::Span<const float> center, absl::Duration timeout) {
  const absl::Time deadline = Deadline(timeout);
  const Turn turn(this, deadline);
  if (!turn.status().ok()) return turn.status();
  return commits_->Initialize(center, deadline);
}

// ---------------------------------------------------------------------------------------------------------------------

Worker::Worker(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Worker::~Worker() {
  if (impl_->forked()) {
    // Its thread and locks are the parent's, and so is its place in the model.
    new std::shared_ptr<Impl>(std::move(impl_));
    return;
  }
  impl_->End();
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Join(WorkerOptions options) {
  if (options.model.empty()) return absl::InvalidArgumentError("the model's name is empty; name the model to join");
  if (options.worker.empty()) return absl::InvalidArgumentError("the worker's name is empty; give it one");
  if (options.create != nullptr && !options.create->name().empty() && options.create->name() != options.model) {
    return absl::InvalidArgumentError(absl::StrCat("the model to join is '", options.model,
                                                   "', but the spec to create it with is of '", options.create->name(),
                                                   "'; give both one name"));
  }
  if (options.transport == Transport::kShm && options.wire != Wire::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory carries float32 only, but the wire is to be ",
                                                   EncodingName(EncodingOf(options.wire)),
                                                   "; use the wire f32, or the transport grpc"));
  }
  if (options.rpc_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("rpc_timeout must be positive");
  }
  options.on_event = GuardedEvents(std::move(options.on_event));
  auto connection = Connection::Open(options.server, options.security);
  if (!connection.ok()) return connection.status();
  auto impl = std::make_shared<Impl>(std::move(options), *std::move(connection));
  if (auto status = impl->Join(); !status.ok()) return status;
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

const v1::ModelInfo& Worker::model() const { return impl_->model(); }
uint64_t Worker::incarnation() const { return impl_->incarnation(); }
Transport Worker::transport() const { return impl_->transport(); }
Wire Worker::wire() const { return impl_->wire(); }
absl::Status Worker::ended() const { return impl_->forked() ? impl_->CheckProcess() : impl_->ended(); }
CommitState Worker::last_commit() const { return impl_->last_commit(); }
absl::Span<float> Worker::commit_buffer() { return impl_->commit_buffer(); }
absl::Span<float> Worker::center_buffer() { return impl_->center_buffer(); }

// A call that tells on_event keeps what it needs: that may be the end of the worker.

absl::Status Worker::Initialize(absl::Span<const float> center, absl::Duration timeout) {
  const auto impl = impl_;
  return impl->Initialize(center, timeout);
}

absl::StatusOr<Exchanged> Worker::Pull(absl::Span<float> center, absl::Duration timeout) {
  const auto impl = impl_;
  return impl->Exchange(std::nullopt, center, timeout);
}

absl::StatusOr<Exchanged> Worker::Commit(absl::Span<const float> update, absl::Duration timeout) {
  const auto impl = impl_;
  return impl->Exchange(update, std::nullopt, timeout);
}

absl::StatusOr<Exchanged> Worker::Exchange(absl::Span<const float> update, absl::Span<float> center,
                                           absl::Duration timeout) {
  const auto impl = impl_;
  return impl->Exchange(update, center, timeout);
}

void Worker::Cancel() { impl_->Cancel(); }
void Worker::Resume() { impl_->Resume(); }

absl::Status Worker::Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
  const auto impl = impl_;
  return impl->Report(metric_names, steps);
}

void Worker::ReportOnceApplied(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
  if (!impl_->forked()) impl_->ReportOnceApplied(metric_names, steps);
}

HistoryState Worker::history() const { return impl_->history(); }
int64_t* Worker::last_step() { return impl_->last_step(); }

absl::Status Worker::Leave(absl::string_view error, absl::Duration timeout) { return impl_->Leave(error, timeout); }

std::optional<Segment> Worker::TakeBuffers() {
  if (impl_->forked()) return std::nullopt;
  impl_->End();
  return impl_->ReleaseBuffers();
}

}  // namespace paramd
