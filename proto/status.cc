#include "proto/status.h"

#include <string>

namespace paramd {

absl::Status FromWireStatus(int code, const std::string& message) {
  const bool known = code >= 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, message);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return FromWireStatus(static_cast<int>(status.error_code()), status.error_message());
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace paramd
