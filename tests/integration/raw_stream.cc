#include "tests/integration/raw_stream.h"

#include <vector>

#include "tests/support/await.h"

namespace paramd {

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  context_.set_deadline(absl::ToChronoTime(absl::Now() + kAwaitTimeout));
  grpc::GenericStub stub(channel);
  stream_ = stub.PrepareCall(&context_, method, &queue_);
  stream_->StartCall(nullptr);
  Step();
}

RawStream::~RawStream() {
  if (!finished_) {
    Cancel();
    Finish();
  }
  queue_.Shutdown();
  while (Step()) {
  }
}

bool RawStream::Step() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool RawStream::Write(const std::string& message) {
  const grpc::Slice slice(message);
  stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  return Step();
}

std::optional<std::string> RawStream::Read() {
  grpc::ByteBuffer buffer;
  stream_->Read(&buffer, nullptr);
  std::vector<grpc::Slice> slices;
  if (!Step() || !buffer.Dump(&slices).ok()) return std::nullopt;
  std::string message;
  for (const grpc::Slice& slice : slices) message.append(slice.begin(), slice.end());
  return message;
}

grpc::Status RawStream::Finish() {
  finished_ = true;
  stream_->WritesDone(nullptr);
  Step();
  while (Read().has_value()) {
  }
  grpc::Status status;
  stream_->Finish(&status, nullptr);
  Step();
  return status;
}

}  // namespace paramd
