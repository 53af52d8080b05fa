// Who may call what: every method, as whoever may call, over every transport.
#include "server/access.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/admin.h"
#include "client/worker.h"
#include "proto/paramd.grpc.pb.h"
#include "server/server.h"
#include "sync/mutex.h"
#include "tests/security/pem_folder.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr const char* kMethods[] = {
#include "tests/security/methods.inc"
};
constexpr char kExchange[] = "/paramd.v1.ParameterServer/Exchange";
constexpr char kMine[] = "mine";

class SecurityLines {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& line) {
      MutexLock lock(&mutex_);
      absl::StrAppend(&text_, line, "\n");
    };
  }
  std::string text() {
    MutexLock lock(&mutex_);
    return text_;
  }

 private:
  Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

// A server that wants tokens.
class House {
 public:
  explicit House(bool tls = false, bool client_certificates = false) {
    pem_.Certify("server", {"127.0.0.1"});
    pem_.Certify("client", {});
    for (const auto& [name, role, models] : std::vector<std::array<std::string, 3>>{{"reader", "reader", ""},
                                                                                    {"other", "worker", "other"},
                                                                                    {"worker", "worker", kMine},
                                                                                    {"limited", "admin", kMine},
                                                                                    {"admin", "admin", ""}}) {
      const auto made = MakeToken(name, role, models);
      REQUIRE(made.ok());
      tokens_[name] = made->token;
      lines_[name] = made->line;
    }
    lines_["nonsense"] = "x y\n";
    tokens_["none"] = "";
    tokens_["wrong"] = std::string(64, 'a');
    WriteTokens({"reader", "other", "worker", "limited", "admin"});
    ServerOptions options{.listen = "127.0.0.1:0", .token_file = pem_.Path("tokens")};
    if (tls) {
      options.tls_cert = pem_.Path("server.pem");
      options.tls_key = pem_.Path("server.key");
      tls_.tls_ca = pem_.Path("ca.pem");
    }
    if (client_certificates) {
      options.tls_client_ca = pem_.Path("ca.pem");
      tls_.tls_cert = pem_.Path("client.pem");
      tls_.tls_key = pem_.Path("client.key");
    }
    options.reflect = [](const std::string& request) { return request; };
    options.security_log = log_.sink();
    auto started = Server::Start(options);
    INFO(started.status());
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }

  void WriteTokens(const std::vector<std::string>& names) const {
    std::string text;
    for (const std::string& name : names) text += lines_.at(name);
    pem_.Write("tokens", text);
  }

  void RemoveTokens() const { std::remove(pem_.Path("tokens").c_str()); }

  const std::string& address() const { return server_->address(); }
  const std::string& token(const std::string& who) const { return tokens_.at(who); }
  SecurityLines& log() { return log_; }

  Security As(const std::string& who) const {
    Security security = tls_;
    security.token = token(who);
    return security;
  }

  std::unique_ptr<Admin> AdminAs(const std::string& who) const {
    auto admin = Admin::Connect(address(), kTimeout, As(who));
    REQUIRE(admin.ok());
    return *std::move(admin);
  }

  std::shared_ptr<grpc::Channel> Channel() const {
    const auto read = [](const std::string& path) { return path.empty() ? "" : ReadFile(path); };
    return grpc::CreateChannel(address(), tls_.tls_ca.empty()
                                              ? grpc::InsecureChannelCredentials()
                                              : grpc::SslCredentials({.pem_root_certs = read(tls_.tls_ca),
                                                                      .pem_private_key = read(tls_.tls_key),
                                                                      .pem_cert_chain = read(tls_.tls_cert)}));
  }

  void Authorize(const std::string& who, grpc::ClientContext* call) const {
    call->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (!token(who).empty()) call->AddMetadata("authorization", "Bearer " + token(who));
  }

