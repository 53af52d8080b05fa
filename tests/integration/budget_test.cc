// What peers can make the server hold, and that nobody starves nobody.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/tensor_codec.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

// Two centers of it, or two commits, fill the cap.
constexpr size_t kLargeFloats = 10'000'000;
constexpr uint64_t kLargeBytes = kLargeFloats * sizeof(float);

uint64_t ResidentBytes(Daemon* daemon) { return daemon->process().StatusNumber("RssAnon") * 1024; }

// Readers of "m", which has kLargeFloats, that take all the room there is and do not read.
std::vector<std::unique_ptr<StubSession>> Hoard(Server* server, v1::ParameterServer::Stub* stub) {
  std::vector<std::unique_ptr<StubSession>> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(std::make_unique<StubSession>(stub));
    REQUIRE(readers.back()->Send(PullHeader("m")));
  }
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == 2 * kLargeBytes; }));
  return readers;
}

TEST_CASE("readers that ask for a center and never read it don't starve the others") {
  const auto server = StartServer({.stall_timeout = absl::Milliseconds(500)});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const std::vector<std::unique_ptr<StubSession>> readers = Hoard(server.get(), &stub);
  CHECK(ReadCenter(server->address(), "m").first.size() == kLargeFloats);
  // Theirs are cancelled.
  for (const auto& reader : readers) CHECK_FALSE(reader->Receive().has_value());
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
}

TEST_CASE("commits that are sent half don't starve the others, and are told why they end") {
  const auto server = StartServer({.stall_timeout = absl::Milliseconds(500)});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<std::unique_ptr<StubSession>> halves;
  for (int i = 0; i < 2; ++i) {
    halves.push_back(std::make_unique<StubSession>(&stub));
    const v1::Participant worker = JoinByStub(&stub, "m", absl::StrCat("half-", i));
    REQUIRE(halves.back()->Send(CommitHeader(worker, 1, kLargeFloats)));
    REQUIRE(halves.back()->Send(0, std::vector<float>(kChunkFloats, 1)));
  }
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == 2 * kLargeBytes; }));
  const auto worker = Join({.server = server->address(), .model = "m", .worker = "w", .transport = Transport::kGrpc});
  const auto committed = worker->Commit(std::vector<float>(kLargeFloats, 1), kCallTimeout);
  INFO(committed.status());
  CHECK(committed.ok());
  // The room of one was enough for it.
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  for (const auto& half : halves) {
    const grpc::Status status = half->Finish();
    CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    CHECK_THAT(status.error_message(), Catch::Contains("--stall_timeout") && Catch::Contains("send it again"));
  }
  CHECK(ReadCenter(server->address(), "m").second == 1);
}

TEST_CASE("a peer that goes on by a MiB at a time, and one that is idle between exchanges, are not ended") {
  const auto server = StartServer({.stall_timeout = absl::Milliseconds(500)});
  constexpr size_t kFloats = 1'000'000;
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  StubSession slow(&stub);
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    REQUIRE(slow.Send(CommitHeader(worker, sequence, kFloats)));
    for (size_t sent = 0; sent < kFloats; sent += kChunkFloats) {
      absl::SleepFor(absl::Milliseconds(250));
      REQUIRE(slow.Send(sent, std::vector<float>(std::min(kChunkFloats, kFloats - sent), 1)));
    }
    const auto committed = slow.Receive();
    REQUIRE(committed.has_value());
    CHECK(committed->header.version() == static_cast<int64_t>(sequence));
    absl::SleepFor(absl::Milliseconds(800));
  }
}

