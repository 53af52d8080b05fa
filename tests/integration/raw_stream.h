// Calls whose messages are bytes: of services without generated code here, or with messages that are none.
#ifndef PARAMD_TESTS_INTEGRATION_RAW_STREAM_H_
#define PARAMD_TESTS_INTEGRATION_RAW_STREAM_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

namespace paramd {

// Thread-compatible. Cancels what is left of the call at its end.
class RawStream {
 public:
  explicit RawStream(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method = "/paramd.v1.ParameterServer/Exchange");
  ~RawStream();

  // False if the call has ended.
  bool Write(const std::string& message);

  // Nothing if the call has ended.
  std::optional<std::string> Read();

  void Cancel() { context_.TryCancel(); }

  // Says that nothing more comes, and returns how the call ended.
  grpc::Status Finish();

 private:
  bool Step();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool finished_ = false;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_INTEGRATION_RAW_STREAM_H_
