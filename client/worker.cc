#include "client/worker.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/guarded.h"
#include "client/shared_memory.h"
#include "client/transport.h"
#include "proto/encoding.h"

namespace paramd {
namespace {

// Records that queue while the server is away.
constexpr size_t kMaxQueuedRecords = 100'000;
// Of one report: far below the longest message.
constexpr size_t kMaxReportRecords = 5'000;
constexpr absl::Duration kReportInterval = absl::Seconds(1);
// What a Leave is given when nobody wants to wait for it.
constexpr absl::Duration kLastCall = absl::Seconds(1);

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

}  // namespace

class Worker::Impl {
 public:
  Impl(WorkerOptions options, std::shared_ptr<Connection> connection)
      : options_(std::move(options)),
        connection_(std::move(connection)),
        on_stop_(options_.stop, [this] { cancellation_.Cancel(); }),
        exchanges_(connection_, options_.rpc_timeout, &cancellation_, options_.on_event) {}
  ~Impl();

  absl::Status Join();
  absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> center, bool pull,
                                     absl::Duration timeout);
  absl::Status Initialize(absl::Span<const float> center, absl::Duration timeout);
  void Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps);
  absl::Status Leave(absl::string_view error, absl::Duration timeout);
  void Cancel();
  void Resume();
  Transport transport() const { return shared_->in_use() ? Transport::kShm : Transport::kGrpc; }
  absl::Span<float> commit_buffer() const { return shared_->commit_buffer(); }
  absl::Span<float> center_buffer() const { return shared_->center_buffer(); }

  const v1::ModelInfo& model() const { return joined_.model(); }
  uint64_t incarnation() const { return joined_.incarnation(); }
  Wire wire() const { return transport() == Transport::kShm ? Wire::kFloat32 : options_.wire; }

 private:
  // Holds the one exchange that may be under way.
  class Turn;

  template <typename Message>
  Message Identified() const {
    Message message;
    *message.mutable_participant() = participant_;
    return message;
  }

  void Tell(const std::string& event) const {
    if (options_.on_event != nullptr) options_.on_event(event);
  }
  absl::Status JoinSharedMemory(absl::Time deadline);
  void Beat();
  absl::Status SendReports(Retry* retry);

  // Constant after Join.
  const WorkerOptions options_;
  const std::shared_ptr<Connection> connection_;
  v1::JoinReply joined_;
  v1::Participant participant_;
  absl::Duration lease_;

  // Self-synchronized.
  Cancellation cancellation_;
  const std::stop_callback<std::function<void()>> on_stop_;
  Cancellation stop_beating_;
  std::thread beat_;

  // Of the one exchange that is under way.
  std::optional<SharedMemory> shared_;  // once joined
  ExchangeClient exchanges_;
  uint64_t sequence_ = 0;
  int64_t base_version_ = -1;

  Mutex mutex_;
  CondVar turn_changed_;
  bool exchanging_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> metric_names_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::HistoryRecord> records_ ABSL_GUARDED_BY(mutex_);

  v1::ReportHistoryRequest report_;  // under way: of the heartbeat thread, and of Leave after that has ended
};

class Worker::Impl::Turn {
 public:
  Turn(Impl* impl, absl::Duration timeout) : impl_(impl) {
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(&impl_->mutex_);
    while (impl_->exchanging_ && absl::Now() < deadline) {
      impl_->turn_changed_.WaitWithTimeout(&impl_->mutex_, deadline - absl::Now());
    }
    if (impl_->left_) {
      status_ = absl::FailedPreconditionError("this worker has left its model; join again");
    } else if (impl_->exchanging_) {
      status_ = absl::DeadlineExceededError("another exchange of this worker is still under way");
    } else {
      impl_->exchanging_ = mine_ = true;
    }
  }
  ~Turn() {
    if (!mine_) return;
    MutexLock lock(&impl_->mutex_);
    impl_->exchanging_ = false;
    impl_->turn_changed_.SignalAll();
  }
  const absl::Status& status() const { return status_; }

 private:
  Impl* const impl_;
  absl::Status status_;
  bool mine_ = false;
};

Worker::Impl::~Impl() {
  Leave("", kLastCall).IgnoreError();
  cancellation_.Cancel();
}

