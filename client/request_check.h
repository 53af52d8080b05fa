// Names in requests, before they are sent. Internal to the client.
#ifndef PARAMD_CLIENT_REQUEST_CHECK_H_
#define PARAMD_CLIENT_REQUEST_CHECK_H_

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "proto/paramd.pb.h"

namespace paramd {

// INVALID_ARGUMENT, with the field's name, for a name that no message can hold.
absl::Status CheckRequest(const v1::CreateModelRequest& request);
absl::Status CheckRequest(const v1::GetModelRequest& request);
absl::Status CheckRequest(const v1::DeleteModelRequest& request);
absl::Status CheckRequest(const v1::JoinRequest& request);
absl::Status CheckRequest(const v1::GetHistoryRequest& request);

// What has no names that were not checked before.
inline absl::Status CheckRequest(const google::protobuf::MessageLite& /*request*/) { return absl::OkStatus(); }

}  // namespace paramd

#endif  // PARAMD_CLIENT_REQUEST_CHECK_H_
