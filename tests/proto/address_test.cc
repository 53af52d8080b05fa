#include "proto/address.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace paramd {
namespace {

TEST_CASE("good addresses come back as they were written") {
  for (const std::string& text : std::vector<std::string>{
           "127.0.0.1:5000", "localhost:1", "a-b_c.example.org:65535", "[::1]:5000", "[fe80::1%lo]:7", "[fe80::1%3]:7",
           "example.org.:1", "1.example:1", std::string(63, 'x') + ":1", "unix:/run/x", "unix://run/x",
           "unix:relative:7", "node7:5000"}) {
    INFO(text);
    const auto address = ParseServerAddress(text);
    REQUIRE(address.ok());
    CHECK(address->ToString() == text);
  }
}

TEST_CASE("an address that can't be names the part that is wrong") {
  const std::pair<std::string, std::string> bad[] = {
      {"", "the port is missing"},
      {"localhost", "the port is missing"},
      {"localhost:", "the port is missing"},
      {":5000", "the host is empty"},
      {"127.0.0.1:70000", "the port '70000' is above 65535"},
      {"127.0.0.1:99999999999999999999", "is above 65535"},
      {"127.0.0.1:5000abc", "the port '5000abc' is no number"},
      {"127.0.0.1: 5000", "the port ' 5000' is no number"},
      {"127.0.0.1:+5000", "the port '+5000' is no number"},
      {"127.0.0.1:-1", "the port '-1' is no number"},
      {"http://127.0.0.1:5000", "the host 'http://127.0.0.1' begins with a scheme"},
      {"127.0.0.1:5000/", "the port '5000/' is no number"},
      {"::1:5000", "write IPv6 addresses in brackets"},
      {"[::1]", "the port is missing"},
      {"[::1]5000", "the port is missing"},
      {"[::1", "has more than one colon"},
      {"[localhost]:5000", "the host 'localhost' is no IPv6 address"},
      {"300.1.1.1:5000", "the host '300.1.1.1' is no IPv4 address"},
      {"127.1:5000", "the host '127.1' is no IPv4 address"},
      {"0x7f.0.0.1:5000", "the host '0x7f.0.0.1' is no IPv4 address"},
      {"0x7f000001:5000", "is no IPv4 address"},
      {"127.0.0.0x1:5000", "is no IPv4 address"},
      {"127.0.0.1.:5000", "is no IPv4 address"},
      {"a..b:5000", "the host 'a..b' has an empty part between its dots"},
      {".a:5000", "has an empty part"},
      {".:5000", "has an empty part"},
      {std::string(64, 'x') + ".org:5000", "has a part of more than 63 characters"},
      {"[::1%]:5000", "the host '::1%' has an empty scope"},
      {"[fe80::1%nosuch]:5000", "the host 'fe80::1%nosuch' has a scope that is no interface of this host"},
      {"unix:/run/a,b", "the path '/run/a,b' has a comma"},
      {"my host:5000", "has characters that no name of a host has"},
      {"h\xff:5000", "has characters that no name of a host has"},
      {"unix:", "the path is empty"},
      {"unix:" + std::string(108, 'x'), "longer than the system's 107 characters"},
      {std::string("unix:/a\0b", 9), "has a zero byte"},
      {std::string(100'000, 'x') + ":1", "is longer than names of hosts can be"},
  };
  for (const auto& [text, problem] : bad) {
    INFO(text.substr(0, 100));
    const auto address = ParseServerAddress(text);
    CHECK(address.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(address.status().message()), Catch::Contains(problem));
    CHECK(address.status().message().size() < 500);
    CHECK(ParseListenAddress(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("port 0 is for listening only") {
  CHECK(ParseListenAddress("127.0.0.1:0")->port == 0);
  CHECK_THAT(
      std::string(ParseServerAddress("127.0.0.1:0").status().message()),
      Catch::Contains("the port '0' is none that a server can have; use HOST:PORT") && Catch::Contains("1 to 65535"));
}

TEST_CASE("what passes for loopback is loopback") {
  for (const std::string text : {"127.0.0.1:0", "127.9.8.7:0", "localhost:0", "LOCALHOST:0", "[::1]:0", "unix:x"}) {
    INFO(text);
    CHECK(ParseListenAddress(text)->loopback());
  }
  for (const std::string text : {"127.my.host:0", "10.1.2.3:0", "0.0.0.0:0", "[::]:0", "localhost.example.org:0"}) {
    INFO(text);
    CHECK_FALSE(ParseListenAddress(text)->loopback());
  }
}

TEST_CASE("what gRPC would take for something else is escaped") {
  CHECK(ParseServerAddress("unix:/a b%?#")->Target() == "unix:/a%20b%25%3f%23");
  CHECK(ParseServerAddress("dns:5000")->Target() == "dns:///dns:5000");
  CHECK(ParseServerAddress("[fe80::1%lo]:7")->Target() == "dns:///[fe80::1%25lo]:7");
  CHECK(ParseServerAddress("unix:///run//x")->Target() == "unix:/run//x");
  CHECK(ParseServerAddress("unix:run//x")->Target() == "unix:run//x");
}

}  // namespace
}  // namespace paramd
