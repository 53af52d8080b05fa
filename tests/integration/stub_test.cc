// The wire by generated stubs alone, in good and in bad order.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

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
  const uint64_t incarnation = JoinByStub(stub.get(), "m", "a");
  REQUIRE(incarnation == 1);
  StubSession session(stub.get());

  v1::ExchangeHeader initialize;
  initialize.set_model("m");
  initialize.set_initialize(true);
  initialize.set_commit_floats(1000);
  REQUIRE(session.Send(initialize, 0, std::vector<float>(1000, 5)));
  auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);

  v1::ExchangeHeader pull;
  pull.set_model("m");
  pull.set_pull(true);
  REQUIRE(session.Send(pull));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.code() == 0);
  CHECK(answer->header.version() == 0);
  CHECK(answer->center == std::vector<float>(1000, 5));

  // A commit in chunks of any size.
  REQUIRE(session.Send(CommitHeader("m", "a", incarnation, 1, 1000)));
  REQUIRE(session.Send(0, std::vector<float>(1, 2)));
  REQUIRE(session.Send(1, std::vector<float>(998, 2)));
  REQUIRE(session.Send(999, std::vector<float>(1, 2)));
  answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.committed());
  CHECK(answer->header.version() == 1);
  CHECK(answer->center.empty());

  v1::ExchangeHeader exchange = CommitHeader("m", "a", incarnation, 2, 1000);
  exchange.set_base_version(1);
  exchange.set_pull(true);
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

TEST_CASE("one stream serves several models and workers in turn") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 4), std::vector<float>(4, 0));
  CreateModel(server->address(), Spec("n", "downpour", 6), std::vector<float>(6, 0));
  const auto stub = NewStub(*server);
  const uint64_t a = JoinByStub(stub.get(), "m", "a");
  const uint64_t b = JoinByStub(stub.get(), "n", "b");
  StubSession session(stub.get());
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    REQUIRE(session.Send(CommitHeader("m", "a", a, sequence, 4), 0, std::vector<float>(4, 1)));
    auto answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.version() == static_cast<int64_t>(sequence));
    REQUIRE(session.Send(CommitHeader("n", "b", b, sequence, 6), 0, std::vector<float>(6, 1)));
    answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.version() == static_cast<int64_t>(sequence));
  }
}

TEST_CASE("a commit out of order is refused, and its stream goes on") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto stub = NewStub(*server);
  const uint64_t incarnation = JoinByStub(stub.get(), "m", "a");
  StubSession session(stub.get());
  const auto refused = [&](absl::StatusCode code, const std::string& text) {
    const auto answer = session.Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.code() == Code(code));
    CHECK_THAT(answer->header.message(), Catch::Contains(text));
    CHECK_FALSE(answer->header.committed());
  };
  const v1::ExchangeHeader header = CommitHeader("m", "a", incarnation, 1, 10);

  REQUIRE(session.Send(header, 3, std::vector<float>(7, 1)));
  refused(absl::StatusCode::kInvalidArgument, "a chunk begins at float 3 where float 0 was due");
  REQUIRE(session.Send(header, 0, std::vector<float>(11, 1)));
  refused(absl::StatusCode::kInvalidArgument, "more than the 10 floats");
  REQUIRE(session.Send(CommitHeader("m", "a", incarnation, 1, 9), 0, std::vector<float>(9, 1)));
  refused(absl::StatusCode::kInvalidArgument, "has 9 floats where model 'm' has 10");
  REQUIRE(session.Send(CommitHeader("m", "a", incarnation, 0, 10), 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kInvalidArgument, "count them from 1");
  REQUIRE(session.Send(CommitHeader("m", "a", incarnation + 1, 1, 10), 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kAborted, "incarnation");
  REQUIRE(session.Send(CommitHeader("m", "nobody", 1, 1, 10), 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kNotFound, "'nobody' has not joined");
  REQUIRE(session.Send(CommitHeader("m", "", 0, 1, 10), 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kNotFound, "has not joined");
  v1::ExchangeHeader future = header;
  future.set_base_version(7);
  REQUIRE(session.Send(future, 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kInvalidArgument, "base version 7, but the center is only at version 0");
  v1::ExchangeHeader unknown = header;
  unknown.set_encoding(static_cast<v1::Encoding>(9));
  REQUIRE(session.Send(unknown, 0, std::vector<float>(10, 1)));
  refused(absl::StatusCode::kUnimplemented, "encoding 9");
  v1::ExchangeHeader neither;
  neither.set_model("m");
  neither.set_worker("a");
  neither.set_incarnation(incarnation);
  REQUIRE(session.Send(neither));
  refused(absl::StatusCode::kInvalidArgument, "neither a commit nor a pull");

  // A header in the middle of a commit begins another exchange.
  REQUIRE(session.Send(header, 0, std::vector<float>(5, 1)));
  REQUIRE(session.Send(header, 0, std::vector<float>(10, 1)));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->header.version() == 1);
  CHECK(ReadCenter(server->address(), "m").first == std::vector<float>(10, 1));
}

TEST_CASE("chunks that belong to nothing are passed over") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 4));
  const auto stub = NewStub(*server);
  StubSession session(stub.get());
  REQUIRE(session.Send(0, std::vector<float>(100, 1)));
  v1::ExchangeHeader pull;
  pull.set_model("m");
  pull.set_pull(true);
  REQUIRE(session.Send(pull));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CHECK(answer->center == std::vector<float>(10, 4));
}

TEST_CASE("garbage ends its own stream and no other") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto stub = NewStub(*server);
  const uint64_t incarnation = JoinByStub(stub.get(), "m", "a");
  StubSession session(stub.get());
  REQUIRE(session.Send(CommitHeader("m", "a", incarnation, 1, 10), 0, std::vector<float>(5, 1)));

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
    report.set_model("m");
    report.set_worker(std::to_string(w));
    report.set_incarnation(JoinByStub(stub.get(), "m", std::to_string(w)));
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