TEST_CASE("peers that send little or nothing at all every now and then don't starve the others") {
  // A MiB is little of a commit that is more than 32 times as long.
  const size_t floats_each = GENERATE(as<size_t>(), 0, 1, kChunkFloats);
  const absl::Duration pause = absl::Milliseconds(floats_each == kChunkFloats ? 400 : 50);
  const auto server = StartServer({.stall_timeout = absl::Milliseconds(500)});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<Thread> tricklers;
  for (int i = 0; i < 2; ++i) {
    const v1::Participant worker = JoinByStub(&stub, "m", absl::StrCat("trickle-", i));
    tricklers.emplace_back([&stub, worker, floats_each, pause] {
      StubSession session(&stub);
      bool open = session.Send(CommitHeader(worker, 1, kLargeFloats, /*pull=*/true));
      for (size_t sent = 0; open; sent += floats_each) {
        open = session.Send(sent, std::vector<float>(floats_each, 1));
        absl::SleepFor(pause);
      }
    });
  }
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == 2 * kLargeBytes; }));
  const auto worker = Join({.server = server->address(), .model = "m", .worker = "w", .transport = Transport::kGrpc});
  const auto committed = worker->Commit(std::vector<float>(kLargeFloats, 1), kCallTimeout);
  INFO(committed.status());
  CHECK(committed.ok());
}

TEST_CASE("a first center that there is no memory for is refused at once, with the reason") {
  constexpr size_t kFloats = size_t{64} << 20;
  Daemon daemon;
  REQUIRE(Connect(daemon.address())->CreateModel(Spec("m", "downpour", kFloats)).ok());
  const auto worker = Join({.server = daemon.address(), .model = "m", .worker = "w", .transport = Transport::kGrpc});
  // For the floats as they come, but not for the center as well.
  const rlim_t bytes = (daemon.process().StatusNumber("VmSize") << 10) + kFloats * sizeof(float) * 13 / 8;
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  REQUIRE(prlimit(daemon.process().pid(), RLIMIT_AS, &limit, nullptr) == 0);
  const absl::Status refused = worker->Initialize(std::vector<float>(kFloats, 1), kCallTimeout);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("no memory for the center of model 'm'"));
}

TEST_CASE("a daemon that runs out of memory refuses what needs some, and lives") {
  constexpr size_t kFloats = 2'000'000;
  Daemon daemon;
  const auto admin = Connect(daemon.address());
  const rlim_t bytes = (daemon.process().StatusNumber("VmSize") << 10) + (rlim_t{120} << 20);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  REQUIRE(prlimit(daemon.process().pid(), RLIMIT_AS, &limit, nullptr) == 0);
  const std::vector<float> center(kFloats, 1);
  size_t models = 0;
  absl::Status status;
  for (; status.ok() && models < 100; ++models) {
    const std::string name = absl::StrCat("m", models);
    status = admin->CreateModel(Spec(name, "downpour", kFloats)).status();
    if (status.ok()) status = admin->Initialize(name, center);
  }
  INFO(models << " models; " << status);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(models > 4);
  // Descriptions are of any size, too.
  v1::ModelSpec long_spec = Spec("long", "downpour", 1);
  for (int i = 0; i < 60'000; ++i) {
    v1::Tensor* const tensor = long_spec.add_tensors();
    tensor->set_name(absl::StrCat("a tensor with quite a long name, so that it takes some memory, ", i));
    tensor->add_shape(1);
  }
  for (int i = 0; i < 100 && status.code() == absl::StatusCode::kResourceExhausted; ++i) {
    long_spec.set_name(absl::StrCat("long", i));
    if (const auto made = admin->CreateModel(long_spec); !made.ok()) status = made.status();
  }
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  const auto commit_all = [&] {
    std::vector<absl::Status> results(8);
    std::vector<Thread> threads;
    for (size_t w = 0; w < results.size(); ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join({.server = daemon.address(),
                                    .model = absl::StrCat("m", w % 2),
                                    .worker = absl::StrCat("w", w),
                                    .transport = w < 6 ? Transport::kGrpc : Transport::kAuto});
        results[w] = worker.ok() ? (*worker)->Commit(center, kCallTimeout).status() : worker.status();
      });
    }
    for (Thread& thread : threads) thread.Join();
    return results;
  };
  for (const absl::Status& result : commit_all()) {
    INFO(result);
    CHECK((result.ok() || result.code() == absl::StatusCode::kResourceExhausted));
  }
  // Whoever makes room finds it there.
  for (size_t i = 2; i < models; ++i) REQUIRE(admin->DeleteModel(absl::StrCat("m", i)).ok());
  // Once those are freed, which they are by whichever thread polls.
  CHECK(Await([&] {
    const std::vector<absl::Status> results = commit_all();
    return std::all_of(results.begin(), results.end(), [](const absl::Status& result) { return result.ok(); });
  }));
  daemon.process().Signal(SIGTERM);
  CHECK(daemon.process().Wait() == 0);
}

