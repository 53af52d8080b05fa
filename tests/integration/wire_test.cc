// Floats that travel as f16 or bf16.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/encoding.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

using Catch::Matchers::Contains;

struct Narrowed {
  Wire wire;
  v1::Encoding encoding;
};
constexpr Narrowed kNarrowed[] = {{Wire::kFloat16, v1::FLOAT16}, {Wire::kBfloat16, v1::BFLOAT16}};

std::vector<float> Gaussian(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& f : floats) f = normal(random);
  return floats;
}

std::string Bytes(v1::Encoding encoding, const std::vector<float>& floats) {
  std::string bytes(floats.size() * FloatBytes(encoding), '\0');
  Narrow(encoding, floats.data(), floats.size(), bytes.data());
  return bytes;
}

// What arrives of floats that were sent.
std::vector<float> Rounded(v1::Encoding encoding, const std::vector<float>& floats) {
  std::vector<float> rounded(floats.size());
  Widen(encoding, Bytes(encoding, floats).data(), floats.size(), rounded.data());
  return rounded;
}

std::vector<float> Sum(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

std::unique_ptr<Worker> JoinOver(Wire wire, const std::string& server, const std::string& worker) {
  return Join({.server = server, .model = "m", .worker = worker, .transport = Transport::kGrpc, .wire = wire});
}

TEST_CASE("a commit is applied as what arrives of it, exactly, and a pull brings the center rounded once") {
  const Narrowed& way = GENERATE(from_range(std::begin(kNarrowed), std::end(kNarrowed)));
  // One float, less than a chunk, and two chunks and a bit.
  const size_t floats = GENERATE(1u, 4097u, (512u << 10) + 3);
  INFO(EncodingName(way.encoding) << ", " << floats << " floats");
  const auto server = StartServer();
  const std::vector<float> start = Gaussian(floats, 1);
  CreateModel(server->address(), Spec("m", "downpour", floats), start);
  const auto worker = JoinOver(way.wire, server->address(), "a");
  CHECK(worker->wire() == way.wire);

  std::vector<float> pulled(floats);
  REQUIRE(worker->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK((pulled == Rounded(way.encoding, start)));
  CHECK((pulled != start));

  const std::vector<float> first = Gaussian(floats, 2), second = Gaussian(floats, 3);
  REQUIRE(worker->Commit(first, kCallTimeout).ok());
  const std::vector<float> once = Sum(start, Rounded(way.encoding, first));
  CHECK((ReadCenter(server->address(), "m").first == once));

  REQUIRE(worker->Exchange(second, absl::MakeSpan(pulled), kCallTimeout).ok());
  const std::vector<float> twice = Sum(once, Rounded(way.encoding, second));
  CHECK((ReadCenter(server->address(), "m").first == twice));
  CHECK((pulled == Rounded(way.encoding, twice)));
}

TEST_CASE("workers of one model may each have another wire, and the first center is exact with any") {
  const auto server = StartServer();
  constexpr size_t kFloats = 100;
  REQUIRE(Connect(server->address())->CreateModel(Spec("m", "downpour", kFloats)).ok());
  const auto half = JoinOver(Wire::kFloat16, server->address(), "half");
  const auto brain = JoinOver(Wire::kBfloat16, server->address(), "brain");
  const auto full = JoinOver(Wire::kFloat32, server->address(), "full");
  const std::vector<float> start = Gaussian(kFloats, 1);
  REQUIRE(half->Initialize(start, kCallTimeout).ok());
  CHECK(ReadCenter(server->address(), "m").first == start);
  const std::vector<float> update(kFloats, 1 + std::ldexp(1.0f, -9));
  std::vector<float> expected = start;
  for (Worker* worker : {half.get(), brain.get(), full.get()}) REQUIRE(worker->Commit(update, kCallTimeout).ok());
  expected = Sum(expected, update);                             // 11 bits of f16 hold it,
  expected = Sum(expected, std::vector<float>(kFloats, 1.0f));  // 8 of bf16 don't
  expected = Sum(expected, update);
  CHECK(ReadCenter(server->address(), "m").first == expected);
}

TEST_CASE("an elastic exchange answers the center before it, rounded") {
  const Narrowed& way = GENERATE(from_range(std::begin(kNarrowed), std::end(kNarrowed)));
  const auto server = StartServer();
  constexpr size_t kFloats = 1000;
  const std::vector<float> start = Gaussian(kFloats, 1), parameters = Gaussian(kFloats, 2);
  // α = 0.5
  CreateModel(server->address(), Spec("m", "aeasgd", kFloats, "", {{"learning_rate", 1}, {"rho", 0.5}}), start);
  const auto worker = JoinOver(way.wire, server->address(), "a");
  std::vector<float> pulled(kFloats);
  REQUIRE(worker->Exchange(parameters, absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled == Rounded(way.encoding, start));
  const std::vector<float> arrived = Rounded(way.encoding, parameters);
  std::vector<float> expected(kFloats);
  for (size_t i = 0; i < kFloats; ++i) expected[i] = start[i] + 0.5f * (arrived[i] - start[i]);
  const std::vector<float> center = ReadCenter(server->address(), "m").first;
  for (size_t i = 0; i < kFloats; ++i) CHECK(center[i] == Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("a commit that the wire would make infinite is refused before it is sent") {
  const auto [wire, value, texts] = GENERATE(table<Wire, float, std::vector<std::string>>({
      {Wire::kFloat16, 65'520, {"parameter 7 is 65520", "f16 holds is 65504", "the wire bf16", "or f32"}},
      {Wire::kFloat16, -1e30f, {"parameter 7 is -1e+30", "f16 holds is 65504"}},
      {Wire::kBfloat16,
       std::numeric_limits<float>::max(),
       {"parameter 7 is 3.40282e+38", "bf16 holds is 3.3895e+38", "the wire f32"}},
  }));
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  const auto worker = JoinOver(wire, server->address(), "a");
  std::vector<float> update(10, 1);
  update[7] = value;
  std::vector<float> pulled(10);
  const auto refused = worker->Exchange(update, absl::MakeSpan(pulled), kCallTimeout);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  for (const std::string& text : texts) CHECK_THAT(std::string(refused.status().message()), Contains(text));
  CHECK(server->GetStatus().models(0).rejected() == 0);
  CHECK(ReadCenter(server->address(), "m") == std::pair(std::vector<float>(10, 1), int64_t{0}));
  update[7] = 1;
  CHECK(worker->Exchange(update, absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled == std::vector<float>(10, 2));
}

TEST_CASE("NaN and infinity are refused by the server whatever they travel as") {
  const Narrowed& way = GENERATE(from_range(std::begin(kNarrowed), std::end(kNarrowed)));
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 5000), std::vector<float>(5000, 1));
  const auto worker = JoinOver(way.wire, server->address(), "a");
  // The last is a NaN whose upper half alone would be an infinity.
  uint64_t rejected = 0;
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity(), std::bit_cast<float>(0x7f800001u)}) {
    std::vector<float> update(5000, 1);
    update[4500] = bad;
    const auto refused = worker->Commit(update, kCallTimeout);
    CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(refused.status().message()), Contains("NaN or infinite") && Contains("4500"));
    CHECK(server->GetStatus().models(0).rejected() == ++rejected);
  }
  CHECK(ReadCenter(server->address(), "m") == std::pair(std::vector<float>(5000, 1), int64_t{0}));
}

TEST_CASE("a center that f16 can't hold is not pulled as f16, until it is smaller, and the commit before it counts") {
  const auto server = StartServer();
  // Beyond the first block.
  constexpr size_t kFloats = (256 << 10) + 5;
  CreateModel(server->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 60'000));
  const auto half = JoinOver(Wire::kFloat16, server->address(), "half");
  const auto brain = JoinOver(Wire::kBfloat16, server->address(), "brain");
  std::vector<float> update(kFloats, 0), pulled(kFloats);
  update[kFloats - 2] = 10'000;
  const auto refused = half->Exchange(update, absl::MakeSpan(pulled), kCallTimeout);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  for (const std::string text :
       {"the center can't be sent", "parameter 262147 is 70000", "f16 holds is 65504", "the wire bf16", "or f32"}) {
    CHECK_THAT(std::string(refused.status().message()), Contains(text));
  }
  CHECK(half->Pull(absl::MakeSpan(pulled), kCallTimeout).status().code() == absl::StatusCode::kFailedPrecondition);
  const auto [center, version] = ReadCenter(server->address(), "m");
  CHECK(version == 1);
  CHECK(center[kFloats - 2] == 70'000);
  REQUIRE(brain->Pull(absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled[kFloats - 2] == Rounded(v1::BFLOAT16, {70'000})[0]);
  update[kFloats - 2] = -20'016;
  REQUIRE(half->Exchange(update, absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled[kFloats - 2] == 49'984);
  CHECK(Await([&] { return server->GetStatus().in_flight_bytes() == 0; }));
}

TEST_CASE("an unknown encoding of an older server is told with what to do") {
  // As a server answered before it knew any but float32.
  class OldServer final : public v1::ParameterServer::Service {
    grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request, v1::JoinReply* reply) override {
      reply->mutable_model()->mutable_spec()->set_name(request->model());
      reply->mutable_model()->set_parameters(1);
      reply->set_incarnation(1);
      reply->set_lease_s(30);
      return grpc::Status::OK;
    }
    grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest*, v1::LeaveReply*) override {
      return grpc::Status::OK;
    }
    grpc::Status Exchange(grpc::ServerContext*,
                          grpc::ServerReaderWriter<v1::ExchangeReply, v1::ExchangeRequest>* stream) override {
      v1::ExchangeRequest request;
      while (stream->Read(&request)) {
        v1::ExchangeReply reply;
        reply.mutable_header()->set_code(grpc::StatusCode::UNIMPLEMENTED);
        reply.mutable_header()->set_message(absl::StrCat("encoding ", request.header().encoding(), " is unknown."));
        stream->Write(reply);
      }
      return grpc::Status::OK;
    }
  };
  OldServer old;
  int port = 0;
  const auto server = grpc::ServerBuilder()
                          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
                          .RegisterService(&old)
                          .BuildAndStart();
  REQUIRE(server != nullptr);
  auto worker = JoinOver(Wire::kBfloat16, absl::StrCat("127.0.0.1:", port), "a");
  const auto refused = worker->Commit(std::vector<float>(1, 1), kCallTimeout);
  CHECK(refused.status().code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(std::string(refused.status().message()),
             Contains("encoding 2 is unknown") && Contains("Upgrade the daemon, or use the wire f32"));
  worker.reset();
  server->Shutdown(std::chrono::system_clock::now());
}

TEST_CASE("shared memory carries float32, and so what a narrow wire could not") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
  // Not of the fixtures, which choose a transport where none is named.
  const auto worker = Worker::Join({.server = server->address(), .model = "m", .worker = "a", .wire = Wire::kFloat16});
  REQUIRE(worker.ok());
  REQUIRE((*worker)->transport() == Transport::kShm);
  CHECK((*worker)->wire() == Wire::kFloat32);
  std::vector<float> pulled(10);
  REQUIRE((*worker)->Exchange(std::vector<float>(10, 1e6f), absl::MakeSpan(pulled), kCallTimeout).ok());
  CHECK(pulled == std::vector<float>(10, 1e6f + 1));
}

TEST_CASE("shared memory that must be had does not go with a narrow wire") {
  const auto joined = Worker::Join(
      {.server = "127.0.0.1:1", .model = "m", .worker = "a", .transport = Transport::kShm, .wire = Wire::kFloat16});
  CHECK(joined.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(joined.status().message()), Contains("float32 only") && Contains("the transport grpc"));
}

// ---------------------------------------------------------------------------------------------------------------------
// By bytes.

std::string Message(const v1::ExchangeHeader* header, uint64_t offset, const std::string& bytes) {
  v1::ExchangeRequest request;
  if (header != nullptr) *request.mutable_header() = *header;
  request.mutable_chunk()->set_offset(offset);
  request.mutable_chunk()->set_data(bytes);
  return request.SerializeAsString();
}

v1::ExchangeReply ReadReply(RawStream* stream) {
  v1::ExchangeReply reply;
  const auto bytes = stream->Read();
  REQUIRE(bytes.has_value());
  REQUIRE(reply.ParseFromString(*bytes));
  return reply;
}

class BytesFixture {
 public:
  static constexpr size_t kFloats = 10;

  BytesFixture() : server_(StartServer()), channel_(OpenChannel(server_->address())), stub_(channel_) {
    CreateModel(server_->address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
    participant_ = JoinByStub(&stub_, "m", "a");
    stream_ = std::make_unique<RawStream>(channel_);
  }

  v1::ExchangeHeader Header(v1::Encoding encoding, uint64_t sequence) const {
    v1::ExchangeHeader header = CommitHeader(participant_, sequence, kFloats);
    header.set_encoding(encoding);
    return header;
  }

  void CheckRefused(absl::StatusCode code, const std::string& text) {
    const v1::ExchangeReply reply = ReadReply(stream_.get());
    CHECK(reply.header().code() == static_cast<int>(code));
    CHECK_THAT(reply.header().message(), Contains(text));
    CHECK_FALSE(reply.header().committed());
    CHECK(Center() == std::vector<float>(kFloats, 0));
  }

  std::vector<float> Center() const { return ReadCenter(server_->address(), "m").first; }
  RawStream& stream() { return *stream_; }
  Server& server() { return *server_; }

 private:
  const std::unique_ptr<Server> server_;
  const std::shared_ptr<grpc::Channel> channel_;
  v1::ParameterServer::Stub stub_;
  v1::Participant participant_;
  std::unique_ptr<RawStream> stream_;
};

TEST_CASE_METHOD(BytesFixture,
                 "lengths and offsets count in the exchange's encoding, and what does not fit is refused") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  const std::string name = EncodingName(encoding);
  const std::string good = Bytes(encoding, std::vector<float>(kFloats, 1));
  const v1::ExchangeHeader header = Header(encoding, 1);

  REQUIRE(stream().Write(Message(&header, 0, good.substr(0, 7))));
  CheckRefused(absl::StatusCode::kInvalidArgument, "7 bytes, which is not a whole number of " + name);
  REQUIRE(stream().Write(Message(&header, 0, good + "xx")));
  CheckRefused(absl::StatusCode::kInvalidArgument, "more than the 10 floats");
  // As float32 would be long.
  REQUIRE(stream().Write(Message(&header, 0, good + good)));
  CheckRefused(absl::StatusCode::kInvalidArgument, "more than the 10 floats");
  REQUIRE(stream().Write(Message(&header, 0, good.substr(0, 4))));
  REQUIRE(stream().Write(Message(nullptr, 4, good.substr(4))));
  CheckRefused(absl::StatusCode::kInvalidArgument, "a chunk begins at float 4 where float 2 was due");

  // In odd parts, and then once more as a retry, which is passed over to its last byte.
  v1::ExchangeHeader whole = header;
  whole.mutable_commit()->set_pull(true);
  for (int attempt = 0; attempt < 2; ++attempt) {
    INFO(attempt);
    REQUIRE(stream().Write(Message(&whole, 0, good.substr(0, 6))));
    REQUIRE(stream().Write(Message(nullptr, 3, "")));
    REQUIRE(stream().Write(Message(nullptr, 3, good.substr(6, 2))));
    REQUIRE(stream().Write(Message(nullptr, 4, good.substr(8))));
    const v1::ExchangeReply reply = ReadReply(&stream());
    CHECK(reply.header().code() == 0);
    CHECK(reply.header().committed());
    CHECK(reply.header().version() == 1);
    CHECK(reply.header().pull_floats() == kFloats);
    CHECK(reply.chunk().data() == good);
  }
  CHECK(Center() == std::vector<float>(kFloats, 1));
}

TEST_CASE_METHOD(BytesFixture, "each exchange of a stream has an encoding of its own") {
  std::vector<float> expected(kFloats, 0);
  uint64_t sequence = 0;
  for (const v1::Encoding encoding : {v1::FLOAT16, v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
    const std::vector<float> update = Gaussian(kFloats, ++sequence);
    v1::ExchangeHeader header = Header(encoding, sequence);
    header.mutable_commit()->set_pull(true);
    REQUIRE(stream().Write(Message(&header, 0, Bytes(encoding, update))));
    expected = Sum(expected, Rounded(encoding, update));
    CHECK(ReadReply(&stream()).chunk().data() == Bytes(encoding, expected));
  }
  CHECK(Center() == expected);
}

TEST_CASE_METHOD(BytesFixture, "a first center that is not float32, and an encoding that nobody knows, are refused") {
  v1::ExchangeHeader initialize = InitializeHeader("m", kFloats);
  initialize.set_encoding(v1::FLOAT16);
  REQUIRE(stream().Write(Message(&initialize, 0, Bytes(v1::FLOAT16, std::vector<float>(kFloats, 0)))));
  CheckRefused(absl::StatusCode::kInvalidArgument, "comes as f16");
  const v1::ExchangeHeader unknown = Header(static_cast<v1::Encoding>(3), 1);
  REQUIRE(stream().Write(Message(&unknown, 0, std::string(kFloats, 'x'))));
  CheckRefused(absl::StatusCode::kUnimplemented, "encoding 3 is unknown to this server");
}

TEST_CASE_METHOD(BytesFixture, "a narrow commit takes as much room in flight as it has bytes") {
  const auto [encoding, pull, bytes] =
      GENERATE(table<v1::Encoding, bool, uint64_t>({{v1::FLOAT32, false, 4 * kFloats},
                                                    {v1::FLOAT16, false, 2 * kFloats},
                                                    {v1::BFLOAT16, false, 2 * kFloats},
                                                    // The center that is pulled is held as float32.
                                                    {v1::FLOAT16, true, 4 * kFloats}}));
  v1::ExchangeHeader header = Header(encoding, 1);
  header.mutable_commit()->set_pull(pull);
  const std::string all = Bytes(encoding, std::vector<float>(kFloats, 1));
  REQUIRE(stream().Write(Message(&header, 0, all.substr(0, 8))));
  const uint64_t expected = bytes;
  CHECK(Await([&] { return server().GetStatus().in_flight_bytes() == expected; }));
  REQUIRE(stream().Write(Message(nullptr, 8 / FloatBytes(encoding), all.substr(8))));
  CHECK(ReadReply(&stream()).header().committed());
  CHECK(Await([&] { return server().GetStatus().in_flight_bytes() == 0; }));
}

}  // namespace
}  // namespace paramd
