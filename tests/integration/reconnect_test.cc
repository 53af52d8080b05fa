// How long calls take, what they say when they fail, and how soon a daemon is found again.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/paramd.grpc.pb.h"
#include "tests/integration/fixtures.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

// What the machine may take for itself, being busy with other things. A mistake takes longer.
constexpr absl::Duration kSlack = absl::Seconds(3);

template <typename Call>
std::pair<absl::Status, absl::Duration> Time(const Call& call) {
  const absl::Time begin = absl::Now();
  absl::Status status = call();
  return {std::move(status), absl::Now() - begin};
}

// Where nobody listens any more.
std::string DeadAddress() { return StartServer({.listen = "127.0.0.1:0", .max_shared_bytes = 0})->address(); }

std::unique_ptr<Admin> Connect(const std::string& address, absl::Duration timeout) {
  auto admin = Admin::Connect(address, timeout);
  REQUIRE(admin.ok());
  return *std::move(admin);
}

TEST_CASE("a call that waits uses all its time, and says what it waited for") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address(), kCallTimeout)->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto worker = Join(server->address(), "m", "a");
  std::vector<float> center(10);
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Milliseconds(50), absl::Milliseconds(200), absl::Seconds(1), absl::Seconds(2)}) {
    const auto admin = Connect(server->address(), timeout);
    for (const auto& [status, took] : {Time([&] { return worker->Pull(absl::MakeSpan(center), timeout).status(); }),
                                       Time([&] { return admin->Pull("m", absl::MakeSpan(center)).status(); })}) {
      INFO(timeout << ": " << status);
      CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
      // Without any time, a busy machine may not even come to ask.
      if (timeout > absl::Milliseconds(100)) {
        CHECK_THAT(std::string(status.message()), Catch::Contains("'m' has no center yet"));
      }
      CHECK(took >= timeout);
      CHECK(took < timeout + kSlack);
    }
  }
}

TEST_CASE("a daemon that is back is used again at once, by calls and by exchanges") {
  // As long as it takes gRPC and our own backoff to become slow.
  const absl::Duration away = GENERATE(absl::Milliseconds(100), absl::Seconds(2));
  auto server = StartServer({.listen = "127.0.0.1:0"});
  const std::string address = server->address();
  CreateModel(address, Spec("m", "downpour", 10), std::vector<float>(10, 1));
  const auto admin = Connect(address, kCallTimeout);
  std::vector<float> center(10);
  REQUIRE(admin->GetStatus().ok());
  REQUIRE(admin->Pull("m", absl::MakeSpan(center)).ok());
  server.reset();

  absl::Time called;
  absl::Time pulled;
  absl::Time back;
  {
    const Thread caller([&] {
      admin->GetStatus().status().IgnoreError();
      called = absl::Now();
    });
    const Thread puller([&] {
      admin->Pull("m", absl::MakeSpan(center)).status().IgnoreError();  // it has no model any more
      pulled = absl::Now();
    });
    absl::SleepFor(away);
    server = StartServer({.listen = address});
    back = absl::Now();
  }
  INFO(called - back << ", " << pulled - back);
  CHECK(called - back < absl::Milliseconds(300) + kSlack);
  CHECK(pulled - back < absl::Milliseconds(300) + kSlack);
}