 private:
  PemFolder pem_;
  std::map<std::string, std::string> tokens_;
  std::map<std::string, std::string> lines_;
  Security tls_;
  SecurityLines log_;
  std::unique_ptr<Server> server_;
};

v1::ModelSpec Spec(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_algorithm("downpour");
  v1::Tensor* const tensor = spec.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(2);
  return spec;
}

// A request of each method, about model "mine", or one under its name that is not there.
template <typename Request, typename Fill>
std::string Bytes(const Fill& fill) {
  Request request;
  fill(&request);
  return request.SerializeAsString();
}

std::map<std::string, std::string> Requests() {
  const auto model = [](auto* request) { request->set_model(kMine); };
  const auto participant = [](auto* request) { request->mutable_participant()->set_model(kMine); };
  const auto nothing = [](auto*) {};
  const std::string service = "/paramd.v1.ParameterServer/";
  return {
      {service + "CreateModel",
       Bytes<v1::CreateModelRequest>([](auto* request) { *request->mutable_spec() = Spec(kMine); })},
      {service + "GetModel", Bytes<v1::GetModelRequest>(model)},
      {service + "ListModels", Bytes<v1::ListModelsRequest>(nothing)},
      {service + "DeleteModel", Bytes<v1::DeleteModelRequest>([](auto* request) { request->set_model("mine/0"); })},
      {service + "ListAlgorithms", Bytes<v1::ListAlgorithmsRequest>(nothing)},
      {service + "Checkpoint", Bytes<v1::CheckpointRequest>(model)},
      {service + "ListCheckpoints", Bytes<v1::ListCheckpointsRequest>(model)},
      {service + "RestoreModel", Bytes<v1::RestoreModelRequest>(model)},
      {service + "AddPast", Bytes<v1::AddPastRequest>(model)},
      {service + "Join", Bytes<v1::JoinRequest>(model)},
      {service + "Heartbeat", Bytes<v1::HeartbeatRequest>(participant)},
      {service + "Leave", Bytes<v1::LeaveRequest>(participant)},
      {service + "ReportHistory", Bytes<v1::ReportHistoryRequest>(participant)},
      {service + "GetHistory", Bytes<v1::GetHistoryRequest>(model)},
      {service + "GetStatus", Bytes<v1::GetStatusRequest>(nothing)},
      {"/grpc.health.v1.Health/Check", ""},
      {"/grpc.health.v1.Health/Watch", ""},
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ""},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ""},
  };
}

// Who may: those who are named; "every": whoever there is.
const std::map<std::string, std::string>& Permitted() {
  static const std::map<std::string, std::string> permitted = [] {
    const std::string service = "/paramd.v1.ParameterServer/";
    return std::map<std::string, std::string>{
        {service + "CreateModel", "worker admin"},
        {service + "GetModel", "reader worker admin"},
        {service + "ListModels", "reader other worker admin"},
        {service + "DeleteModel", "admin"},
        {service + "ListAlgorithms", "reader other worker admin"},
        {service + "Checkpoint", "admin"},
        {service + "ListCheckpoints", "reader worker admin"},
        {service + "RestoreModel", "admin"},
        {service + "AddPast", "worker admin"},
        {service + "Join", "worker admin"},
        {service + "Heartbeat", "worker admin"},
        {service + "Leave", "worker admin"},
        {service + "ReportHistory", "worker admin"},
        {service + "GetHistory", "reader worker admin"},
        {service + "GetStatus", "reader other worker admin"},
        {"/grpc.health.v1.Health/Check", "none wrong reader other worker admin"},
        {"/grpc.health.v1.Health/Watch", "none wrong reader other worker admin"},
        {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "reader other worker admin"},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "reader other worker admin"},
        // Exchange, by what its header asks for.
        {"initialize", "worker admin"},
        {"commit", "worker admin"},
        {"pull", "reader worker admin"},
        {"pull of a worker", "worker admin"},
        {"pull through shared memory", "worker admin"},
        {"await", "worker admin"},
        {"nothing", "worker admin"},
    };
  }();
  return permitted;
}

