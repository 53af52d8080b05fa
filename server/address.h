// Addresses to listen on.
#ifndef PARAMD_SERVER_ADDRESS_H_
#define PARAMD_SERVER_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paramd {

struct ListenAddress {
  bool unix_socket = false;
  std::string host;  // or the socket's path
  int port = 0;

  bool loopback() const;  // only this host can reach it
  std::string ToString(int real_port) const;
};

// HOST:PORT, [IPV6]:PORT or unix:PATH. INVALID_ARGUMENT says what is allowed.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// Tries the address by hand. OK if it is free; else UNAVAILABLE with the system's reason.
absl::Status ProbeListen(const ListenAddress& address);

// Ends every connection that this process accepted at that port, or socket, whatever it still had to send.
void CutConnections(const ListenAddress& address, int port);

}  // namespace paramd

#endif  // PARAMD_SERVER_ADDRESS_H_
