// Lost replies, late starts and silence, as a worker lives through them.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"
#include "tests/support/transport.h"

namespace paramd {
namespace {

// What a call may take beyond its deadline, on a machine that is busy with other things.
constexpr absl::Duration kSlack = absl::Seconds(3);

struct Timed {
  absl::Status status;
  absl::Duration took;
};

template <typename Call>
Timed Time(const Call& call) {
  const absl::Time begin = absl::Now();
  absl::Status status = call();
  return {std::move(status), absl::Now() - begin};
}

int64_t Version(const Server& server) { return server.GetStatus().models(0).version(); }

TEST_CASE("a commit whose reply was lost is applied once and answered with the first answer") {
  const auto server = StartServer();
  const std::vector<float> center(1000, 8);
  CreateModel(server->address(), Spec("m", "downpour", 1000), center);
  TcpProxy proxy(server->address());
  const auto worker = Join(proxy.address(), "m", "a");
  std::vector<float> pulled(1000);
  REQUIRE(worker->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());
  const auto other = Join(server->address(), "m", "b");
  REQUIRE(other->Commit(std::vector<float>(1000, 100), kCallTimeout).ok());

  proxy.HoldReplies();
  absl::StatusOr<Exchanged> committed;
  {
    const Thread thread([&] { committed = worker->Commit(std::vector<float>(1000, 2), kCallTimeout); });
    CHECK(Await([&] { return Version(*server) == 2; }));
    // The retry must not be answered with what has become of the center since.
    CHECK(other->Commit(std::vector<float>(1000, 1000), kCallTimeout).ok());
    proxy.Cut();
  }
  INFO(committed.status());
  REQUIRE(committed.ok());
  CHECK(committed->version == 2);
  CHECK(committed->staleness == 1);
  const auto [after, version] = ReadCenter(server->address(), "m");
  CHECK(version == 3);
  CHECK(after == std::vector<float>(1000, 1110));
  CHECK(FindWorker(server->GetStatus().models(0), "a").commits() == 1);
}

TEST_CASE("an elastic exchange whose reply was lost is answered with the same center again") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "aeasgd", 1000, "", {{"rho", 2}, {"learning_rate", 0.25}}),
              std::vector<float>(1000, 8));
  TcpProxy proxy(server->address());
  const auto worker = Join(proxy.address(), "m", "a");
  const auto other = Join(server->address(), "m", "b");
  std::vector<float> pulled(1000);
  REQUIRE(worker->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());

  proxy.HoldReplies();
  absl::StatusOr<Exchanged> exchanged;
  {
    const Thread thread(
        [&] { exchanged = worker->Exchange(std::vector<float>(1000, 16), absl::MakeSpan(pulled), kCallTimeout); });
    CHECK(Await([&] { return Version(*server) == 1; }));
    std::vector<float> ignored(1000);
    CHECK(other->Exchange(std::vector<float>(1000, 0), absl::MakeSpan(ignored), kCallTimeout).ok());
    proxy.Cut();
  }
  INFO(exchanged.status());
  REQUIRE(exchanged.ok());
  CHECK(exchanged->version == 0);
  CHECK(pulled == std::vector<float>(1000, 8));
  const auto [after, version] = ReadCenter(server->address(), "m");
  CHECK(version == 2);
  // 8 + (16 - 8) / 2 = 12, and half of that after the other's exchange.
  CHECK(after == std::vector<float>(1000, 6));
  // Acknowledged, the answers are let go.
  CHECK(Await([&] { return server->GetStatus().models(0).pinned_bytes() == 0; }));
}

TEST_CASE("a connection cut while idle is not noticed by the next exchange") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  TcpProxy proxy(server->address());
  const auto worker = Join(proxy.address(), "m", "a");
  for (int i = 1; i <= 5; ++i) {
    const auto committed = worker->Commit(std::vector<float>(10, 1), kCallTimeout);
    INFO(committed.status());
    REQUIRE(committed.ok());
    CHECK(committed->version == i);
    proxy.Cut();
  }
}