std::map<std::string, v1::ExchangeHeader> Headers() {
  std::map<std::string, v1::ExchangeHeader> headers;
  headers["initialize"].mutable_initialize();
  headers["commit"].mutable_commit();
  headers["pull"].mutable_pull();
  headers["pull of a worker"].mutable_pull();
  headers["pull of a worker"].mutable_participant()->set_worker("w");
  headers["pull through shared memory"].mutable_pull();
  headers["pull through shared memory"].set_segment(1);
  headers["await"].mutable_await();
  headers["nothing"];
  for (auto& [name, header] : headers) header.mutable_participant()->set_model(kMine);
  return headers;
}

grpc::StatusCode Expected(const std::string& what, const std::string& who) {
  for (const auto name : absl::StrSplit(Permitted().at(what), ' ')) {
    if (name == who) return grpc::StatusCode::OK;
  }
  return who == "none" || who == "wrong" ? grpc::StatusCode::UNAUTHENTICATED : grpc::StatusCode::PERMISSION_DENIED;
}

// OK for whatever the server says once it lets in.
grpc::StatusCode Refusal(int code) {
  const auto refused = static_cast<grpc::StatusCode>(code);
  const bool let_in = refused != grpc::StatusCode::UNAUTHENTICATED && refused != grpc::StatusCode::PERMISSION_DENIED;
  return let_in ? grpc::StatusCode::OK : refused;
}

