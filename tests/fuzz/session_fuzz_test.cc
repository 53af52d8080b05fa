// A server whose peers send damaged messages.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "proto/encoding.h"
#include "shm/handshake.h"
#include "shm/segment.h"
#include "tests/fuzz/mutation.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"
#include "tests/support/seed.h"

namespace paramd {
namespace {

TEST_CASE("damaged exchanges harm nobody else") {
  constexpr size_t kFloats = 40;
  const auto server = StartServer({.lease = absl::Minutes(10)});
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  CreateModel(server->address(), Spec("other", "downpour", kFloats), std::vector<float>(kFloats, 0));
  const auto channel = OpenChannel(server->address());
  v1::ParameterServer::Stub stub(channel);
  const auto bystander = Join(server->address(), "other", "bystander");
  const std::string socket = JoinReplyByStub(&stub, "m", "a", 1).shared_memory_socket();
  const auto granted = RequestSegment(socket, LayOutSegment(kFloats).bytes, kCallTimeout);
  REQUIRE(granted.ok());
  int64_t commits = 0;
  for (const uint64_t seed : testing::Seeds(300)) {
    std::mt19937_64 random(seed);
    INFO("PARAMD_SEED=" << seed);
    const v1::Participant participant = JoinByStub(&stub, "m", "a");
    REQUIRE(participant.incarnation() > 0);
    RawStream stream(channel);
    for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
      v1::ExchangeRequest request;
      *request.mutable_header() = CommitHeader(participant, sequence, kFloats, random() % 2 == 0);
      request.mutable_header()->set_wait_ms(10);
      const auto encoding = static_cast<v1::Encoding>(random() % 3);
      request.mutable_header()->set_encoding(encoding);
      const std::vector<float> ones(kFloats, 1);
      std::string data(kFloats * FloatBytes(encoding), '\0');
      Narrow(encoding, ones.data(), kFloats, data.data());
      request.mutable_chunk()->set_data(data);
      // The commit word is 0, so none of these is applied.
      if (random() % 3 == 0) {
        request.mutable_header()->set_segment(granted->id);
        request.mutable_header()->clear_encoding();
        request.mutable_chunk()->clear_data();
        request.mutable_chunk()->set_shared_begin(LayOutSegment(kFloats).commit_begin);
        request.mutable_chunk()->set_shared_floats(kFloats);
      }
      std::string bytes = request.SerializeAsString();
      if (random() % 4 != 0) Mutate(&random, &bytes);
      if (!stream.Write(bytes)) break;
    }
    stream.Cancel();
    const auto committed = bystander->Commit(std::vector<float>(kFloats, 1), kCallTimeout);
    INFO(committed.status());
    REQUIRE(committed.ok());
    REQUIRE(committed->version == ++commits);
  }
  const bool over =
      Await([&] { return server->GetStatus().sessions() == 1 && server->GetStatus().in_flight_bytes() == 0; });
  INFO(server->GetStatus().sessions() << " sessions, " << server->GetStatus().in_flight_bytes() << " bytes in flight");
  CHECK(over);
  const auto [center, version] = ReadCenter(server->address(), "m");
  for (const float value : center) CHECK(std::isfinite(value));
  CHECK(ReadCenter(server->address(), "other").first == std::vector<float>(kFloats, static_cast<float>(commits)));
}

}  // namespace
}  // namespace paramd
