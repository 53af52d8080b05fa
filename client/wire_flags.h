// The names of transports and of encodings, for flags of a program:
//
//   ABSL_FLAG(paramd::Transport, transport, paramd::Transport::kAuto, "auto, grpc or shm");
//   ABSL_FLAG(paramd::Wire, wire, paramd::Wire::kFloat32, "f32, f16 or bf16");
#ifndef PARAMD_CLIENT_WIRE_FLAGS_H_
#define PARAMD_CLIENT_WIRE_FLAGS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/worker.h"

namespace paramd {

// "auto", "grpc" or "shm". False, with the reason in `error`, for anything else.
bool AbslParseFlag(absl::string_view name, Transport* transport, std::string* error);
std::string AbslUnparseFlag(Transport transport);

// "f32", "f16" or "bf16".
bool AbslParseFlag(absl::string_view name, Wire* wire, std::string* error);
std::string AbslUnparseFlag(Wire wire);

}  // namespace paramd

#endif  // PARAMD_CLIENT_WIRE_FLAGS_H_