TEST_CASE("a late commit of an incarnation that was replaced is refused") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  const auto old = Join(server->address(), "m", "a");
  REQUIRE(old->Commit(std::vector<float>(10, 1), kCallTimeout).ok());
  const auto young = Join(server->address(), "m", "a");
  CHECK(young->incarnation() == old->incarnation() + 1);
  const auto late = old->Commit(std::vector<float>(10, 1), kCallTimeout);
  CHECK(late.status().code() == absl::StatusCode::kAborted);
  CHECK_THAT(std::string(late.status().message()),
             Catch::Contains("'a'") && Catch::Contains("fenced by incarnation 2") && Catch::Contains("stop this one"));
  CHECK(ReadCenter(server->address(), "m").second == 1);
  // The old one's leaving must not take the new one with it.
  CHECK_FALSE(old->Leave().ok());
  CHECK(young->Commit(std::vector<float>(10, 1), kCallTimeout).ok());
  const auto lower = Worker::Join({.server = server->address(), .model = "m", .worker = "a", .incarnation = 1});
  CHECK(lower.status().code() == absl::StatusCode::kAborted);
}

TEST_CASE("a worker waits for a daemon that starts later") {
  const std::string address = "unix:" + TemporaryPath("socket");
  absl::StatusOr<std::unique_ptr<Worker>> worker;
  std::unique_ptr<Server> server;
  {
    const v1::ModelSpec spec = Spec("", "downpour", 10);
    const Thread thread([&] {
      worker = Worker::Join({.server = address,
                             .model = "m",
                             .worker = "a",
                             .create = std::make_shared<const v1::ModelSpec>(spec),
                             .join_timeout = kCallTimeout});
    });
    server = StartServer({.listen = address});
  }
  INFO(worker.status());
  REQUIRE(worker.ok());
  CHECK((*worker)->model().spec().name() == "m");
}

TEST_CASE("a worker of a daemon that restarted without its state is told that this is another one") {
  const std::string address = "unix:" + TemporaryPath("socket");
  auto server = StartServer({.listen = address});
  CreateModel(address, Spec("m", "downpour", 10), std::vector<float>(10, 1));
  const auto worker = Join(address, "m", "a");
  server.reset();
  server = StartServer({.listen = address});
  const auto committed = worker->Commit(std::vector<float>(10, 1), kCallTimeout);
  CHECK(committed.status().code() == absl::StatusCode::kAborted);
  CHECK_THAT(std::string(committed.status().message()),
             Catch::Contains("another daemon") && Catch::Contains("join again"));
}

