// The wire by generated stubs alone, in good and in bad order.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"
#include "tests/support/fake_clock.h"

namespace paramd {
namespace {

int Code(absl::StatusCode code) { return static_cast<int>(code); }

std::unique_ptr<v1::ParameterServer::Stub> NewStub(const Server& server) {
  return v1::ParameterServer::NewStub(OpenChannel(server.address()));
}

// Bytes on an exchange stream as they are, and how it then ends.
grpc::Status SendBytes(const Server& server, const std::string& bytes) {
  RawStream stream(OpenChannel(server.address()));
  stream.Write(bytes);
  return stream.Finish();
}

TEST_CASE("generated stubs initialize, pull, commit and exchange") {
  const auto server = StartServer();
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 1000)).ok());
  const auto stub = NewStub(*server);
  const v1::Participant a = JoinByStub(stub.get(), "m", "a");
  REQUIRE(a.incarnation() == 1);
  StubSession session(stub.get());

  REQUIRE(session.Send(InitializeHeader("m", 1000), 0, std::vector<float>(1000, 5)));
  auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);

  REQUIRE(session.Send(PullHeader("m")));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);
  CHECK(answer->header.version() == 0);
  CHECK(answer->center == std::vector<float>(1000, 5));

  // A commit in chunks of any size.
  REQUIRE(session.Send(CommitHeader(a, 1, 1000)));
  REQUIRE(session.Send(0, std::vector<float>(1, 2)));
  REQUIRE(session.Send(1, std::vector<float>(998, 2)));
  REQUIRE(session.Send(999, std::vector<float>(1, 2)));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.committed());
  CHECK(answer->header.version() == 1);
  CHECK(answer->center.empty());

  v1::ExchangeHeader exchange = CommitHeader(a, 2, 1000);
  exchange.mutable_commit()->set_base_version(1);
  exchange.mutable_commit()->set_pull(true);
  REQUIRE(session.Send(exchange, 0, std::vector<float>(1000, 3)));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.committed());
  CHECK(answer->header.version() == 2);
  CHECK(answer->header.staleness() == 0);
  CHECK(answer->center == std::vector<float>(1000, 10));

  // The same sequence again is a retry.
  REQUIRE(session.Send(exchange, 0, std::vector<float>(1000, 3)));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.committed());
  CHECK(answer->header.version() == 2);
  CHECK(answer->center == std::vector<float>(1000, 10));
  CHECK(session.Finish().ok());
}

TEST_CASE("every chunk of a first center renews its sender's lease") {
  testing::FakeClock clock;
  const auto server = StartServer({.lease = absl::Seconds(10), .clock = &clock});
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 4)).ok());
  const auto stub = NewStub(*server);
  const v1::Participant participant = JoinByStub(stub.get(), "m", "a");
  StubSession session(stub.get());
  v1::ExchangeHeader header = InitializeHeader("m", 4);
  *header.mutable_participant() = participant;
  REQUIRE(session.Send(header));
  for (uint64_t i = 0; i < 4; ++i) {
    clock.Advance(absl::Seconds(6));
    REQUIRE(session.Send(i, std::vector<float>(1, 5)));
    CHECK(Await([&] {
      const v1::ModelInfo model = *Connect(server->address())->GetModel("m");
      return FindWorker(model, "a").lease_remaining_s() > 9;
    }));
  }
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);
}

TEST_CASE("one stream serves several models and workers in turn") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  CreateModel(server->address(), Spec("n", "downpour", 6), std::vector<float>(6, 0));
  const auto stub = NewStub(*server);
  const v1::Participant a = JoinByStub(stub.get(), "m", "a");
  const v1::Participant b = JoinByStub(stub.get(), "n", "b");
  StubSession session(stub.get());
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    REQUIRE(session.Send(CommitHeader(a, sequence, 4), 0, std::vector<float>(4, 1)));
    auto answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.version() == static_cast<int64_t>(sequence));
    REQUIRE(session.Send(CommitHeader(b, sequence, 6), 0, std::vector<float>(6, 1)));
    answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.version() == static_cast<int64_t>(sequence));
  }
}

