// TLS between client and server.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "client/admin.h"
#include "client/worker.h"
#include "security/pem.h"
#include "server/server.h"
#include "tests/security/pem_folder.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);
// Of what is not going to work.
constexpr absl::Duration kShort = absl::Milliseconds(300);

std::unique_ptr<Server> StartServer(ServerOptions options) {
  options.listen = "127.0.0.1:0";
  auto server = Server::Start(options);
  INFO(server.status());
  REQUIRE(server.ok());
  return *std::move(server);
}

absl::Status TryCall(const std::string& server, const Security& security, absl::Duration timeout) {
  auto admin = Admin::Connect(server, timeout, security);
  return admin.ok() ? (*admin)->ListModels().status() : admin.status();
}

absl::StatusOr<std::unique_ptr<Worker>> TryJoin(const std::string& server, const Security& security) {
  v1::ModelSpec spec;
  spec.set_algorithm("downpour");
  v1::Tensor* const tensor = spec.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(3);
  return Worker::Join({.server = server,
                       .model = "m",
                       .worker = "w",
                       .security = security,
                       .create = std::make_shared<v1::ModelSpec>(spec),
                       .join_timeout = kTimeout});
}

TEST_CASE("a worker exchanges over TLS") {
  const PemFolder pem;
  pem.Certify("server", {"127.0.0.1"});
  const auto server = StartServer({.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key")});
  const auto worker = TryJoin(server->address(), {.tls_ca = pem.Path("ca.pem")});
  REQUIRE(worker.ok());
  std::vector<float> center = {1, 2, 3};
  REQUIRE((*worker)->Initialize(center, kTimeout).ok());
  REQUIRE((*worker)->Exchange(std::vector<float>{1, 1, 1}, absl::MakeSpan(center), kTimeout).ok());
  CHECK(center == std::vector<float>{2, 3, 4});
}

TEST_CASE("a certificate that is not trusted ends the call at once, with the reason") {
  const PemFolder pem;
  const PemFolder others;
  pem.Certify("server", {"127.0.0.1"});
  pem.Certify("elsewhere", {"elsewhere"});
  const auto server = StartServer({.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key")});
  absl::Status status = TryCall(server->address(), {.tls_ca = others.Path("ca.pem")}, kTimeout);
  CHECK(absl::IsUnauthenticated(status));
  CHECK(absl::StrContains(status.message(), "tls_ca does not hold the authority"));

  const auto elsewhere = StartServer({.tls_cert = pem.Path("elsewhere.pem"), .tls_key = pem.Path("elsewhere.key")});
  status = TryCall(elsewhere->address(), {.tls_ca = pem.Path("ca.pem")}, kTimeout);
  CHECK(absl::IsUnauthenticated(status));
  CHECK(absl::StrContains(status.message(), "not for the host"));
}

TEST_CASE("TLS and none at the two ends is told as that") {
  const PemFolder pem;
  pem.Certify("server", {"127.0.0.1"});
  const auto secure = StartServer({.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key")});
  absl::Status status = TryCall(secure->address(), {}, kShort);
  CHECK_FALSE(status.ok());
  CHECK(absl::StrContains(status.message(), "does it want TLS"));

  const auto plain = StartServer({});
  status = TryCall(plain->address(), {.tls_ca = pem.Path("ca.pem")}, kTimeout);
  CHECK(absl::IsUnauthenticated(status));
  CHECK(absl::StrContains(status.message(), "does not speak TLS"));
}

TEST_CASE("where clients need a certificate, only theirs let them in") {
  const PemFolder pem;
  const PemFolder others;
  pem.Certify("server", {"127.0.0.1"});
  pem.Certify("client", {});
  others.Certify("client", {});
  const auto server = StartServer(
      {.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key"), .tls_client_ca = pem.Path("ca.pem")});
  const std::string ca = pem.Path("ca.pem");
  CHECK(TryCall(server->address(),
                {.tls_ca = ca, .tls_cert = pem.Path("client.pem"), .tls_key = pem.Path("client.key")}, kTimeout)
            .ok());
  CHECK_FALSE(TryCall(server->address(),
                      {.tls_ca = ca, .tls_cert = others.Path("client.pem"), .tls_key = others.Path("client.key")},
                      kShort)
                  .ok());
  const absl::Status none = TryCall(server->address(), {.tls_ca = ca}, kShort);
  CHECK_FALSE(none.ok());
  CHECK(absl::StrContains(none.message(), "does it want a certificate"));
}

TEST_CASE("certificates that are replaced are taken without a restart, and kept where the new ones do not fit") {
  const PemFolder pem;
  const PemFolder next;
  pem.Certify("server", {"127.0.0.1"});
  next.Certify("server", {"127.0.0.1"});
  const auto server = StartServer({.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key")});
  const Security before{.tls_ca = pem.Path("ca.pem")};
  const Security after{.tls_ca = next.Path("ca.pem")};
  REQUIRE(TryCall(server->address(), before, kTimeout).ok());
  // A client that stays connected meanwhile, whose own file is replaced, too.
  auto admin = Admin::Connect(server->address(), kTimeout, before);
  REQUIRE(admin.ok());
  REQUIRE((*admin)->ListModels().ok());

  pem.Write("server.key", ReadFile(next.Path("server.key")));
  absl::SleepFor(absl::Milliseconds(1200));
  CHECK(TryCall(server->address(), before, kTimeout).ok());
  pem.Write("server.pem", ReadFile(next.Path("server.pem")));
  Await([&] { return TryCall(server->address(), after, kTimeout).ok(); });
  CHECK((*admin)->ListModels().ok());
  CHECK(absl::IsUnauthenticated(TryCall(server->address(), before, kTimeout)));
  pem.Write("ca.pem", ReadFile(next.Path("ca.pem")));
  CHECK((*admin)->ListModels().ok());
  CHECK(TryCall(server->address(), before, kTimeout).ok());
}

TEST_CASE("a client's security comes from its options, else from the environment") {
  const PemFolder pem;
  pem.Certify("server", {"127.0.0.1"});
  const auto server = StartServer({.tls_cert = pem.Path("server.pem"), .tls_key = pem.Path("server.key")});
  setenv("PARAMD_SERVER", server->address().c_str(), 1);
  setenv("PARAMD_TLS_CA", pem.Path("ca.pem").c_str(), 1);
  CHECK(TryCall("", {}, kTimeout).ok());
  CHECK_FALSE(TryCall("", {.tls_ca = "none"}, kShort).ok());
  CHECK(TryCall("", {.tls_ca = ReadFile(pem.Path("ca.pem"))}, kTimeout).ok());
  unsetenv("PARAMD_SERVER");
  unsetenv("PARAMD_TLS_CA");
}

TEST_CASE("a client's files that can't be used are told before it connects") {
  const PemFolder pem;
  pem.Write("empty", "");
  const auto told = [](const Security& security, const std::string& server = "127.0.0.1:1") {
    const auto admin = Admin::Connect(server, kShort, security);
    CHECK(absl::IsInvalidArgument(admin.status()));
    return std::string(admin.status().message());
  };
  CHECK_THAT(told({.tls_ca = pem.Path("missing")}), Catch::StartsWith("tls_ca: " + pem.Path("missing")));
  CHECK_THAT(told({.tls_ca = pem.Path("empty")}), Catch::Contains("no PEM certificate"));
  CHECK_THAT(told({.tls_ca = pem.Path("ca.pem"), .tls_cert = pem.Path("ca.pem")}), Catch::Contains("go together"));
  CHECK_THAT(told({.tls_cert = pem.Path("ca.pem")}), Catch::Contains("no tls_ca"));
  CHECK_THAT(told({.token_file = pem.Path("missing")}), Catch::StartsWith("token_file: " + pem.Path("missing")));
  CHECK_THAT(told({.token_file = pem.Path("empty")}), Catch::Contains("no token"));
  CHECK_THAT(told({.token = "two words"}), Catch::Contains("one word"));
}

TEST_CASE("a token goes beyond this host over TLS only, unless the client is told otherwise") {
  const PemFolder pem;
  const auto connect = [](const std::string& server, const Security& security) {
    return Admin::Connect(server, kShort, security).status();
  };
  const absl::Status refused = connect("192.0.2.1:5000", {.token = "secret"});
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(absl::StrContains(refused.message(), "without TLS"));
  CHECK_FALSE(absl::StrContains(refused.message(), "secret"));
  CHECK(connect("192.0.2.1:5000", {.token = "secret", .insecure = true}).ok());
  CHECK(connect("192.0.2.1:5000", {.tls_ca = pem.Path("ca.pem"), .token = "secret"}).ok());
  CHECK(connect("127.0.0.1:5000", {.token = "secret"}).ok());
  // Nor is anything else used that might be lying about.
  Security own = NoSecurity();
  own.token = "secret";
  setenv("PARAMD_TOKEN_FILE", pem.Path("missing").c_str(), 1);
  CHECK(connect("127.0.0.1:5000", own).ok());
  unsetenv("PARAMD_TOKEN_FILE");
}

TEST_CASE("a server does not start with certificates that can't be used, nor beyond loopback without any") {
  const PemFolder pem;
  pem.Certify("a", {"127.0.0.1"});
  pem.Certify("b", {"127.0.0.1"});
  const auto told = [](ServerOptions options) {
    if (options.listen.empty()) options.listen = "127.0.0.1:0";
    const auto server = Server::Start(options);
    CHECK(absl::IsInvalidArgument(server.status()));
    return std::string(server.status().message());
  };
  CHECK_THAT(told({.listen = "", .tls_cert = pem.Path("a.pem"), .tls_key = pem.Path("b.key")}),
             Catch::StartsWith("--tls_key: it is another certificate's key"));
  CHECK_THAT(told({.listen = "", .tls_cert = pem.Path("a.pem")}), Catch::Contains("give both"));
  CHECK_THAT(told({.listen = "", .tls_client_ca = pem.Path("ca.pem")}), Catch::Contains("--tls_cert"));
  CHECK_THAT(told({.listen = "", .tls_cert = pem.Path("a.pem"), .tls_key = ReadFile(pem.Path("a.key"))}),
             Catch::StartsWith("--tls_key is the name of a file") && !Catch::Contains("BEGIN"));
  CHECK_THAT(told({.listen = "0.0.0.0:0"}), Catch::Contains("without TLS"));
  CHECK_THAT(told({.listen = "0.0.0.0:0", .tls_cert = pem.Path("a.pem"), .tls_key = pem.Path("a.key")}),
             Catch::Contains("for everybody"));
  CHECK_THAT(told({.listen = "", .token_file = pem.Path("missing")}), Catch::Contains("--token_file="));
  CHECK_THAT(told({.listen = "", .token_file = pem.Path("ca.pem")}), Catch::Contains("line 1: "));
}

}  // namespace
}  // namespace paramd
