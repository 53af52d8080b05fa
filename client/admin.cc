#include "client/admin.h"

#include <utility>
#include <vector>

#include "client/cancellation.h"
#include "client/connection.h"
#include "client/exchange_client.h"
#include "client/process_guard.h"
#include "client/retry.h"
#include "proto/text.h"
#include "sync/mutex.h"

namespace paramd {

namespace {

// Streams that are kept open for later calls.
constexpr size_t kMaxIdleStreams = 4;

}  // namespace

class Admin::Impl {
 public:
  Impl(std::shared_ptr<Connection> connection, absl::Duration timeout)
      : connection_(std::move(connection)), timeout_(timeout) {}

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                               Reply*),
                             const Request& request, absl::Time deadline) {
    if (auto status = CheckProcess(); !status.ok()) return status;
    Reply reply;
    // The deadline is all the patience there is.
    Attempts attempts{.retry = Retry(connection_->clock(), deadline, absl::InfiniteDuration()),
                      .cancellation = &never_};
    if (auto status = connection_->Call(method, request, &reply, &attempts); !status.ok()) return status;
    return reply;
  }

  template <typename Method, typename Request>
  auto Call(Method method, const Request& request) {
    return Call(method, request, Deadline());
  }

  absl::Time Deadline() const { return connection_->clock()->Now() + timeout_; }

  // On a stream of its own: one that waits holds up no other.
  absl::StatusOr<v1::ReplyHeader> Exchange(v1::ExchangeHeader header, absl::Span<const float> commit,
                                           absl::Span<float> center) {
    if (auto status = CheckProcess(); !status.ok()) return status;
    if (auto status = CheckName("model", header.participant().model()); !status.ok()) return status;
    const absl::Time deadline = Deadline();
    std::unique_ptr<ExchangeClient> stream = TakeStream();
    const ExchangeOutcome outcome = stream->Send(std::move(header), commit, center, deadline);
    GiveBack(std::move(stream));
    if (!outcome.status.ok()) return outcome.status;
    return outcome.reply;
  }

  bool forked() const { return process_.forked(); }

 private:
  absl::Status CheckProcess() const { return process_.Check(); }

  std::unique_ptr<ExchangeClient> TakeStream() {
    {
      MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<ExchangeClient> stream = std::move(idle_.back());
        idle_.pop_back();
        return stream;
      }
    }
    return std::make_unique<ExchangeClient>(connection_, absl::InfiniteDuration(), &never_, nullptr);
  }

  void GiveBack(std::unique_ptr<ExchangeClient> stream) {
    MutexLock lock(&mutex_);
    if (idle_.size() < kMaxIdleStreams) idle_.push_back(std::move(stream));
  }

  const std::shared_ptr<Connection> connection_;
  const absl::Duration timeout_;
  const ProcessGuard process_{"this admin"};
  Cancellation never_;
  Mutex mutex_;
  std::vector<std::unique_ptr<ExchangeClient>> idle_ ABSL_GUARDED_BY(mutex_);
};