TEST_CASE("a commit out of order is refused, and its stream goes on") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto stub = NewStub(*server);
  const v1::Participant a = JoinByStub(stub.get(), "m", "a");
  StubSession session(stub.get());
  const auto refused = [&](absl::StatusCode code, const std::string& text) {
    const auto answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.code() == Code(code));
    CHECK_THAT(answer->header.message(), Catch::Contains(text));
    CHECK_FALSE(answer->header.committed());
  };
  const v1::ExchangeHeader header = CommitHeader(a, 1, 10);

  REQUIRE(session.Send(header, 3, std::vector<float>(7, 1)));
  refused(absl::StatusCode::kInvalidArgument, "a chunk begins at float 3 where float 0 was due");
  REQUIRE(session.Send(header, 0, std::vector<float>(11, 1)));
  refused(absl::StatusCode::kInvalidArgument, "more than the 10 floats");
  REQUIRE(session.Send(CommitHeader(a, 1, 9), 0, std::vector<float>(9, 1)));
  refused(absl::StatusCode::kInvalidArgument, "has 9 floats where model 'm' has 10");
  REQUIRE(session.Send(CommitHeader(a, 0, 10), 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kInvalidArgument, "count them from 1");
  const auto refused_for = [&](const std::function<void(v1::Participant*)>& change, absl::StatusCode code,
                               const std::string& text) {
    v1::ExchangeHeader changed = header;
    change(changed.mutable_participant());
    REQUIRE(session.Send(changed, 0, std::vector<float>(10, 1)));
    refused(code, text);
  };
  refused_for([](auto* p) { p->set_incarnation(p->incarnation() + 1); }, absl::StatusCode::kAborted, "incarnation");
  refused_for([](auto* p) { p->set_worker("nobody"); }, absl::StatusCode::kNotFound, "'nobody' has not joined");
  refused_for([](auto* p) { p->clear_worker(); }, absl::StatusCode::kNotFound, "has not joined");
  refused_for([](auto* p) { p->set_model_id(p->model_id() + 1); }, absl::StatusCode::kAborted,
              "deleted and created again");
  refused_for([](auto* p) { p->set_daemon_id(p->daemon_id() + 1); }, absl::StatusCode::kAborted, "another daemon");
  refused_for([](auto* p) { p->clear_model_id(); }, absl::StatusCode::kInvalidArgument, "does not say which");
  refused_for([](auto* p) { p->clear_daemon_id(); }, absl::StatusCode::kInvalidArgument, "does not say which");
  v1::ExchangeHeader future = header;
  future.mutable_commit()->set_base_version(7);
  REQUIRE(session.Send(future, 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kInvalidArgument, "base version 7, but the center is only at version 0");
  v1::ExchangeHeader unknown = header;
  unknown.set_encoding(static_cast<v1::Encoding>(9));
  REQUIRE(session.Send(unknown, 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kUnimplemented, "encoding 9");
  v1::ExchangeHeader nothing = header;
  nothing.clear_operation();
  REQUIRE(session.Send(nothing));
  refused(absl::StatusCode::kInvalidArgument, "without an operation");
  v1::ExchangeHeader newer = header;
  newer.set_must_understand(4);
  REQUIRE(session.Send(newer, 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kUnimplemented, "bits 4");

  // A header in the middle of a commit begins another exchange.
  REQUIRE(session.Send(header, 0, std::vector<float>(5, 1)));
  REQUIRE(session.Send(header, 0, std::vector<float>(10, 1)));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.version() == 1);
  CHECK(ReadCenter(server->address(), "m").first == std::vector<float>(10, 1));
}

TEST_CASE("a stream that does not begin with a header is told so, and goes on") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 4));
  const auto stub = NewStub(*server);
  StubSession session(stub.get());
  for (const bool empty : {true, false}) {
    REQUIRE((empty ? session.Send(v1::ExchangeRequest()) : session.Send(0, std::vector<float>(10, 1))));
    const auto told = session.Receive();
    REQUIRE(told.has_value());
    CHECK(told->header.code() == Code(absl::StatusCode::kInvalidArgument));
    CHECK_THAT(told->header.message(), Catch::Contains("begins with a header"));
  }
  REQUIRE(session.Send(PullHeader("m")));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->center == std::vector<float>(10, 4));
}

