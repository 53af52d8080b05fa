// The one conversion between Abseil's and gRPC's status.
#ifndef PARAMD_PROTO_STATUS_H_
#define PARAMD_PROTO_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace paramd {

// Trailing metadata of an error that the server itself has answered, to tell it from one of the transport.
inline constexpr char kAnsweredKey[] = "paramd-answered";

// The codes have the same numbers; unknown ones become UNKNOWN. What a peer says comes as one printable line.
absl::Status FromGrpcStatus(const grpc::Status& status);
grpc::Status ToGrpcStatus(const absl::Status& status);

// A status' message as every kind of answer may carry it: UTF-8, and short enough for HTTP/2's metadata.
std::string ToWireMessage(const absl::Status& status);

// From a ReplyHeader's code and message.
absl::Status FromWireStatus(int code, const std::string& message);

}  // namespace paramd

#endif  // PARAMD_PROTO_STATUS_H_
