// A stream of exchanges with a server in this process.
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/server.h"
#include "tests/fuzz/targets.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 40;
constexpr int kMessages = 8;
constexpr uint64_t kWaitMs = 10;
// What has to be looked at by calls of its own is looked at every now and then.
constexpr int kLookInterval = 256;

// With models "a" (async), "b" (bounded) and "e" (elastic), of kFloats each.
class Host {
 public:
  Host() {
    auto server = Server::Start({.listen = "127.0.0.1:0", .lease = absl::Minutes(10)});
    FUZZ_CHECK(server.ok());
    server_ = *std::move(server);
    channel_ = OpenChannel(server_->address());
    stub_ = v1::ParameterServer::NewStub(channel_);
    Create("a", "downpour", "async");
    Create("b", "adaptive_adag", "bounded:0");
    Create("e", "aeasgd", "async");
  }

  void Run(std::string_view input) {
    const char* const models[] = {"a", "b", "e"};
    const std::string model = models[static_cast<unsigned char>(input[0]) % 3];
    const v1::Participant participant = JoinByStub(stub_.get(), model, "w");
    FUZZ_CHECK(participant.incarnation() > 0);
    input.remove_prefix(1);
    RawStream stream(channel_);
    for (int i = 0; i < kMessages && input.size() >= 2; ++i) {
      const size_t length = static_cast<unsigned char>(input[0]) | static_cast<unsigned char>(input[1]) << 8;
      const std::string message(input.substr(2, length));
      input.remove_prefix(std::min(2 + length, input.size()));
      if (!stream.Write(Completed(message, participant))) break;
    }
    stream.Finish();
    if (++runs_ % kLookInterval == 0) Look();
  }

 private:
  void Create(const std::string& name, const std::string& algorithm, const std::string& consistency) {
    v1::CreateModelRequest request;
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->set_algorithm(algorithm);
    request.mutable_spec()->set_consistency(consistency);
    v1::Tensor* const tensor = request.mutable_spec()->add_tensors();
    tensor->set_name("w");
    tensor->add_shape(kFloats);
    grpc::ClientContext context;
    v1::ModelInfo reply;
    FUZZ_CHECK(stub_->CreateModel(&context, request, &reply).ok());
    StubSession session(stub_.get());
    FUZZ_CHECK(session.Send(InitializeHeader(name, kFloats), 0, std::vector<float>(kFloats, 0)));
    FUZZ_CHECK(session.Receive().has_value());
  }

  // Nobody guesses the ids: who calls itself "w" has them. And nothing waits for long.
  static std::string Completed(const std::string& message, const v1::Participant& participant) {
    v1::ExchangeRequest request;
    if (!request.ParseFromString(message) || !request.has_header()) return message;
    if (request.header().participant().worker() == "w") *request.mutable_header()->mutable_participant() = participant;
    request.mutable_header()->set_wait_ms(std::min(request.header().wait_ms(), kWaitMs));
    return request.SerializeAsString();
  }

  // It lives, holds nothing for streams that are over, and centers are finite.
  void Look() {
    for (const char* const model : {"a", "b", "e"}) {
      StubSession session(stub_.get());
      FUZZ_CHECK(session.Send(PullHeader(model)));
      const auto answer = session.Receive();
      FUZZ_CHECK(answer.has_value() && answer->header.code() == 0);
      for (const float value : answer->center) FUZZ_CHECK(std::isfinite(value) || answer->header.version() > 0);
    }
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
  int runs_ = 0;
};

void FuzzSession(std::string_view input) {
  // To the end of the process: libFuzzer's is no time for gRPC to end.
  static auto* const host = new Host();
  if (!input.empty()) host->Run(input);
}

const FuzzTargetRegistration registration("session", FuzzSession);

}  // namespace
}  // namespace paramd
