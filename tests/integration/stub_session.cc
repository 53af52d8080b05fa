#include "tests/integration/stub_session.h"

#include <algorithm>
#include <random>

namespace paramd {
namespace {

void SetChunk(uint64_t offset, absl::Span<const float> floats, v1::Chunk* chunk) {
  chunk->set_offset(offset);
  chunk->set_data(floats.data(), floats.size() * sizeof(float));
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& server, int window_bytes) {
  grpc::ChannelArguments arguments;
  if (window_bytes != 0) arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window_bytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

v1::JoinReply JoinReplyByStub(v1::ParameterServer::Stub* stub, const std::string& model, const std::string& worker,
                              uint64_t nonce) {
  grpc::ClientContext context;
  v1::JoinRequest request;
  request.set_model(model);
  request.set_worker(worker);
  request.set_nonce(nonce);
  v1::JoinReply reply;
  return stub->Join(&context, request, &reply).ok() ? reply : v1::JoinReply();
}

v1::Participant JoinByStub(v1::ParameterServer::Stub* stub, const std::string& model, const std::string& worker) {
  const uint64_t nonce = 1 + uint64_t{std::random_device{}()};
  const v1::JoinReply joined = JoinReplyByStub(stub, model, worker, nonce);
  v1::Participant participant;
  participant.set_model(joined.model().spec().name());
  participant.set_worker(worker);
  participant.set_incarnation(joined.incarnation());
  participant.set_nonce(nonce);
  participant.set_model_id(joined.model().id());
  participant.set_daemon_id(joined.daemon_id());
  return participant;
}

v1::ExchangeHeader CommitHeader(const v1::Participant& participant, uint64_t sequence, uint64_t floats, bool pull) {
  v1::ExchangeHeader header;
  *header.mutable_participant() = participant;
  header.mutable_commit()->set_sequence(sequence);
  header.mutable_commit()->set_base_version(-1);
  header.mutable_commit()->set_floats(floats);
  header.mutable_commit()->set_pull(pull);
  header.set_wait_ms(60'000);
  return header;
}

v1::ExchangeHeader PullHeader(const std::string& model) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_pull();
  return header;
}

v1::ExchangeHeader InitializeHeader(const std::string& model, uint64_t floats) {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model(model);
  header.mutable_initialize()->set_floats(floats);
  return header;
}

StubSession::~StubSession() {
  if (finished_) return;
  Cancel();
  Finish();
}

bool StubSession::Send(const v1::ExchangeHeader& header) {
  v1::ExchangeRequest request;
  *request.mutable_header() = header;
  return stream_->Write(request);
}

bool StubSession::Send(const v1::ExchangeHeader& header, uint64_t offset, absl::Span<const float> chunk) {
  v1::ExchangeRequest request;
  *request.mutable_header() = header;
  SetChunk(offset, chunk, request.mutable_chunk());
  return stream_->Write(request);
}

bool StubSession::Send(uint64_t offset, absl::Span<const float> chunk) {
  v1::ExchangeRequest request;
  SetChunk(offset, chunk, request.mutable_chunk());
  return stream_->Write(request);
}

std::optional<v1::ExchangeReply> StubSession::ReceiveMessage() {
  v1::ExchangeReply reply;
  if (!stream_->Read(&reply)) return std::nullopt;
  return reply;
}

std::optional<StubSession::Answer> StubSession::Receive() {
  Answer answer;
  size_t received = 0;
  do {
    v1::ExchangeReply reply;
    if (!stream_->Read(&reply)) return std::nullopt;
    if (reply.has_header()) {
      answer.header = reply.header();
      answer.center.resize(reply.header().pull_floats());
    }
    const std::string& data = reply.chunk().data();
    const size_t floats = data.size() / sizeof(float);
    if (reply.chunk().offset() != received || floats > answer.center.size() - received) return std::nullopt;
    std::copy_n(data.data(), floats * sizeof(float), reinterpret_cast<char*>(answer.center.data() + received));
    received += floats;
  } while (received < answer.center.size());
  return answer;
}

grpc::Status StubSession::Finish() {
  finished_ = true;
  stream_->WritesDone();
  v1::ExchangeReply reply;
  while (stream_->Read(&reply)) {
  }
  return stream_->Finish();
}

}  // namespace paramd
