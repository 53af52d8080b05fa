// A client's files that are replaced.
#include "client/credentials.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/address.h"
#include "tests/security/pem_folder.h"
#include "tests/support/fake_clock.h"

namespace paramd {
namespace {

TEST_CASE("each call that went with an older token is worth another try, whoever has seen the new one first") {
  const PemFolder folder;
  testing::FakeClock clock;
  folder.Write("token", "old");
  const auto credentials =
      Credentials::Load({.token_file = folder.Path("token")}, *ParseServerAddress("127.0.0.1:1"), &clock);
  REQUIRE(credentials.ok());
  const auto authorize = [&] {
    grpc::ClientContext call;
    return (*credentials)->Authorize(&call);
  };
  const uint64_t stream = authorize();
  const uint64_t heartbeat = authorize();
  clock.Advance(absl::Minutes(1));
  CHECK_FALSE((*credentials)->Refresh(heartbeat));
  folder.Write("token", "new");
  CHECK((*credentials)->Refresh(heartbeat));
  const uint64_t renewed = authorize();
  // The server may not have read its own file yet.
  CHECK((*credentials)->Refresh(renewed));
  clock.Advance(absl::Minutes(1));
  CHECK((*credentials)->Refresh(stream));
  CHECK_FALSE((*credentials)->Refresh(renewed));
}

}  // namespace
}  // namespace paramd
