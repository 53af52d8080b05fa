// The end of a server in the test's own process.
#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 16 << 20;

// A reader that has asked for a center and takes nothing more from its connection.
class Deaf {
 public:
  explicit Deaf(const std::string& server) : proxy_(server), stub_(OpenChannel(proxy_.address(), kFloats * 8)) {
    StubSession ready(&stub_);
    REQUIRE(ready.Send(PullHeader("nothing")));
    REQUIRE(ready.Receive().has_value());
    proxy_.HoldReplies();
    REQUIRE(session_.emplace(&stub_).Send(PullHeader("m")));
  }
  ~Deaf() { proxy_.Cut(); }

 private:
  TcpProxy proxy_;
  v1::ParameterServer::Stub stub_;
  std::optional<StubSession> session_;
};

TEST_CASE("a peer that does not read can't hold up a shutdown") {
  const auto server = StartServer({.listen = "127.0.0.1:0"});
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 1));
  const Deaf deaf(server->address());
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() > 0; }));
  const absl::Time begin = absl::Now();
  server->Shutdown(absl::Milliseconds(100));
  CHECK(absl::Now() - begin < absl::Seconds(5));
}

TEST_CASE("what is on the wire when a server shuts down gets its grace, commits too") {
  const auto server = StartServer({.listen = "127.0.0.1:0"});
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  StubSession committing(&stub);
  StubSession initializing(&stub);
  StubSession idle(&stub);
  REQUIRE(Connect(server->address())->CreateModel(Spec("new", "downpour", 10)).ok());
  REQUIRE(
      committing.Send(CommitHeader(JoinByStub(&stub, "m", "a"), 1, 10, /*pull=*/true), 0, std::vector<float>(5, 1)));
  REQUIRE(initializing.Send(InitializeHeader("new", 10), 0, std::vector<float>(5, 1)));
  REQUIRE(idle.Send(PullHeader("m")));
  REQUIRE(idle.Receive().has_value());
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() >= 80; }));
  Thread shutdown([&] { server->Shutdown(absl::Seconds(60)); });
  // To say that nothing more comes would end it otherwise.
  CHECK_FALSE(idle.ReceiveMessage().has_value());
  const grpc::Status ended = idle.Finish();
  CHECK(ended.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK_THAT(ended.error_message(), Catch::Contains("the server is shutting down"));

  REQUIRE(committing.Send(5, std::vector<float>(5, 1)));
  const auto committed = committing.Receive();
  REQUIRE(committed.has_value());
  CHECK(committed->header.code() == 0);
  CHECK(committed->header.committed());
  CHECK(committed->center == std::vector<float>(10, 2));
  CHECK_FALSE(committing.ReceiveMessage().has_value());
  CHECK(committing.Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  REQUIRE(initializing.Send(5, std::vector<float>(5, 1)));
  const auto initialized = initializing.Receive();
  REQUIRE(initialized.has_value());
  CHECK(initialized->header.code() == 0);
}

TEST_CASE("a commit that takes longer than the grace ends with UNAVAILABLE") {
  const auto server = StartServer({.listen = "127.0.0.1:0"});
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  StubSession session(&stub);
  REQUIRE(session.Send(CommitHeader(JoinByStub(&stub, "m", "a"), 1, 10), 0, std::vector<float>(5, 1)));
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() > 0; }));
  server->Shutdown(absl::Milliseconds(100));
  const grpc::Status ended = session.Finish();
  CHECK(ended.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK_THAT(ended.error_message(), Catch::Contains("has shut down before this exchange was over"));
}

TEST_CASE("whoever shuts a server down returns when all is over, also if another one began") {
  const auto server = StartServer({.listen = "127.0.0.1:0"});
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 1));
  const Deaf deaf(server->address());
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() > 0; }));
  std::atomic<int> returned{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        server->Shutdown(absl::Seconds(1));
        CHECK(server->GetStatus().sessions() == 0);
        ++returned;
      });
    }
    CHECK(Await([&] { return server->GetStatus().draining(); }));
    CHECK(returned == 0);
  }
  CHECK(returned == 3);
}

}  // namespace
}  // namespace paramd