Admin::Admin(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Admin::~Admin() {
  // In a child, its connections are the parent's.
  if (impl_->forked()) static_cast<void>(impl_.release());
}

absl::StatusOr<std::unique_ptr<Admin>> Admin::Connect(const std::string& server, absl::Duration timeout,
                                                      const Security& security) {
  auto connection = Connection::Open(server, security);
  if (!connection.ok()) return connection.status();
  return std::unique_ptr<Admin>(new Admin(std::make_unique<Impl>(*std::move(connection), timeout)));
}

absl::StatusOr<v1::ModelInfo> Admin::CreateModel(const v1::ModelSpec& spec) {
  v1::CreateModelRequest request;
  *request.mutable_spec() = spec;
  return impl_->Call(&v1::ParameterServer::Stub::CreateModel, request);
}

absl::StatusOr<v1::ModelInfo> Admin::GetModel(const std::string& model) {
  v1::GetModelRequest request;
  request.set_model(model);
  return impl_->Call(&v1::ParameterServer::Stub::GetModel, request);
}

absl::StatusOr<v1::ListModelsReply> Admin::ListModels() {
  return impl_->Call(&v1::ParameterServer::Stub::ListModels, v1::ListModelsRequest());
}

absl::Status Admin::DeleteModel(const std::string& model) {
  v1::DeleteModelRequest request;
  request.set_model(model);
  return impl_->Call(&v1::ParameterServer::Stub::DeleteModel, request).status();
}

absl::StatusOr<v1::CheckpointReply> Admin::Checkpoint(const std::string& model) {
  v1::CheckpointRequest request;
  request.set_model(model);
  return impl_->Call(&v1::ParameterServer::Stub::Checkpoint, request);
}

absl::StatusOr<v1::CheckpointReply> Admin::ListCheckpoints(const std::string& model) {
  v1::ListCheckpointsRequest request;
  request.set_model(model);
  return impl_->Call(&v1::ParameterServer::Stub::ListCheckpoints, request);
}

absl::StatusOr<v1::ModelInfo> Admin::RestoreModel(const v1::RestoreModelRequest& request) {
  return impl_->Call(&v1::ParameterServer::Stub::RestoreModel, request);
}

absl::Status Admin::AddPast(const v1::AddPastRequest& request) {
  return impl_->Call(&v1::ParameterServer::Stub::AddPast, request).status();
}

absl::StatusOr<v1::ListAlgorithmsReply> Admin::ListAlgorithms() {
  return impl_->Call(&v1::ParameterServer::Stub::ListAlgorithms, v1::ListAlgorithmsRequest());
}

absl::StatusOr<v1::GetHistoryReply> Admin::GetHistory(v1::GetHistoryRequest request) {
  const absl::Time deadline = impl_->Deadline();
  absl::StatusOr<v1::GetHistoryReply> whole = impl_->Call(&v1::ParameterServer::Stub::GetHistory, request, deadline);
  while (whole.ok() && !whole->next_page_token().empty()) {
    request.set_page_token(std::exchange(*whole->mutable_next_page_token(), ""));
    absl::StatusOr<v1::GetHistoryReply> page = impl_->Call(&v1::ParameterServer::Stub::GetHistory, request, deadline);
    if (!page.ok()) return page.status();
    for (v1::WorkerHistory& series : *page->mutable_workers()) {
      const bool goes_on =
          whole->workers_size() > 0 && whole->workers(whole->workers_size() - 1).worker() == series.worker();
      if (!goes_on) {
        *whole->add_workers() = std::move(series);
        continue;
      }
      auto* const records = whole->mutable_workers(whole->workers_size() - 1)->mutable_records();
      for (v1::HistoryRecord& record : *series.mutable_records()) records->Add(std::move(record));
    }
    whole->set_next_page_token(page->next_page_token());
  }
  return whole;
}

absl::StatusOr<v1::ServerStatus> Admin::GetStatus() {
  return impl_->Call(&v1::ParameterServer::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<Exchanged> Admin::Pull(const std::string& model, absl::Span<float> center) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_pull();
  auto reply = impl_->Exchange(std::move(header), {}, center);
  if (!reply.ok()) return reply.status();
  return Exchanged{.version = reply->version()};
}

absl::StatusOr<Admin::Point> Admin::PullWithState(const std::string& model, absl::Span<float> floats) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_pull()->set_state(true);
  auto reply = impl_->Exchange(std::move(header), {}, floats);
  if (!reply.ok()) return reply.status();
  return Point{.version = reply->version(), .rounds = reply->rounds()};
}

absl::Status Admin::Initialize(const std::string& model, absl::Span<const float> center) {
  return InitializeAt(model, center, {});
}

absl::Status Admin::InitializeAt(const std::string& model, absl::Span<const float> floats, const Point& at) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_initialize()->set_floats(floats.size());
  header.mutable_initialize()->set_version(at.version);
  header.mutable_initialize()->set_rounds(at.rounds);
  return impl_->Exchange(std::move(header), floats, {}).status();
}

}  // namespace paramd
