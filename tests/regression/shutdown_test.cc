// A session that ended while the server shut down used to start an operation on a queue that was gone, at which gRPC
// aborts the process.
#include <catch2/catch.hpp>
#include <list>

#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

TEST_CASE("a server shuts down while sessions end") {
  for (int round = 0; round < 50; ++round) {
    const auto server = StartServer({.listen = "127.0.0.1:0", .threads = 1});
    const auto channel = OpenChannel(server->address());
    {
      std::list<RawStream> streams;
      for (int i = 0; i < 50; ++i) streams.emplace_back(channel);
      REQUIRE(Await([&] { return server->GetStatus().sessions() == streams.size(); }));
    }
    server->Shutdown(absl::ZeroDuration());
    CHECK(server->GetStatus().sessions() == 0);
  }
}

}  // namespace
}  // namespace paramd
