// What answers the standard gRPC reflection service.
#ifndef PARAMD_SERVER_REFLECT_H_
#define PARAMD_SERVER_REFLECT_H_

#include <functional>
#include <string>

namespace paramd {

// Answers one message: a serialized ServerReflectionRequest. Thread-safe.
using Reflect = std::function<std::string(const std::string& request)>;

}  // namespace paramd

#endif  // PARAMD_SERVER_REFLECT_H_
