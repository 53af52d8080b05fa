// The way that the floats of exchanges take in this run of a test.
#ifndef PARAMD_TESTS_SUPPORT_TRANSPORT_H_
#define PARAMD_TESTS_SUPPORT_TRANSPORT_H_

#include <cstdlib>
#include <string>

#include "client/worker.h"

namespace paramd {

// The environment's PARAMD_TRANSPORT: tcp (also if it is not set), unix or shm.
inline std::string TestTransport() {
  const char* const transport = std::getenv("PARAMD_TRANSPORT");
  return transport == nullptr ? "tcp" : transport;
}

inline Transport TestWorkerTransport() { return TestTransport() == "shm" ? Transport::kShm : Transport::kGrpc; }

}  // namespace paramd

#endif  // PARAMD_TESTS_SUPPORT_TRANSPORT_H_