// Of a call with one message, or of a stream that ends after its first answer. `heard`: the answer's bytes.
grpc::Status Call(const House& house, const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  const std::string& who, const std::string& request, std::string* heard = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  house.Authorize(who, &context);
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(nullptr);
  step();
  const grpc::Slice slice(request);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  step();
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  if (step()) context.TryCancel();
  grpc::Slice bytes;
  if (heard != nullptr && answer.Valid() && answer.DumpToSingleSlice(&bytes).ok()) {
    heard->assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  step();
  return status;
}

int ExchangeCode(const House& house, const std::shared_ptr<grpc::Channel>& channel, const std::string& who,
                 const v1::ExchangeHeader& header, std::string* heard = nullptr) {
  const auto stub = v1::ParameterServer::NewStub(channel);
  grpc::ClientContext context;
  house.Authorize(who, &context);
  const auto stream = stub->Exchange(&context);
  v1::ExchangeRequest request;
  *request.mutable_header() = header;
  stream->Write(request);
  v1::ExchangeReply reply;
  if (!stream->Read(&reply)) return stream->Finish().error_code();
  context.TryCancel();
  if (heard != nullptr) *heard = reply.SerializeAsString();
  return reply.header().code();
}

TEST_CASE("every method of the wire has its rule, and one without is refused") {
  for (const std::string method : kMethods) {
    INFO(method);
    CHECK(FindRule(method) != nullptr);
    CHECK((method == kExchange || Permitted().count(method) == 1));
  }
  CHECK(std::size(kMethods) >= 12);
  CHECK(FindRule("/paramd.v1.ParameterServer/Forgotten") == nullptr);
  const auto access = Access::Load({});
  REQUIRE(access.ok());
  const grpc::ServerContext call;
  Principal principal;
  CHECK(absl::IsPermissionDenied((*access)->Admit(call, nullptr, &principal)));
}

TEST_CASE("every method lets in whom it should, over every transport") {
  const std::map<std::string, std::string> requests = Requests();
  for (const std::string transport : {"plain", "tls", "mtls"}) {
    const House house(transport != "plain", transport == "mtls");
    REQUIRE(house.AdminAs("admin")->CreateModel(Spec(kMine)).ok());
    const auto channel = house.Channel();
    for (const std::string who : {"none", "wrong", "reader", "other", "worker", "admin"}) {
      for (const auto& [method, request] : requests) {
        const grpc::Status status = Call(house, channel, method, who, request);
        INFO(transport << ", " << method << ", " << who << ": " << status.error_message());
        CHECK(Refusal(status.error_code()) == Expected(method, who));
      }
      for (const auto& [operation, header] : Headers()) {
        INFO(transport << ", " << operation << ", " << who);
        CHECK(Refusal(ExchangeCode(house, channel, who, header)) == Expected(operation, who));
      }
    }
  }
}

TEST_CASE("no answer and no error names a model that one may not read") {
  const House house;
  const auto admin = house.AdminAs("admin");
  REQUIRE(admin->CreateModel(Spec("secret")).ok());
  const auto channel = house.Channel();
  // Without a model "mine", and with it.
  for (const bool there : {false, true}) {
    if (there) REQUIRE(admin->CreateModel(Spec(kMine)).ok());
    for (const std::string who : {"none", "wrong", "other", "worker"}) {
      for (const auto& [method, request] : Requests()) {
        if (!there && absl::EndsWith(method, "/CreateModel")) continue;
        std::string heard;
        const grpc::Status status = Call(house, channel, method, who, request, &heard);
        INFO(method << ", " << who << ": " << status.error_message());
        CHECK_FALSE(absl::StrContains(absl::StrCat(heard, status.error_message(), status.error_details()), "secret"));
      }
      for (const auto& [operation, header] : Headers()) {
        std::string heard;
        ExchangeCode(house, channel, who, header, &heard);
        INFO(operation << ", " << who << ": " << heard);
        CHECK_FALSE(absl::StrContains(heard, "secret"));
      }
    }
  }
}

TEST_CASE("a model is brought back as another one only by who may do so to both") {
  const House house;
  const auto name = [](const std::string& from, const std::string& to) {
    return Bytes<v1::RestoreModelRequest>([&](auto* request) {
      request->set_model(from);
      request->set_as(to);
    });
  };
  const auto call = [&](const std::string& request) {
    return Call(house, house.Channel(), "/paramd.v1.ParameterServer/RestoreModel", "limited", request).error_code();
  };
  CHECK(call(name(kMine, "")) == grpc::StatusCode::FAILED_PRECONDITION);  // it keeps no state
  CHECK(call(name(kMine, "other")) == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(call(name("other", kMine)) == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("lists hold the models that one may read, and no others") {
  const House house;
  const auto admin = house.AdminAs("admin");
  for (const std::string name : {"mine", "other", "third"}) REQUIRE(admin->CreateModel(Spec(name)).ok());
  CHECK(admin->ListModels()->models_size() == 3);
  CHECK(house.AdminAs("reader")->ListModels()->models_size() == 3);
  const auto worker = house.AdminAs("worker");
  REQUIRE(worker->ListModels()->models_size() == 1);
  CHECK(worker->ListModels()->models(0).spec().name() == "mine");
  REQUIRE(worker->GetStatus()->models_size() == 1);
  CHECK(worker->GetStatus()->models(0).spec().name() == "mine");
}

TEST_CASE("an open stream ends when its worker's token is revoked, and goes on when another one is") {
  House house;
  auto worker = Worker::Join({.server = house.address(),
                              .model = kMine,
                              .worker = "w",
                              .security = house.As("worker"),
                              .create = std::make_shared<v1::ModelSpec>(Spec(kMine)),
                              .join_timeout = kTimeout});
  REQUIRE(worker.ok());
  std::vector<float> center = {1, 2};
  REQUIRE((*worker)->Initialize(center, kTimeout).ok());
  const auto reloads = [&house] {
    int count = 0;
    for (size_t at = 0; (at = house.log().text().find("event=reloaded what=tokens", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  house.WriteTokens({"admin", "worker"});
  Await([&] { return reloads() == 1; });
  CHECK((*worker)->Pull(absl::MakeSpan(center), kTimeout).ok());
  house.WriteTokens({"admin"});
  Await([&] { return reloads() == 2; });
  CHECK(absl::IsUnauthenticated((*worker)->Pull(absl::MakeSpan(center), kTimeout).status()));
}

TEST_CASE("a file of tokens that is not there leaves those from before in use") {
  House house;
  house.RemoveTokens();
  Await([&] { return absl::StrContains(house.log().text(), "event=not_reloaded what=tokens"); });
  CHECK(house.AdminAs("admin")->ListModels().ok());
}

TEST_CASE("a token whose line is gone is revoked, also where the file makes no sense any more") {
  const auto left = GENERATE(as<std::vector<std::string>>(), std::vector<std::string>{},
                             std::vector<std::string>{"nonsense", "worker"});
  House house;
  house.WriteTokens(left);
  Await([&] { return absl::StrContains(house.log().text(), "it stays so"); });
  CHECK(absl::IsUnauthenticated(house.AdminAs("admin")->ListModels().status()));
  CHECK(house.AdminAs("worker")->ListModels().ok() == !left.empty());
  house.WriteTokens({"admin"});
  Await([&] { return absl::StrContains(house.log().text(), "event=reloaded what=tokens"); });
  CHECK(house.AdminAs("admin")->ListModels().ok());
}

TEST_CASE("the log tells who changed what and who was refused, and no token") {
  House house;
  const auto admin = house.AdminAs("admin");
  REQUIRE(admin->CreateModel(Spec(kMine)).ok());
  REQUIRE(admin->ListModels().ok());
  REQUIRE(admin->DeleteModel(kMine).ok());
  for (int i = 0; i < 20; ++i) CHECK_FALSE(house.AdminAs("worker")->DeleteModel(kMine).ok());
  CHECK_FALSE(house.AdminAs("wrong")->ListModels().ok());
  const std::string text = house.log().text();
  CHECK_THAT(text, Catch::Contains("event=audit call=CreateModel token=admin peer=ipv4:127.0.0.1:") &&
                       Catch::Contains("model=mine outcome=OK") && Catch::Contains("call=DeleteModel token=admin") &&
                       Catch::Contains("event=refused call=DeleteModel token=worker") &&
                       !Catch::Contains("ListModels token=admin"));
  for (const std::string who : {"admin", "worker", "wrong"}) CHECK_FALSE(absl::StrContains(text, house.token(who)));
  CHECK(std::count(text.begin(), text.end(), '\n') < 10);
}

TEST_CASE("without tokens a client's certificate is enough, and has its name in the log") {
  PemFolder pem;
  pem.Certify("server", {"127.0.0.1"});
  pem.Certify("client", {});
  SecurityLines log;
  const auto server = Server::Start({.listen = "127.0.0.1:0",
                                     .tls_cert = pem.Path("server.pem"),
                                     .tls_key = pem.Path("server.key"),
                                     .tls_client_ca = pem.Path("ca.pem"),
                                     .security_log = log.sink()});
  REQUIRE(server.ok());
  const auto admin = Admin::Connect(
      (*server)->address(), kTimeout,
      {.tls_ca = pem.Path("ca.pem"), .tls_cert = pem.Path("client.pem"), .tls_key = pem.Path("client.key")});
  REQUIRE(admin.ok());
  REQUIRE((*admin)->CreateModel(Spec(kMine)).ok());
  CHECK_THAT(log.text(), Catch::Contains("call=CreateModel token=client"));
}

TEST_CASE("a client's token is read again once its file is another one") {
  const House house;
  const PemFolder files;
  files.Write("token", house.token("wrong") + "\n");
  const auto admin = Admin::Connect(house.address(), kTimeout, {.token_file = files.Path("token")});
  REQUIRE(admin.ok());
  CHECK(absl::IsUnauthenticated((*admin)->ListModels().status()));
  files.Write("token", house.token("reader") + "\n");
  CHECK((*admin)->ListModels().ok());
}

}  // namespace
}  // namespace paramd
