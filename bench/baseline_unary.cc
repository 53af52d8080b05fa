#include "bench/baseline_unary.h"

#include <grpcpp/grpcpp.h>

#include <cstring>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/unary.grpc.pb.h"
#include "sync/mutex.h"

namespace paramd::bench {
namespace {

class Service : public Unary::Service {
 public:
  explicit Service(size_t bytes) : center_(bytes / sizeof(float)) {}

  grpc::Status Exchange(grpc::ServerContext*, const UnaryRequest* request, UnaryReply* reply) override {
    const size_t bytes = center_.size() * sizeof(float);
    const std::string& update = request->update();
    if (!update.empty() && update.size() != bytes) return {grpc::StatusCode::INVALID_ARGUMENT, "wrong length"};
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < update.size() / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, &update[i * sizeof(float)], sizeof(float));
      center_[i] += value;
    }
    if (request->pull()) reply->set_center(center_.data(), bytes);
    return grpc::Status::OK;
  }

 private:
  Mutex mutex_;
  std::vector<float> center_;
};

class UnaryPeer : public Peer {
 public:
  UnaryPeer(const std::string& address, Buffers buffers) : buffers_(buffers) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    stub_ = Unary::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  absl::Status Run(Operation operation) override {
    const size_t bytes = buffers_.update.size() * sizeof(float);
    UnaryRequest request;
    if (Commits(operation)) request.set_update(buffers_.update.data(), bytes);
    request.set_pull(Pulls(operation));
    UnaryReply reply;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const grpc::Status status = stub_->Exchange(&context, request, &reply);
    if (!status.ok()) return absl::UnavailableError(absl::StrCat("unary call: ", status.error_message()));
    if (!Pulls(operation)) return absl::OkStatus();
    if (reply.center().size() != bytes) return absl::InternalError("unary call: wrong length");
    std::memcpy(buffers_.center.data(), reply.center().data(), bytes);
    return absl::OkStatus();
  }

 private:
  const Buffers buffers_;
  std::unique_ptr<Unary::Stub> stub_;
};

}  // namespace

absl::Status ServeUnary(size_t bytes) {
  Service service(bytes);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError("the unary server can't listen on loopback");
  std::cout << "listens on 127.0.0.1:" << port << std::endl;
  server->Wait();
  return absl::UnavailableError("the unary server has ended");
}

absl::StatusOr<std::unique_ptr<Peer>> ConnectUnaryPeer(const std::string& address, Buffers buffers) {
  return std::make_unique<UnaryPeer>(address, buffers);
}

}  // namespace paramd::bench
