// A stream that ended while the server was still taking it up used to be counted, and kept, for ever.
#include <catch2/catch.hpp>

#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

TEST_CASE("streams that end as soon as they begin leave nothing behind") {
  const auto server = StartServer();
  const auto channel = OpenChannel(server->address());
  for (int i = 0; i < 1000; ++i) RawStream(channel).Cancel();
  CHECK(Await([&] { return server->GetStatus().sessions() == 0; }));
}

}  // namespace
}  // namespace paramd
