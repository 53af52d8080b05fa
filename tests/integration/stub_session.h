// An exchange stream by nothing but the generated stubs, as any other language would do it.
#ifndef PARAMD_TESTS_INTEGRATION_STUB_SESSION_H_
#define PARAMD_TESTS_INTEGRATION_STUB_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/paramd.grpc.pb.h"

namespace paramd {

// `window_bytes`: what the peer may send before anybody reads it, if not gRPC's default.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& server, int window_bytes = 0);

// Joins; an empty reply if that failed. Sends no heartbeats. `nonce`: not 0.
v1::JoinReply JoinReplyByStub(v1::ParameterServer::Stub* stub, const std::string& model, const std::string& worker,
                              uint64_t nonce);

// Joins as another process each time, and returns who speaks from now on; incarnation 0 if that failed.
v1::Participant JoinByStub(v1::ParameterServer::Stub* stub, const std::string& model, const std::string& worker);

// The headers of a commit by somebody who joined, of a reader's pull, and of a first center.
v1::ExchangeHeader CommitHeader(const v1::Participant& participant, uint64_t sequence, uint64_t floats,
                                bool pull = false);
v1::ExchangeHeader PullHeader(const std::string& model);
v1::ExchangeHeader InitializeHeader(const std::string& model, uint64_t floats);

// Thread-compatible. Cancels what is left of the stream at its end.
class StubSession {
 public:
  explicit StubSession(v1::ParameterServer::Stub* stub) : stream_(stub->Exchange(&context_)) {}
  ~StubSession();

  // False if the stream has ended.
  bool Send(const v1::ExchangeHeader& header);
  bool Send(const v1::ExchangeHeader& header, uint64_t offset, absl::Span<const float> chunk);
  bool Send(uint64_t offset, absl::Span<const float> chunk);

  bool Send(const v1::ExchangeRequest& request) { return stream_->Write(request); }

  // One message as it came; nothing if the stream has ended.
  std::optional<v1::ExchangeReply> ReceiveMessage();

  struct Answer {
    v1::ReplyHeader header;
    std::vector<float> center;
  };
  // A whole reply; nothing if the stream has ended.
  std::optional<Answer> Receive();

  // Says that nothing more comes, and returns how the stream ended.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::ExchangeRequest, v1::ExchangeReply>> stream_;
  bool finished_ = false;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_INTEGRATION_STUB_SESSION_H_
