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
