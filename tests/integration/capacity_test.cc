// The cap on bytes in flight, and many workers that wait.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
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

// The default for a model that is not larger than half of it.
constexpr uint64_t kCap = uint64_t{64} << 20;

// A quarter of the cap.
constexpr size_t kLargeFloats = kCap / 4 / sizeof(float);

// Sessions that have begun a commit and do not go on with it, so that nothing is left of the cap.
class Hoarders {
 public:
  Hoarders(const std::string& server, const std::string& model) : stub_(OpenChannel(server)) {
    for (int i = 0; i < 4; ++i) {
      const std::string worker = absl::StrCat("hoarder-", i);
      const v1::Participant participant = JoinByStub(&stub_, model, worker);
      sessions_.push_back(std::make_unique<StubSession>(&stub_));
      good_ = sessions_.back()->Send(CommitHeader(participant, 1, kLargeFloats)) && good_;
    }
  }

  bool good() const { return good_; }
  void Release() { sessions_.pop_back(); }

 private:
  v1::ParameterServer::Stub stub_;
  std::vector<std::unique_ptr<StubSession>> sessions_;
  bool good_ = true;
};

TEST_CASE("many large workers at once all succeed within the cap") {
  const auto server = StartServer({.max_in_flight_bytes = 1});
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 0));
  constexpr int kWorkers = 8;
  constexpr int kExchanges = 3;
  std::vector<absl::Status> results(kWorkers);
  std::atomic<int> running{kWorkers};
  uint64_t most_in_flight = 0;
  {
    std::vector<Thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        auto worker = Worker::Join({.server = server->address(), .model = "m", .worker = std::to_string(w)});
        results[w] = worker.status();
        const std::vector<float> update(kLargeFloats, 1);
        std::vector<float> pulled(kLargeFloats);
        for (int i = 0; i < kExchanges && results[w].ok(); ++i) {
          results[w] = (*worker)->Exchange(update, absl::MakeSpan(pulled), kCallTimeout).status();
        }
        --running;
      });
    }
    Await([&] {
      const v1::ServerStatus status = server->GetStatus();
      most_in_flight = std::max<uint64_t>(most_in_flight, status.in_flight_bytes());
      return running == 0;
    });
  }
  for (const absl::Status& result : results) {
    INFO(result);
    CHECK(result.ok());
  }
  // A cap that is too low for two commits is raised to that.
  const uint64_t cap = 2 * kLargeFloats * sizeof(float);
  CHECK(server->GetStatus().max_in_flight_bytes() == cap);
  CHECK(most_in_flight > 0);
  CHECK(most_in_flight <= cap);
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  CHECK(ReadCenter(server->address(), "m").second == kWorkers * kExchanges);
}

TEST_CASE("a chunk that comes with its header is told to back off while the cap is full") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 0));
  Hoarders hoarders(server->address(), "m");
  REQUIRE(hoarders.good());
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == kCap; }));

  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const v1::Participant participant = JoinByStub(&stub, "m", "eager");
  StubSession eager(&stub);
  const v1::ExchangeHeader header = CommitHeader(participant, 1, kLargeFloats);
  REQUIRE(eager.Send(header, 0, std::vector<float>(kChunkFloats, 1)));
  const auto refused = eager.Receive();
  REQUIRE(refused.has_value());
  CHECK(refused->header.code() == static_cast<int>(absl::StatusCode::kUnavailable));
  CHECK_THAT(refused->header.message(), Catch::Contains("back off") && Catch::Contains("--max_in_flight_bytes"));

  // A header alone waits for its turn, as long as it said it would.
  v1::ExchangeHeader brief = header;
  brief.set_wait_ms(1);
  REQUIRE(eager.Send(brief));
  const auto waited = eager.Receive();
  REQUIRE(waited.has_value());
  CHECK(waited->header.code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(waited->header.message(), Catch::Contains("bytes are in flight"));

  // It comes when another stream ends.
  REQUIRE(eager.Send(header));
  CHECK(Await([&] { return server->GetStatus().queued_exchanges() == 1; }));
  hoarders.Release();
  for (size_t sent = 0; sent < kLargeFloats; sent += kChunkFloats) {
    REQUIRE(eager.Send(sent, std::vector<float>(kChunkFloats, 1)));
  }
  const auto committed = eager.Receive();
  REQUIRE(committed.has_value());
  CHECK(committed->header.code() == 0);
  CHECK(committed->header.committed());
  CHECK(committed->header.version() == 1);
}

