// What the standard gRPC reflection service tells tools like grpcurl.
#ifndef PARAMD_SERVER_REFLECTION_H_
#define PARAMD_SERVER_REFLECTION_H_

#include "server/reflect.h"

namespace paramd {

// Describes the services of a Server. Needs full protobuf, so it's for the daemon's main alone.
Reflect MakeReflection();

}  // namespace paramd

#endif  // PARAMD_SERVER_REFLECTION_H_
