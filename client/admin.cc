#include "client/admin.h"

#include <utility>

#include "client/transport.h"

namespace paramd {

class Admin::Impl {
 public:
  Impl(std::shared_ptr<Connection> connection, absl::Duration timeout)
      : connection_(std::move(connection)),
        timeout_(timeout),
        exchanges_(connection_, timeout, &cancellation_, nullptr) {}

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                               Reply*),
                             const Request& request) {
    Reply reply;
    Retry retry(absl::Now() + timeout_, timeout_, &cancellation_);
    if (auto status = connection_->Call(method, request, &reply, &retry); !status.ok()) return status;
    return reply;
  }

  absl::StatusOr<v1::ReplyHeader> Exchange(v1::ExchangeHeader header, absl::Span<const float> commit,
                                           absl::Span<float> center) {
    MutexLock lock(&mutex_);
    return exchanges_.Exchange(std::move(header), commit, center, timeout_);
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const absl::Duration timeout_;
  Cancellation cancellation_;
  Mutex mutex_;
  ExchangeClient exchanges_ ABSL_GUARDED_BY(mutex_);
};

Admin::Admin(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Admin::~Admin() = default;

absl::StatusOr<std::unique_ptr<Admin>> Admin::Connect(const std::string& server, absl::Duration timeout) {
  auto connection = Connection::Open(server);
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

absl::StatusOr<v1::ListAlgorithmsReply> Admin::ListAlgorithms() {
  return impl_->Call(&v1::ParameterServer::Stub::ListAlgorithms, v1::ListAlgorithmsRequest());
}

absl::StatusOr<v1::GetHistoryReply> Admin::GetHistory(const v1::GetHistoryRequest& request) {
  return impl_->Call(&v1::ParameterServer::Stub::GetHistory, request);
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

absl::Status Admin::Initialize(const std::string& model, absl::Span<const float> center) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_initialize()->set_floats(center.size());
  return impl_->Exchange(std::move(header), center, {}).status();
}

}  // namespace paramd
