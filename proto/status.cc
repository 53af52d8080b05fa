#include "proto/status.h"

#include <string>

#include "proto/text.h"

namespace paramd {
namespace {

// HTTP/2 peers take 8 KiB of metadata, in which a byte may take three.
constexpr size_t kMaxMessage = 2048;

}  // namespace

absl::Status FromWireStatus(int code, const std::string& message) {
  const bool known = code >= 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      Printable(Shortened(message, 2 * kMaxMessage)));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return FromWireStatus(static_cast<int>(status.error_code()), status.error_message());
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ToWireMessage(status));
}

std::string ToWireMessage(const absl::Status& status) { return Shortened(Repaired(status.message()), kMaxMessage); }

}  // namespace paramd
