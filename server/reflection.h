// The standard gRPC reflection service, for tools like grpcurl.
#ifndef PARAMD_SERVER_REFLECTION_H_
#define PARAMD_SERVER_REFLECTION_H_

namespace paramd {

// Adds reflection to servers started later. Needs full protobuf with its process-wide registry of descriptors, so it's
// for the daemon's main alone.
void EnableReflection();

}  // namespace paramd

#endif  // PARAMD_SERVER_REFLECTION_H_