TEST_CASE("a commit that has to wait for other workers is not kept with a large chunk that came with its header") {
  const auto server = StartServer();
  constexpr size_t kFloats = 1'000'000;
  CreateModel(server->address(), Spec("m", "aeasgd", kFloats, "bounded:0"), std::vector<float>(kFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  REQUIRE(JoinByStub(&stub, "m", "slow").incarnation() != 0);
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  StubSession session(&stub);
  REQUIRE(session.Send(CommitHeader(worker, 1, kFloats), 0, std::vector<float>(kChunkFloats, 1)));
  const auto refused = session.Receive();
  REQUIRE(refused.has_value());
  CHECK(refused->header.code() == static_cast<int>(absl::StatusCode::kUnavailable));
  CHECK_THAT(refused->header.message(), Catch::Contains("wait for other workers") && Catch::Contains("back off"));
  // A header alone waits.
  REQUIRE(session.Send(CommitHeader(worker, 1, kFloats)));
  CHECK(Await([&] { return server->GetStatus().models(0).waiting_workers() == 1; }));
}

TEST_CASE("whoever would wait for ever may say so") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 1)).ok());
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  StubSession session(&stub);
  v1::ExchangeHeader pull = PullHeader("m");
  pull.set_wait_ms(~uint64_t{0});
  REQUIRE(session.Send(pull));
  CHECK(Await([&] { return server->GetStatus().sessions() == 1; }));
  absl::SleepFor(absl::Milliseconds(200));
  REQUIRE(Connect(server->address())->Initialize("m", std::vector<float>(1, 3)).ok());
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);
  CHECK(answer->center == std::vector<float>{3});
}

TEST_CASE("shared memory of a worker that is gone is given up, and there for others once its process lets go of it") {
  constexpr size_t kFloats = 1'000'000;
  // Of one worker, but not of two.
  const auto server = StartServer({.max_shared_bytes = 12'000'000});
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 1));
  std::unique_ptr<Worker> worker;
  const auto exchange = [&](const std::string& name) {
    INFO(name);
    worker = Join({.server = server->address(), .model = "m", .worker = name, .transport = Transport::kShm});
    std::vector<float> center(kFloats);
    CHECK(worker->Exchange(std::vector<float>(kFloats, 1), absl::MakeSpan(center), kCallTimeout).ok());
  };
  const auto let_go = [&] {
    CHECK(Await([&] { return server->GetStatus().segments() == 0; }));
    CHECK(server->GetStatus().shared_bytes() > 8'000'000);
    worker.reset();
    CHECK(Await([&] { return server->GetStatus().shared_bytes() == 0; }));
  };
  exchange("a");
  CHECK(worker->Leave().ok());
  let_go();
  exchange("b");
  // A new process of that name.
  const auto other = Join({.server = server->address(), .model = "m", .worker = "b", .transport = Transport::kGrpc});
  let_go();
  exchange("b");
  REQUIRE(Connect(server->address())->DeleteModel("m").ok());
  let_go();
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 1));
  exchange("c");
}

void Leave(v1::ParameterServer::Stub* stub, const v1::Participant& worker) {
  grpc::ClientContext context;
  v1::LeaveRequest request;
  *request.mutable_participant() = worker;
  v1::LeaveReply reply;
  REQUIRE(stub->Leave(&context, request, &reply).ok());
}

