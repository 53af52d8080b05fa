// The one conversion between Abseil's and gRPC's status.
#ifndef PARAMD_PROTO_STATUS_H_
#define PARAMD_PROTO_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace paramd {

// Trailing metadata of an error that the server itself has answered, to tell it from one of the transport.
inline constexpr char kAnsweredKey[] = "paramd-answered";

// The codes have the same numbers; unknown ones become UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);
grpc::Status ToGrpcStatus(const absl::Status& status);

// From a ReplyHeader's code and message.
absl::Status FromWireStatus(int code, const std::string& message);

}  // namespace paramd

#endif  // PARAMD_PROTO_STATUS_H_
