// Where servers listen, and where clients find them.
#ifndef PARAMD_PROTO_ADDRESS_H_
#define PARAMD_PROTO_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace paramd {

struct Address {
  bool unix_socket = false;
  std::string host;  // or the socket's path
  int port = 0;

  // Only this host can reach it: a unix socket, an address of loopback, or localhost by name.
  bool loopback() const;
  std::string ToString() const;  // as people write it
  std::string Target() const;    // as gRPC takes it
};

// HOST:PORT, [IPV6]:PORT or unix:PATH. INVALID_ARGUMENT names the part that is wrong, and what to write. To listen on,
// port 0 lets the system choose; to connect to, there is none.
absl::StatusOr<Address> ParseListenAddress(const std::string& text);
absl::StatusOr<Address> ParseServerAddress(const std::string& text);

}  // namespace paramd

#endif  // PARAMD_PROTO_ADDRESS_H_