TEST_CASE("what a worker holds in the middle of a commit is released when its lease ends, or it leaves") {
  const bool leaves = GENERATE(false, true);
  const auto server = StartServer({.lease = leaves ? absl::Hours(1) : absl::Milliseconds(300)});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  StubSession half(&stub);
  REQUIRE(half.Send(CommitHeader(worker, 1, kLargeFloats)));
  REQUIRE(half.Send(0, std::vector<float>(kChunkFloats, 1)));
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == kLargeBytes; }));
  if (leaves) Leave(&stub, worker);
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  CHECK_FALSE(half.Finish().ok());
}

TEST_CASE("answers that nobody acknowledges don't starve the others") {
  const auto server = StartServer({.stall_timeout = absl::Milliseconds(500)});
  CreateModel(server->address(), Spec("m", "aeasgd", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<std::unique_ptr<StubSession>> sessions;
  for (int i = 0; i < 3; ++i) {
    const v1::Participant worker = JoinByStub(&stub, "m", absl::StrCat("w", i));
    sessions.push_back(std::make_unique<StubSession>(&stub));
    REQUIRE(sessions.back()->Send(CommitHeader(worker, 1, kLargeFloats, /*pull=*/true)));
    for (size_t sent = 0; sent < kLargeFloats; sent += kChunkFloats) {
      REQUIRE(sessions.back()->Send(sent, std::vector<float>(std::min(kChunkFloats, kLargeFloats - sent), 1)));
    }
    const auto answer = sessions.back()->Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.code() == 0);
    CHECK(answer->header.acknowledge());
    CHECK(server->GetStatus().in_flight_bytes() <= 2 * kLargeBytes);
  }
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
}

TEST_CASE("a center that is sent renews its worker's lease for as long as it takes") {
  constexpr absl::Duration kLease = absl::Milliseconds(500);
  const auto server = StartServer({.lease = kLease});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  v1::ExchangeHeader pull = PullHeader("m");
  *pull.mutable_participant() = JoinByStub(&stub, "m", "w");
  StubSession session(&stub);
  REQUIRE(session.Send(pull));
  const absl::Time begin = absl::Now();
  size_t floats = 0;
  while (floats < kLargeFloats) {
    const auto message = session.ReceiveMessage();
    REQUIRE(message.has_value());
    floats += message->chunk().data().size() / sizeof(float);
    if (floats < kLargeFloats) CHECK(server->GetStatus().models(0).live_workers() == 1);
    absl::SleepFor(absl::Milliseconds(40));
  }
  CHECK(absl::Now() - begin > 2 * kLease);
  CHECK(Await([&] { return server->GetStatus().models(0).live_workers() == 0; }));
}

// With gRPC's own window of 64 KiB, which does not take a center of one block.
std::shared_ptr<grpc::Channel> OpenNarrowChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

TEST_CASE("what is sent to a worker is released when it is gone or its model is, though it does not read") {
  const std::string how = GENERATE(as<std::string>(), "expired", "left", "fenced", "deleted");
  const size_t floats = GENERATE(size_t{250'000}, kLargeFloats);
  INFO(how << ", " << floats);
  const auto server = StartServer({.lease = how == "expired" ? absl::Milliseconds(300) : absl::Hours(1)});
  CreateModel(server->address(), Spec("m", "downpour", floats), std::vector<float>(floats, 1));
  v1::ParameterServer::Stub stub(OpenNarrowChannel(server->address()));
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  v1::ExchangeHeader pull = PullHeader("m");
  *pull.mutable_participant() = worker;
  StubSession session(&stub);
  REQUIRE(session.Send(pull));
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == floats * sizeof(float); }));
  if (how == "left") Leave(&stub, worker);
  if (how == "fenced") REQUIRE(JoinByStub(&stub, "m", "w").incarnation() == 2);
  if (how == "deleted") REQUIRE(Connect(server->address())->DeleteModel("m").ok());
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  // Its stream ends, or it is refused: it may be gone before there is anything to send.
  const auto answer = session.Receive();
  CHECK((!answer.has_value() || answer->header.code() != 0));
}