absl::Status Worker::Impl::Join() {
  Retry retry(absl::Now() + options_.join_timeout, options_.join_timeout, &cancellation_);
  if (options_.create != nullptr) {
    v1::CreateModelRequest create;
    *create.mutable_spec() = *options_.create;
    create.mutable_spec()->set_name(options_.model);
    v1::ModelInfo created;
    auto status = connection_->Call(&v1::ParameterServer::Stub::CreateModel, create, &created, &retry);
    if (!status.ok()) return status;
  }
  v1::JoinRequest request;
  request.set_model(options_.model);
  request.set_worker(options_.worker);
  request.set_incarnation(options_.incarnation);
  request.set_nonce(absl::Uniform<uint64_t>(absl::IntervalClosed, absl::BitGen(), 1, ~uint64_t{0}));
  if (auto status = connection_->Call(&v1::ParameterServer::Stub::Join, request, &joined_, &retry); !status.ok()) {
    return status;
  }
  lease_ = absl::Seconds(joined_.lease_s());
  participant_.set_model(joined_.model().spec().name());
  participant_.set_worker(options_.worker);
  participant_.set_incarnation(joined_.incarnation());
  participant_.set_nonce(request.nonce());
  participant_.set_model_id(joined_.model().id());
  participant_.set_daemon_id(joined_.daemon_id());
  absl::Status status = JoinSharedMemory(retry.deadline());
  if (cancellation_.cancelled()) status = absl::CancelledError("the join was cancelled by this process");
  if (!status.ok()) {
    auto leave = Identified<v1::LeaveRequest>();
    leave.set_error(std::string(status.message()));
    v1::LeaveReply left;
    Cancellation never;
    Retry last(absl::Now() + kLastCall, kLastCall, &never);
    connection_->Call(&v1::ParameterServer::Stub::Leave, leave, &left, &last).IgnoreError();
    return status;
  }
  beat_ = std::thread([this] { Beat(); });
  return absl::OkStatus();
}

absl::Status Worker::Impl::JoinSharedMemory(absl::Time deadline) {
  const auto find_socket = [this](Retry* retry) -> absl::StatusOr<std::string> {
    v1::HeartbeatReply reply;
    const absl::Status status =
        connection_->Call(&v1::ParameterServer::Stub::Heartbeat, Identified<v1::HeartbeatRequest>(), &reply, retry);
    if (!status.ok()) return status;
    return reply.shared_memory_socket();
  };
  shared_.emplace(SharedMemory::Options{.floats = joined_.model().parameters(),
                                        .required = options_.transport == Transport::kShm,
                                        .find_socket = find_socket,
                                        .on_event = options_.on_event});
  exchanges_.set_shared_memory(&*shared_);
  return options_.transport == Transport::kGrpc ? absl::OkStatus()
                                                : shared_->Join(joined_.shared_memory_socket(), deadline);
}

void Worker::Impl::Beat() {
  const absl::Duration third = lease_ / 3;
  absl::Time last = absl::Now();
  while (!stop_beating_.WaitFor(std::min(third, kReportInterval))) {
    Retry retry(absl::Now() + third, third, &stop_beating_);
    // A report renews the lease, too.
    absl::Status status = SendReports(&retry);
    if (absl::IsNotFound(status)) {
      if (absl::Now() - last < third - kReportInterval) continue;
      const auto request = Identified<v1::HeartbeatRequest>();
      v1::HeartbeatReply reply;
      status = connection_->Call(&v1::ParameterServer::Stub::Heartbeat, request, &reply, &retry);
    }
    if (status.ok()) last = absl::Now();
    if (!status.ok() && !absl::IsCancelled(status)) Tell(absl::StrCat("heartbeat: ", status.message()));
    if (absl::IsAborted(status)) return;
  }
}

// NOT_FOUND if there is nothing to send.
absl::Status Worker::Impl::SendReports(Retry* retry) {
  if (report_.records_size() == 0) {
    MutexLock lock(&mutex_);
    if (records_.empty()) return absl::NotFoundError("");
    const uint64_t batch = report_.batch();
    report_ = Identified<v1::ReportHistoryRequest>();
    report_.set_batch(batch + 1);
    for (const std::string& name : metric_names_) report_.add_metric_names(name);
    while (!records_.empty() && static_cast<size_t>(report_.records_size()) < kMaxReportRecords) {
      *report_.add_records() = std::move(records_.front());
      records_.pop_front();
    }
  }
  v1::ReportHistoryReply reply;
  const absl::Status status = connection_->Call(&v1::ParameterServer::Stub::ReportHistory, report_, &reply, retry);
  // What the server refuses is not sent again; what did not reach it is.
  if (status.ok() || !IsTransient(status)) report_.clear_records();
  return status;
}

void Worker::Impl::Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
  MutexLock lock(&mutex_);
  metric_names_ = metric_names;
  for (const StepResult& step : steps) {
    v1::HistoryRecord& record = records_.emplace_back();
    record.set_step(static_cast<uint64_t>(step.step));
    record.set_epoch(step.epoch);
    record.set_time_s(step.time_s);
    record.set_loss(step.loss);
    for (const double metric : step.metrics) record.add_metrics(metric);
  }
  while (records_.size() > kMaxQueuedRecords) records_.pop_front();
}

absl::Status Worker::Impl::Leave(absl::string_view error, absl::Duration timeout) {
  bool exchanging = false;
  {
    MutexLock lock(&mutex_);
    if (left_) return absl::OkStatus();
    left_ = true;
    exchanging = exchanging_;
  }
  stop_beating_.Cancel();
  if (!beat_.joinable()) return absl::OkStatus();  // never joined the model
  beat_.join();
  Cancellation never;
  Retry retry(absl::Now() + timeout, timeout, &never);
  while (SendReports(&retry).ok()) {
  }
  auto request = Identified<v1::LeaveRequest>();
  request.set_error(std::string(error));
  v1::LeaveReply reply;
  const absl::Status status = connection_->Call(&v1::ParameterServer::Stub::Leave, request, &reply, &retry);
  // None begins any more. An idle connection would hold up the end of a daemon that drains.
  if (!exchanging) exchanges_.Disconnect();
  return status;
}

