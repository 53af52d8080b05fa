// The version of this release, of the daemon, the client and the tools.
#ifndef PARAMD_PROTO_VERSION_H_
#define PARAMD_PROTO_VERSION_H_

namespace paramd {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace paramd

#endif  // PARAMD_PROTO_VERSION_H_