TEST_CASE("what readers and initializers of a model hold is released when it is deleted") {
  const bool reads = GENERATE(true, false);
  const auto server = StartServer();
  const auto admin = Connect(server->address());
  REQUIRE(admin->CreateModel(Spec("m", "downpour", kLargeFloats)).ok());
  if (reads) REQUIRE(admin->Initialize("m", std::vector<float>(kLargeFloats, 1)).ok());
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  StubSession session(&stub);
  REQUIRE(session.Send(reads ? PullHeader("m") : InitializeHeader("m", kLargeFloats)));
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == (reads ? 1 : 2) * kLargeBytes; }));
  REQUIRE(admin->DeleteModel("m").ok());
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
}

TEST_CASE("a worker whose lease ran out while its pull waited for room gets none, and asks again if it lives") {
  const auto server = StartServer({.lease = absl::Milliseconds(300)});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<std::unique_ptr<StubSession>> hoarders = Hoard(server.get(), &stub);
  v1::ExchangeHeader pull = PullHeader("m");
  *pull.mutable_participant() = JoinByStub(&stub, "m", "w");
  pull.set_wait_ms(60'000);
  StubSession session(&stub);
  REQUIRE(session.Send(pull));
  REQUIRE(Await([&] { return server->GetStatus().queued_exchanges() == 1; }));
  REQUIRE(Await([&] { return server->GetStatus().models(0).live_workers() == 0; }));
  hoarders.clear();
  const auto refused = session.Receive();
  REQUIRE(refused.has_value());
  CHECK(refused->header.code() == static_cast<int>(absl::StatusCode::kUnavailable));
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  REQUIRE(session.Send(pull));
  const auto pulled = session.Receive();
  REQUIRE(pulled.has_value());
  CHECK(pulled->center.size() == kLargeFloats);
}

// A header with a field that nobody knows, of so many bytes.
v1::ExchangeHeader WithUnknownField(const v1::ExchangeHeader& header, size_t bytes) {
  std::string encoded = header.SerializeAsString();
  encoded += "\xc2\x3e";  // number 1000, length-delimited
  for (size_t n = bytes;; n >>= 7) {
    encoded.push_back(static_cast<char>(n < 128 ? n : (n & 127) | 128));
    if (n < 128) break;
  }
  encoded.append(bytes, 'x');
  v1::ExchangeHeader with;
  REQUIRE(with.ParseFromString(encoded));
  return with;
}

TEST_CASE("neither an idle stream nor one that waits keeps what came beside the floats") {
  constexpr size_t kUnknownBytes = 7'000'000;
  const bool waits = GENERATE(false, true);
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "aeasgd", 4, "bounded:0"), std::vector<float>(4, 0));
  v1::ParameterServer::Stub stub(OpenChannel(daemon.address()));
  REQUIRE(JoinByStub(&stub, "m", "slow").incarnation() != 0);
  std::vector<std::unique_ptr<StubSession>> sessions;
  const auto send = [&] {
    sessions.push_back(std::make_unique<StubSession>(&stub));
    StubSession& session = *sessions.back();
    if (!waits) {
      v1::ExchangeHeader acknowledge = PullHeader("m");
      acknowledge.mutable_acknowledge()->set_sequence(1);
      REQUIRE(session.Send(WithUnknownField(acknowledge, kUnknownBytes)));
      REQUIRE(session.Send(PullHeader("nothing")));
      REQUIRE(session.Receive().has_value());
      return;
    }
    const v1::Participant worker = JoinByStub(&stub, "m", absl::StrCat("w", sessions.size()));
    v1::ExchangeHeader commit = WithUnknownField(CommitHeader(worker, 1, 4), kUnknownBytes);
    commit.set_wait_ms(60'000);
    REQUIRE(session.Send(commit, 0, std::vector<float>(4, 1)));
    const auto refused = session.Receive();
    REQUIRE(refused.has_value());
    CHECK(refused->header.code() == static_cast<int>(absl::StatusCode::kUnavailable));
  };
  for (int i = 0; i < 4; ++i) send();
  const uint64_t before = ResidentBytes(&daemon);
  for (int i = 0; i < 20; ++i) send();
  const uint64_t after = ResidentBytes(&daemon);
  INFO(before << " bytes before, " << after << " after");
  CHECK(after < before + 8 * kUnknownBytes);
}