TEST_CASE("join gives up at its deadline") {
  const SilentListener silent;
  for (const std::string& address : {"unix:" + TemporaryPath("nobody"), silent.address()}) {
    INFO(address);
    const Timed join = Time([&] {
      return Worker::Join({.server = address, .model = "m", .worker = "a", .join_timeout = absl::Milliseconds(700)})
          .status();
    });
    INFO(join.status);
    CHECK(join.status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(std::string(join.status.message()), Catch::Contains(address));
    CHECK(join.took >= absl::Milliseconds(600));
    CHECK(join.took < absl::Milliseconds(700) + kSlack);
  }
}

TEST_CASE("tools give up on a silent server at their deadline") {
  const SilentListener silent;
  auto admin = Admin::Connect(silent.address(), absl::Milliseconds(500));
  REQUIRE(admin.ok());
  std::vector<float> center(10);
  for (const Timed& call :
       {Time([&] { return (*admin)->GetStatus().status(); }), Time([&] { return (*admin)->DeleteModel("m"); }),
        Time([&] { return (*admin)->Pull("m", absl::MakeSpan(center)).status(); }),
        Time([&] { return (*admin)->Initialize("m", center); })}) {
    INFO(call.status);
    CHECK((absl::IsDeadlineExceeded(call.status) || absl::IsUnavailable(call.status)));
    CHECK_THAT(std::string(call.status.message()), Catch::Contains(silent.address()));
    CHECK(call.took < absl::Milliseconds(500) + kSlack);
  }
}

TEST_CASE("a daemon that stops answering is given up on") {
  // Larger than what the sockets hold.
  constexpr size_t kFloats = 8 << 20;
  const std::string listen = GENERATE(as<std::string>(), "127.0.0.1:0", "unix:" + TemporaryPath("socket"));
  Daemon daemon({"--listen=" + listen});
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  const auto patient =
      Join({.server = daemon.address(), .model = "m", .worker = "patient", .rpc_timeout = absl::Minutes(10)});
  const auto impatient =
      Join({.server = daemon.address(), .model = "m", .worker = "impatient", .rpc_timeout = absl::Seconds(1)});
  std::vector<float> pulled(kFloats);
  std::vector<float> ones(kFloats, 1);
  // Connections that have proved themselves hold more bytes on the way.
  for (const auto& worker : {patient.get(), impatient.get()}) {
    REQUIRE(worker->Exchange(std::vector<float>(kFloats, 0), absl::MakeSpan(pulled), kCallTimeout).ok());
  }

  daemon.process().Stop();
  // What keeps the heartbeats' calls under way, too.
  for (const auto& worker : {patient.get(), impatient.get()}) REQUIRE(worker->Report({}, {{.step = 1}}).ok());

  const absl::Duration timeout = absl::Seconds(1);
  for (const Timed& call : {
           Time([&] { return patient->Pull(absl::MakeSpan(pulled), timeout).status(); }),
           Time([&] { return patient->Commit(ones, timeout).status(); }),
           Time([&] { return patient->Exchange(ones, absl::MakeSpan(pulled), timeout).status(); }),
           Time([&] { return patient->Initialize(ones, timeout); }),
       }) {
    INFO(call.status);
    CHECK(call.status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(std::string(call.status.message()), Catch::Contains(daemon.address()));
    CHECK(call.took >= timeout - absl::Milliseconds(100));
    CHECK(call.took < timeout + kSlack);
  }
  for (const Timed& call : {
           Time([&] { return impatient->Pull(absl::MakeSpan(pulled), absl::InfiniteDuration()).status(); }),
           Time([&] { return impatient->Commit(ones, absl::InfiniteDuration()).status(); }),
       }) {
    INFO(call.status);
    CHECK(call.status.code() == absl::StatusCode::kUnavailable);
    CHECK(call.took < timeout + kSlack);
  }

  // The memory is the caller's again: nothing that is written there now may reach the daemon.
  std::fill(ones.begin(), ones.end(), 7.0f);
  daemon.process().Signal(SIGCONT);
  const auto [center, version] = ReadCenter(daemon.address(), "m");
  CHECK(version == 2);
  CHECK(center == std::vector<float>(kFloats, 0));
  const auto committed = patient->Commit(ones, kCallTimeout);
  INFO(committed.status());
  REQUIRE(committed.ok());
  CHECK(committed->version == 3);
}

TEST_CASE("a daemon that stops in the middle of a commit is given up on, and the memory is the caller's again") {
  constexpr size_t kFloats = 8 << 20;
  const std::string listen = GENERATE(as<std::string>(), "127.0.0.1:0", "unix:" + TemporaryPath("socket"));
  Daemon daemon({"--listen=" + listen});
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  const auto worker = Join(daemon.address(), "m", "a");
  const auto admin = Connect(daemon.address());
  std::vector<float> ones(kFloats, 1);
  const absl::Duration timeout = absl::Seconds(1);
  for (int i = 0; i < 2; ++i) {
    int64_t commits = 0;
    Timed last;
    {
      const Thread thread([&] {
        do {
          last = Time([&] { return worker->Commit(ones, timeout).status(); });
          ++commits;
        } while (last.status.ok());
      });
      if (TestWorkerTransport() == Transport::kGrpc) {
        CHECK(Await([&] { return admin->GetStatus()->in_flight_bytes() > 0; }));
      } else {
        const int64_t before = admin->GetModel("m")->version();
        CHECK(Await([&] { return admin->GetModel("m")->version() > before; }));
      }
      daemon.process().Stop();
      // What keeps the heartbeats' calls under way, too.
      CHECK(worker->Report({}, {{.step = i}}).ok());
    }
    INFO(last.status);
    CHECK(last.status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(last.took < timeout + kSlack);
    // Whatever still reached the daemon would be seen there.
    std::fill(ones.begin(), ones.end(), 7.0f);
    daemon.process().Signal(SIGCONT);
    std::vector<float> center;
    int64_t version = 0;
    CHECK(Await([&] {
      std::tie(center, version) = ReadCenter(daemon.address(), "m");
      return admin->GetStatus()->in_flight_bytes() == 0;
    }));
    CHECK(center == std::vector<float>(kFloats, static_cast<float>(version)));
    std::fill(ones.begin(), ones.end(), 1.0f);
  }
}

TEST_CASE("leaving a silent daemon takes no longer than it may") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  auto worker = Join(daemon.address(), "m", "a");
  daemon.process().Stop();
  const Timed gone = Time([&] {
    worker.reset();
    return absl::OkStatus();
  });
  CHECK(gone.took < absl::Seconds(1) + kSlack);
}

TEST_CASE("Cancel ends a pull that waits, and all later calls until Resume") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto worker = Join(server->address(), "m", "a");
  std::vector<float> pulled(10);
  absl::Status status;
  {
    const Thread thread([&] { status = worker->Pull(absl::MakeSpan(pulled), absl::InfiniteDuration()).status(); });
    CHECK(Await([&] { return FindWorker(server->GetStatus().models(0), "a").waiting(); }));
    worker->Cancel();
  }
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(worker->Pull(absl::MakeSpan(pulled), kCallTimeout).status().code() == absl::StatusCode::kCancelled);
  worker->Resume();
  REQUIRE(worker->Initialize(std::vector<float>(pulled.size(), 1), kCallTimeout).ok());
  CHECK(worker->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(Await([&] { return !FindWorker(server->GetStatus().models(0), "a").waiting(); }));
}

TEST_CASE("a stop requested from outside ends a join that waits for its daemon") {
  const std::string nowhere = "unix:" + TemporaryPath("nobody.sock");
  std::stop_source stop;
  std::atomic<bool> tried = false;
  absl::Status status;
  const Timed joined = Time([&] {
    const Thread thread([&] {
      WorkerOptions options{.server = nowhere, .model = "m", .worker = "a", .stop = stop.get_token()};
      status = Worker::Join(options).status();
      tried = true;
    });
    CHECK_FALSE(Await([&] { return tried.load(); }, absl::Milliseconds(100)));
    stop.request_stop();
    return absl::OkStatus();
  });
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(joined.took < kSlack);
}

TEST_CASE("a stop requested from outside ends a pull that waits, and training, and spares other workers") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 10)).ok());
  std::stop_source stop;
  const auto worker = Join({.server = server->address(), .model = "m", .worker = "a", .stop = stop.get_token()});
  const auto other = Join(server->address(), "m", "b");
  std::vector<float> pulled(10);
  absl::Status status;
  {
    const Thread thread([&] { status = worker->Pull(absl::MakeSpan(pulled), absl::InfiniteDuration()).status(); });
    CHECK(Await([&] { return FindWorker(server->GetStatus().models(0), "a").waiting(); }));
    stop.request_stop();
  }
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(other->Initialize(std::vector<float>(10), kCallTimeout).ok());
  CHECK(other->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());

  stop = std::stop_source();
  {
    const Thread thread([&] {
      Quadratic model(10, 0, 1);
      EmptyBatches batches(1'000'000'000);
      status = RunWorker({.server = server->address(), .model = "m", .worker = "c", .stop = stop.get_token()}, {},
                         &model, &batches)
                   .status();
    });
    CHECK(Await([&] { return Version(*server) > 0; }));
    stop.request_stop();
  }
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(FindWorker(server->GetStatus().models(0), "c").state() == v1::WorkerInfo::FAILED);
}