TEST_CASE("a worker outlasts a full cap for longer than its patience with a silent server") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), std::vector<float>(kLargeFloats, 0));
  const auto worker =
      Join({.server = server->address(), .model = "m", .worker = "a", .rpc_timeout = absl::Milliseconds(500)});
  Hoarders hoarders(server->address(), "m");
  REQUIRE(hoarders.good());
  REQUIRE(Await([&] { return server->GetStatus().in_flight_bytes() == kCap; }));
  absl::StatusOr<Exchanged> committed;
  std::atomic<bool> ended{false};
  {
    const Thread thread([&] {
      committed = worker->Commit(std::vector<float>(kLargeFloats, 1), kCallTimeout);
      ended = true;
    });
    CHECK_FALSE(Await([&] { return ended.load(); }, absl::Seconds(2)));
    hoarders.Release();
  }
  INFO(committed.status());
  CHECK(committed.ok());
}

TEST_CASE("a stream that ends in the middle of a commit frees its room and changes nothing") {
  const auto server = StartServer();
  const std::vector<float> center(kLargeFloats, 3);
  CreateModel(server->address(), Spec("m", "downpour", kLargeFloats), center);
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  const v1::Participant participant = JoinByStub(&stub, "m", "a");
  {
    StubSession session(&stub);
    REQUIRE(session.Send(CommitHeader(participant, 1, kLargeFloats)));
    REQUIRE(session.Send(0, std::vector<float>(kChunkFloats, 1)));
    CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == kCap / 4; }));
  }
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
  CHECK(Await([&] { return server->GetStatus().sessions() == 0; }));
  const auto [after, version] = ReadCenter(server->address(), "m");
  CHECK(version == 0);
  CHECK(after == center);
  // The sequence is free still.
  StubSession again(&stub);
  REQUIRE(again.Send(CommitHeader(participant, 1, kLargeFloats)));
  for (size_t sent = 0; sent < kLargeFloats; sent += kChunkFloats) {
    REQUIRE(again.Send(sent, std::vector<float>(kChunkFloats, 1)));
  }
  const auto committed = again.Receive();
  REQUIRE(committed.has_value());
  CHECK(committed->header.version() == 1);
}

TEST_CASE("500 workers that wait for one another cost no threads and all go on together") {
  constexpr int kWorkers = 500;
  constexpr size_t kFloats = 100;
  const std::string consistency = GENERATE(as<std::string>(), "sync", "bounded:0");
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats, consistency), std::vector<float>(kFloats, 0));
  v1::ParameterServer::Stub stub(OpenChannel(daemon.address()));
  std::vector<v1::Participant> participants;
  std::vector<std::unique_ptr<StubSession>> sessions;
  for (int w = 0; w < kWorkers; ++w) {
    participants.push_back(JoinByStub(&stub, "m", std::to_string(w)));
    sessions.push_back(std::make_unique<StubSession>(&stub));
  }
  const auto commit = [&](int w) {
    const v1::ExchangeHeader header = CommitHeader(participants[w], 1, kFloats, /*pull=*/true);
    return sessions[w]->Send(header, 0, std::vector<float>(kFloats, 1));
  };
  for (int w = 0; w + 1 < kWorkers; ++w) REQUIRE(commit(w));
  const auto admin = Connect(daemon.address());
  const auto waiting = [&] {
    const auto info = admin->GetModel("m");
    int count = 0;
    if (info.ok()) {
      for (const v1::WorkerInfo& worker : info->workers()) count += worker.waiting() ? 1 : 0;
    }
    return count;
  };
  CHECK(Await([&] { return waiting() == kWorkers - 1; }));
  CHECK(daemon.process().StatusNumber("Threads") < 30);

  REQUIRE(commit(kWorkers - 1));
  for (int w = 0; w < kWorkers; ++w) {
    const auto answer = sessions[w]->Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.message() == "");
    CHECK(answer->header.version() == kWorkers);
    CHECK(answer->center == std::vector<float>(kFloats, kWorkers));
  }
  CHECK(daemon.process().StatusNumber("Threads") < 30);
}

}  // namespace
}  // namespace paramd