TEST_CASE("reports of another process of the same incarnation are its own") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  for (const uint64_t nonce : {11, 22}) {
    v1::JoinRequest request;
    request.set_model("m");
    request.set_worker("w");
    request.set_incarnation(5);
    request.set_nonce(nonce);
    v1::JoinReply joined;
    grpc::ClientContext context;
    REQUIRE(stub.Join(&context, request, &joined).ok());
    v1::ReportHistoryRequest report;
    v1::Participant* const who = report.mutable_participant();
    who->set_model("m");
    who->set_worker("w");
    who->set_incarnation(5);
    who->set_nonce(nonce);
    who->set_model_id(joined.model().id());
    who->set_daemon_id(joined.daemon_id());
    report.set_batch(1);
    report.add_records()->set_step(nonce);
    // The second time it is a repeat.
    for (int i = 0; i < 2; ++i) {
      grpc::ClientContext reporting;
      v1::ReportHistoryReply reply;
      CHECK(stub.ReportHistory(&reporting, report, &reply).ok());
    }
  }
  v1::GetHistoryRequest request;
  request.set_model("m");
  grpc::ClientContext context;
  v1::GetHistoryReply reply;
  REQUIRE(stub.GetHistory(&context, request, &reply).ok());
  REQUIRE(reply.workers_size() == 1);
  REQUIRE(reply.workers(0).records_size() == 2);
  CHECK(reply.workers(0).records(0).step() == 11);
  CHECK(reply.workers(0).records(1).step() == 22);
}

TEST_CASE("a commit of 300,000 chunks takes the memory of its floats") {
  constexpr size_t kFloats = 300'000;
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  v1::ParameterServer::Stub stub(OpenChannel(daemon.address()));
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  StubSession session(&stub);
  // Once, so that what gRPC and malloc keep is there.
  const auto send = [&](uint64_t sequence, size_t chunks) {
    REQUIRE(session.Send(CommitHeader(worker, sequence, kFloats)));
    for (size_t i = 0; i < chunks; ++i) {
      if (!session.Send(i, std::vector<float>(1, 1))) FAIL("chunk " << i);
    }
  };
  send(1, 10'000);
  REQUIRE(session.Send(PullHeader("nothing")));
  REQUIRE(session.Receive().has_value());
  const uint64_t before = ResidentBytes(&daemon);
  send(2, kFloats - 1);
  v1::ExchangeHeader ask = PullHeader("m");
  StubSession reader(&stub);
  REQUIRE(reader.Send(ask));
  REQUIRE(reader.Receive().has_value());
  const uint64_t after = ResidentBytes(&daemon);
  INFO(before << " bytes before, " << after << " after");
  CHECK(after < before + (uint64_t{8} << 20));
  REQUIRE(session.Send(kFloats - 1, std::vector<float>(1, 1)));
  const auto committed = session.Receive();
  REQUIRE(committed.has_value());
  CHECK(committed->header.version() == 1);
}

TEST_CASE("a pull that gets its room after its worker left pins nothing") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "adaptive_adag", kLargeFloats), std::vector<float>(kLargeFloats, 1));
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  std::vector<std::unique_ptr<StubSession>> hoarders = Hoard(server.get(), &stub);
  const v1::Participant worker = JoinByStub(&stub, "m", "w");
  StubSession session(&stub);
  v1::ExchangeHeader pull = PullHeader("m");
  *pull.mutable_participant() = worker;
  pull.set_wait_ms(60'000);
  REQUIRE(session.Send(pull));
  REQUIRE(Await([&] { return server->GetStatus().queued_exchanges() == 1; }));
  Leave(&stub, worker);
  hoarders.clear();
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == static_cast<int>(absl::StatusCode::kFailedPrecondition));
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  CHECK(server->GetStatus().base_bytes() == 0);
  CHECK(server->GetStatus().models(0).pinned_bytes() == 0);
}