TEST_CASE("who would wait longer than a day waits without end") {
  testing::FakeClock clock;
  const auto server = StartServer({.clock = &clock});
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", 10)).ok());
  const auto stub = NewStub(*server);
  StubSession session(stub.get());
  v1::ExchangeHeader header = PullHeader("m");
  header.set_wait_ms(uint64_t{1} << 63);
  REQUIRE(session.Send(header));
  clock.Advance(absl::Hours(24 * 365));
  const auto other = NewStub(*server);
  StubSession initializing(other.get());
  REQUIRE(initializing.Send(InitializeHeader("m", 10), 0, std::vector<float>(10, 5)));
  REQUIRE(initializing.Receive().has_value());
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->center == std::vector<float>(10, 5));
}

TEST_CASE("what is left of a refused commit is passed over") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 4));
  const auto stub = NewStub(*server);
  StubSession session(stub.get());
  REQUIRE(session.Send(CommitHeader(JoinByStub(stub.get(), "m", "a"), 1, 100), 0, std::vector<float>(50, 1)));
  const auto refused = session.Receive();
  REQUIRE(refused.has_value());
  CHECK(refused->header.code() == Code(absl::StatusCode::kInvalidArgument));
  REQUIRE(session.Send(50, std::vector<float>(50, 1)));
  REQUIRE(session.Send(PullHeader("m")));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->center == std::vector<float>(10, 4));
}

TEST_CASE("garbage ends its own stream and no other") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto stub = NewStub(*server);
  const v1::Participant a = JoinByStub(stub.get(), "m", "a");
  StubSession session(stub.get());
  REQUIRE(session.Send(CommitHeader(a, 1, 10), 0, std::vector<float>(5, 1)));

  for (const std::string& bytes : {std::string("\xff\xff\xff\xff\xff"), std::string("GET / HTTP/1.1"),
                                   std::string("\x0a\x7fshort"), std::string("\x12\x04\x12\x7f", 4)}) {
    const grpc::Status status = SendBytes(*server, bytes);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(status.error_message(), Catch::Contains("not valid protobuf"));
  }
  const grpc::Status oversized = SendBytes(*server, std::string(9 << 20, 'x'));
  CHECK(oversized.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);

  REQUIRE(session.Send(5, std::vector<float>(5, 1)));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.committed());
  CHECK(ReadCenter(server->address(), "m").first == std::vector<float>(10, 1));
  CHECK(Await([&] { return server->GetStatus().sessions() == 1; }));
}

TEST_CASE("the history of many workers can be read whole") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto stub = NewStub(*server);
  constexpr int kWorkers = 30;
  constexpr int kRecords = 10'000;
  for (int w = 0; w < kWorkers; ++w) {
    v1::ReportHistoryRequest report;
    *report.mutable_participant() = JoinByStub(stub.get(), "m", std::to_string(w));
    report.set_batch(1);
    for (int i = 1; i <= kRecords; ++i) {
      v1::HistoryRecord* record = report.add_records();
      record->set_step(static_cast<uint64_t>(i));
      record->set_epoch(0.5);
      record->set_time_s(1.5);
      record->set_loss(2.5);
    }
    grpc::ClientContext context;
    v1::ReportHistoryReply reply;
    REQUIRE(stub->ReportHistory(&context, report, &reply).ok());
  }
  v1::GetHistoryRequest request;
  request.set_model("m");
  const auto history = Connect(server->address())->GetHistory(request);
  INFO(history.status());
  REQUIRE(history.ok());
  CHECK(history->ByteSizeLong() > size_t{8} << 20);
  REQUIRE(history->workers_size() == kWorkers);
  for (const v1::WorkerHistory& worker : history->workers()) CHECK(worker.records_size() == kRecords);
}

}  // namespace
}  // namespace paramd
