// Numbers that tell apart what bears the same name.
#ifndef PARAMD_SERVER_IDENTITY_H_
#define PARAMD_SERVER_IDENTITY_H_

#include <cstdint>

namespace paramd {

// From the system's generator: never 0, and in practice never the same twice. Thread-safe.
uint64_t RandomId();

}  // namespace paramd

#endif  // PARAMD_SERVER_IDENTITY_H_