void Worker::Impl::Cancel() { cancellation_.Cancel(); }

void Worker::Impl::Resume() {
  cancellation_.Reset();
  // It may have come in between.
  if (options_.stop.stop_requested()) cancellation_.Cancel();
}

absl::StatusOr<Exchanged> Worker::Impl::Exchange(absl::Span<const float> update, absl::Span<float> center, bool pull,
                                                 absl::Duration timeout) {
  const size_t floats = joined_.model().parameters();
  if ((pull && center.size() != floats) || (!pull && update.size() != floats) ||
      (!update.empty() && update.size() != floats)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", joined_.model().spec().name(), "' has ", floats, " parameters, but the commit has ", update.size(),
        " and the center ", center.size(), "; compare the network's layers with `paramctl show`"));
  }
  const absl::Time deadline = absl::Now() + timeout;
  const Turn turn(this, timeout);
  if (!turn.status().ok()) return turn.status();
  auto header = Identified<v1::ExchangeHeader>();
  header.set_encoding(EncodingOf(options_.wire));
  if (update.empty()) {
    header.mutable_pull();
  } else {
    v1::Commit* const commit = header.mutable_commit();
    commit->set_floats(update.size());
    commit->set_sequence(++sequence_);
    commit->set_base_version(base_version_);
    commit->set_pull(pull);
  }
  auto reply = exchanges_.Exchange(std::move(header), update, center, deadline - absl::Now());
  if (absl::IsUnimplemented(reply.status())) {
    return absl::UnimplementedError(absl::StrCat(reply.status().message(), " Upgrade the daemon, or use --wire=f32"));
  }
  if (!reply.ok()) return reply.status();
  if (pull) base_version_ = reply->version();
  return Exchanged{.version = reply->version(), .staleness = reply->staleness()};
}

absl::Status Worker::Impl::Initialize(absl::Span<const float> center, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const Turn turn(this, timeout);
  if (!turn.status().ok()) return turn.status();
  auto header = Identified<v1::ExchangeHeader>();
  header.mutable_initialize()->set_floats(center.size());
  return exchanges_.Exchange(std::move(header), center, {}, deadline - absl::Now()).status();
}

// ---------------------------------------------------------------------------------------------------------------------

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

absl::StatusOr<std::unique_ptr<Worker>> Worker::Join(WorkerOptions options) {
  if (options.model.empty()) return absl::InvalidArgumentError("WorkerOptions::model is empty; name the model to join");
  if (options.worker.empty()) return absl::InvalidArgumentError("WorkerOptions::worker is empty; give it a name");
  if (options.transport == Transport::kShm && options.wire != Wire::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory carries float32 only, but the wire is to be ",
                                                   EncodingName(EncodingOf(options.wire)),
                                                   "; use --wire=f32, or --transport=grpc"));
  }
  if (options.rpc_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("WorkerOptions::rpc_timeout must be positive");
  }
  options.on_event = GuardedEvents(std::move(options.on_event));
  auto connection = Connection::Open(options.server);
  if (!connection.ok()) return connection.status();
  auto impl = std::make_unique<Impl>(std::move(options), *std::move(connection));
  if (auto status = impl->Join(); !status.ok()) return status;
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

const v1::ModelInfo& Worker::model() const { return impl_->model(); }
uint64_t Worker::incarnation() const { return impl_->incarnation(); }
Transport Worker::transport() const { return impl_->transport(); }
Wire Worker::wire() const { return impl_->wire(); }
absl::Span<float> Worker::commit_buffer() { return impl_->commit_buffer(); }
absl::Span<float> Worker::center_buffer() { return impl_->center_buffer(); }

absl::Status Worker::Initialize(absl::Span<const float> center, absl::Duration timeout) {
  return impl_->Initialize(center, timeout);
}

absl::StatusOr<Exchanged> Worker::Pull(absl::Span<float> center, absl::Duration timeout) {
  return impl_->Exchange({}, center, /*pull=*/true, timeout);
}

absl::StatusOr<Exchanged> Worker::Commit(absl::Span<const float> update, absl::Duration timeout) {
  return impl_->Exchange(update, {}, /*pull=*/false, timeout);
}

absl::StatusOr<Exchanged> Worker::Exchange(absl::Span<const float> update, absl::Span<float> center,
                                           absl::Duration timeout) {
  return impl_->Exchange(update, center, /*pull=*/true, timeout);
}

void Worker::Cancel() { impl_->Cancel(); }
void Worker::Resume() { impl_->Resume(); }

void Worker::Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
  impl_->Report(metric_names, steps);
}

absl::Status Worker::Leave(absl::string_view error, absl::Duration timeout) { return impl_->Leave(error, timeout); }

}  // namespace paramd