TEST_CASE("a pull before the initialization waits for it, or for its own deadline") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto worker = Join(server->address(), "m", "a");
  std::vector<float> pulled(10);
  const Timed early = Time([&] { return worker->Pull(absl::MakeSpan(pulled), absl::Seconds(1)).status(); });
  CHECK(early.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(early.status.message()), Catch::Contains("'m' has no center yet"));
  CHECK(early.took < absl::Seconds(1) + kSlack);
  absl::StatusOr<Exchanged> waited;
  {
    const Thread thread([&] { waited = worker->Pull(absl::MakeSpan(pulled), kCallTimeout); });
    CHECK(Await([&] { return FindWorker(server->GetStatus().models(0), "a").waiting(); }));
    CHECK(Connect(server->address())->Initialize("m", std::vector<float>(10, 4)).ok());
  }
  REQUIRE(waited.ok());
  CHECK(pulled == std::vector<float>(10, 4));
}

TEST_CASE("an idle worker keeps its lease over several of its lengths, a silent one loses it each time") {
  const auto server = StartServer({.lease = absl::Milliseconds(300)});
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto state = [&](const std::string& worker) {
    return FindWorker(server->GetStatus().models(0), worker).state();
  };
  const auto idle = Join(server->address(), "m", "idle");
  const auto stub = v1::ParameterServer::NewStub(OpenChannel(server->address()));
  for (uint64_t i = 1; i <= 4; ++i) {
    REQUIRE(JoinByStub(stub.get(), "m", "silent").incarnation() == i);
    CHECK(state("silent") == v1::WorkerInfo::LIVE);
    bool kept = true;
    CHECK(Await([&] {
      kept = kept && state("idle") == v1::WorkerInfo::LIVE;
      return state("silent") == v1::WorkerInfo::EXPIRED;
    }));
    CHECK(kept);
  }
  CHECK_THAT(FindWorker(server->GetStatus().models(0), "silent").message(),
             Catch::Contains("no sign of life for 300ms"));
}

}  // namespace
}  // namespace paramd
