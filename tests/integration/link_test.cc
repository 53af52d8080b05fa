// A daemon and a worker in network namespaces of their own with a link of 1 Gbit/s between them, as on two hosts.
#include <sched.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/fixtures.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 1'000'000;

// $1: a process in the other namespace, whose end becomes 10.0.0.1.
constexpr char kConnect[] = R"(
  PATH=$PATH:/usr/sbin:/sbin
  ip link add veth0 type veth peer name veth0 netns "$1"
  begin="nsenter --net=/proc/$1/ns/net"
  for address in 10.0.0.1 10.0.0.2; do
    $begin ip address add "$address/30" dev veth0
    $begin ip link set veth0 up
    $begin tc qdisc add dev veth0 root tbf rate 1gbit burst 256kb limit 8mb
    begin=
  done)";

// One test case: once a thread of gRPC runs, this process can't move to another namespace as a whole.
TEST_CASE("a worker exchanges with a daemon on another host") {
  // The daemon stays in the first namespace, the test goes on to a second one.
  if (unshare(CLONE_NEWNET) != 0) {
    testing::Skip(absl::StrCat("it needs root to make network namespaces: ", strerror(errno)));
    return;
  }
  const std::string port_file = TemporaryPath("port");
  Process daemon("server/paramd", {"--listen=0.0.0.0:0", "--insecure", "--port_file=" + port_file});
  REQUIRE(Await([&] { return !ReadFile(port_file).empty(); }));
  REQUIRE(unshare(CLONE_NEWNET) == 0);
  Process connect("/bin/sh", {"-ec", kConnect, "sh", absl::StrCat(daemon.pid())});
  if (connect.Wait() == 127) {
    testing::Skip(absl::StrCat("it needs ip, tc and nsenter: ", connect.Err()));
    return;
  }
  INFO(connect.Err());
  REQUIRE(connect.Wait() == 0);
  const std::string server = absl::StrCat("10.0.0.1:", absl::StripAsciiWhitespace(ReadFile(port_file)));

  CreateModel(server, Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 1));
  const std::vector<float> update(kFloats, 0.5);
  std::vector<float> center(kFloats);
  float expected = 1;
  for (const Wire wire : {Wire::kFloat32, Wire::kFloat16, Wire::kBfloat16}) {
    CAPTURE(static_cast<int>(wire));
    auto worker = Join({.server = server, .model = "m", .worker = "w", .wire = wire});
    CHECK(worker->transport() == Transport::kGrpc);
    const auto exchanged = worker->Exchange(update, absl::MakeSpan(center), kCallTimeout);
    INFO(exchanged.status());
    REQUIRE(exchanged.ok());
    expected += 0.5;
    CHECK(center == std::vector<float>(kFloats, expected));
  }

  const auto refused = Worker::Join({.server = server, .model = "m", .worker = "w", .transport = Transport::kShm});
  INFO(refused.status());
  CHECK(absl::IsUnavailable(refused.status()));
}

}  // namespace
}  // namespace paramd