TEST_CASE("a deleted model is freed, and its share of the cap, while sessions that used it idle") {
  Daemon daemon;
  const auto admin = Connect(daemon.address());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 6; ++i) {
    const std::string name = absl::StrCat("m", i);
    CreateModel(daemon.address(), Spec(name, "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 1));
    workers.push_back(Join({.server = daemon.address(), .model = name, .worker = "w", .transport = Transport::kGrpc}));
    std::vector<float> center(kLargeFloats);
    REQUIRE(workers.back()->Pull(absl::MakeSpan(center), kCallTimeout).ok());
    REQUIRE(admin->GetStatus()->max_in_flight_bytes() == 2 * kLargeBytes);
    REQUIRE(admin->DeleteModel(name).ok());
  }
  CHECK(admin->GetStatus()->max_in_flight_bytes() == uint64_t{64} << 20);
  INFO(daemon.process().StatusNumber("VmHWM") << " kB at most");
  CHECK(daemon.process().StatusNumber("VmHWM") * 1024 < 4 * kLargeBytes);
}

TEST_CASE("all histories together stay within their cap, and are read whole") {
  constexpr uint64_t kCap = 4 << 20;
  const auto server = StartServer({.max_history_bytes = kCap});
  CreateModel(server->address(), Spec("m", "downpour", 1), {0});
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  constexpr int kRecords = 10'000;
  for (int w = 0; w < 15; ++w) {
    const v1::Participant worker = JoinByStub(&stub, "m", absl::StrCat("w", w));
    v1::ReportHistoryRequest report;
    *report.mutable_participant() = worker;
    report.set_batch(1);
    for (int i = 1; i <= kRecords; ++i) report.add_records()->set_step(i);
    grpc::ClientContext context;
    v1::ReportHistoryReply reported;
    REQUIRE(stub.ReportHistory(&context, report, &reported).ok());
    CHECK(server->GetStatus().history_bytes() <= kCap);
    if (w == 14) break;
    grpc::ClientContext leaving;
    v1::LeaveRequest leave;
    *leave.mutable_participant() = worker;
    v1::LeaveReply left;
    REQUIRE(stub.Leave(&leaving, leave, &left).ok());
  }
  CHECK(server->GetStatus().max_history_bytes() == kCap);
  v1::GetHistoryRequest request;
  request.set_model("m");
  int records = 0;
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::GetHistoryReply page;
    REQUIRE(stub.GetHistory(&context, request, &page).ok());
    CHECK(page.ByteSizeLong() < (size_t{1} << 20) + 4096);
    for (const v1::WorkerHistory& worker : page.workers()) records += worker.records_size();
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  CHECK(pages > 1);
  CHECK(records % kRecords == 0);
  CHECK(records >= 10 * kRecords);
}

TEST_CASE("a join's reply is as short whoever joined before") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 1), {0});
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const size_t first = JoinReplyByStub(&stub, "m", "w", 1).ByteSizeLong();
  for (int i = 0; i < 500; ++i) REQUIRE(JoinByStub(&stub, "m", absl::StrCat("worker-", i)).incarnation() != 0);
  CHECK(JoinReplyByStub(&stub, "m", "last", 2).ByteSizeLong() < first + 100);
}

}  // namespace
}  // namespace paramd