TEST_CASE("a port that nobody listens on is 'connection refused' at once, always in the same words") {
  const std::string address = DeadAddress();
  const std::string words = "can't reach paramd at " + address;
  std::vector<std::string> events;
  std::vector<float> center(10);
  std::vector<absl::Status> errors;
  const absl::Time begin = absl::Now();
  absl::Time told;
  for (const absl::Duration timeout : {absl::ZeroDuration(), absl::Milliseconds(100), absl::Milliseconds(1500)}) {
    const auto admin = Connect(address, timeout);
    errors.push_back(admin->GetStatus().status());
    errors.push_back(admin->Pull("m", absl::MakeSpan(center)).status());
    errors.push_back(Worker::Join({.server = address,
                                   .model = "m",
                                   .worker = "a",
                                   .join_timeout = timeout,
                                   .on_event =
                                       [&](absl::string_view event) {
                                         if (events.empty()) told = absl::Now();
                                         events.emplace_back(event);
                                       }})
                         .status());
  }
  for (const absl::Status& error : errors) {
    CHECK(error.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(error.message() == errors[0].message());
  }
  CHECK_THAT(std::string(errors[0].message()), Catch::Contains(words) && Catch::Contains("Connection refused"));
  // Once for each join, however many attempts that made.
  CHECK(events == std::vector<std::string>(3, "join: waiting for the server: " + std::string(errors[0].message())));
  CHECK(told - begin < kSlack);
}

TEST_CASE("a daemon that is killed in the middle of a call is unavailable, with its address and the cause") {
  Daemon daemon;
  const auto admin = Connect(daemon.address(), kCallTimeout);
  REQUIRE(admin->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto worker = Join({.server = daemon.address(), .model = "m", .worker = "a", .rpc_timeout = absl::Seconds(1)});
  std::vector<float> center(10);
  absl::Status status;
  {
    const Thread thread([&] { status = worker->Pull(absl::MakeSpan(center), absl::InfiniteDuration()).status(); });
    CHECK(Await([&] { return admin->GetModel("m")->waiting_workers() == 1; }));
    daemon.process().Signal(SIGKILL);
  }
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("can't reach paramd at " + daemon.address()) && Catch::Contains("Connection refused"));
}

// Lets workers join, and ends every stream of exchanges, as a proxy does that has nobody behind it, unless it was given
// an answer to all of them.
class BrokenServer : public v1::ParameterServer::Service {
 public:
  explicit BrokenServer(absl::Status answer = absl::OkStatus()) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  const std::string& address() const { return address_; }

  grpc::Status Join(grpc::ServerContext* /*context*/, const v1::JoinRequest* request, v1::JoinReply* reply) override {
    reply->mutable_model()->mutable_spec()->set_name(request->model());
    reply->mutable_model()->set_parameters(10);
    reply->set_incarnation(1);
    reply->set_lease_s(30);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext* /*context*/, const v1::LeaveRequest* /*request*/,
                     v1::LeaveReply* /*reply*/) override {
    return grpc::Status::OK;
  }
  grpc::Status Exchange(grpc::ServerContext* /*context*/,
                        grpc::ServerReaderWriter<v1::ExchangeReply, v1::ExchangeRequest>* stream) override {
    if (answer_.ok()) return {grpc::StatusCode::UNAVAILABLE, "no healthy upstream"};
    v1::ExchangeReply reply;
    reply.mutable_header()->set_code(static_cast<int>(answer_.code()));
    reply.mutable_header()->set_message(std::string(answer_.message()));
    for (v1::ExchangeRequest request; stream->Read(&request);) {
      if (!request.has_header()) continue;
      ++answers_;
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  int answers() const { return answers_; }

 private:
  const absl::Status answer_;
  std::atomic<int> answers_{0};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_CASE("a server that only ends streams gives no sign of life") {
  const BrokenServer server;
  int events = 0;
  const auto worker = Join({.server = server.address(),
                            .model = "m",
                            .worker = "a",
                            .rpc_timeout = absl::Seconds(3),  // longer than the backoff
                            .transport = Transport::kGrpc,
                            .on_event = [&](absl::string_view) { ++events; }});
  std::vector<float> center(10);
  const auto [status, took] = Time([&] { return worker->Pull(absl::MakeSpan(center), absl::Seconds(20)).status(); });
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(status.message()), Catch::Contains("no healthy upstream"));
  CHECK(took < absl::Seconds(3) + kSlack);
  CHECK(events == 1);
}

TEST_CASE("an exchange that is refused for good is not tried again") {
  const absl::Status full = absl::ResourceExhaustedError("there is no memory for the center");
  const BrokenServer server(full);
  const auto worker = Join({.server = server.address(), .model = "m", .worker = "a", .transport = Transport::kGrpc});
  std::vector<float> center(10);
  CHECK(worker->Pull(absl::MakeSpan(center), kCallTimeout).status() == full);
  CHECK(worker->Commit(center, kCallTimeout).status() == full);
  CHECK(worker->last_commit() == CommitState::kNotApplied);
  CHECK(worker->Initialize(center, kCallTimeout) == full);
  CHECK(server.answers() == 3);
}

TEST_CASE("an answer that asks for another attempt is told once, and is the reason at the deadline") {
  const BrokenServer server(absl::UnavailableError("this server is going"));
  std::vector<std::string> events;
  const auto worker = Join({.server = server.address(),
                            .model = "m",
                            .worker = "a",
                            .transport = Transport::kGrpc,
                            .on_event = [&](absl::string_view event) { events.emplace_back(event); }});
  std::vector<float> center(10);
  CHECK(worker->Pull(absl::MakeSpan(center), absl::Seconds(1)).status() ==
        absl::DeadlineExceededError("this server is going"));
  CHECK(server.answers() > 1);
  CHECK(events == std::vector<std::string>{"exchange: this server is going"});
}

TEST_CASE("what will not get better is final at once") {
  const auto server = StartServer({.max_models = 1});
  const auto admin = Connect(server->address(), kCallTimeout);
  REQUIRE(admin->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto [models, took] = Time([&] { return admin->CreateModel(Spec("n", "downpour", 10)).status(); });
  INFO(models);
  CHECK(models.code() == absl::StatusCode::kResourceExhausted);
  CHECK(took < kSlack);
  v1::ModelSpec huge = Spec("huge", "downpour", 10);
  huge.mutable_tensors(0)->set_name(std::string(16 << 20, 'x'));
  const auto [message, message_took] = Time([&] { return admin->CreateModel(huge).status(); });
  INFO(message);
  CHECK(message.code() == absl::StatusCode::kResourceExhausted);
  CHECK(message_took < kSlack);
}

TEST_CASE("a pull that waits holds up no other call of its admin") {
  const auto server = StartServer();
  const auto admin = Connect(server->address(), kCallTimeout);
  REQUIRE(admin->CreateModel(Spec("m", "downpour", 10)).ok());
  constexpr int kPulls = 6;
  std::vector<absl::Status> statuses(kPulls);
  std::vector<std::vector<float>> centers(kPulls, std::vector<float>(10));
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kPulls; ++i) {
      threads.emplace_back([&, i] { statuses[i] = admin->Pull("m", absl::MakeSpan(centers[i])).status(); });
    }
    CHECK(Await([&] { return server->GetStatus().sessions() >= kPulls; }));
    CHECK(admin->Initialize("m", std::vector<float>(10, 4)).ok());
  }
  for (int i = 0; i < kPulls; ++i) {
    CHECK(statuses[i].ok());
    CHECK(centers[i] == std::vector<float>(10, 4));
  }
}

TEST_CASE("a center that the caller has no room for is refused by name") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  std::vector<float> small(9);
  const auto pulled = Connect(server->address(), kCallTimeout)->Pull("m", absl::MakeSpan(small));
  CHECK(pulled.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(pulled.status().message()), Catch::Contains("10 floats") && Catch::Contains("room for 9"));
}

}  // namespace
}  // namespace paramd
