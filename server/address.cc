#include "server/address.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace paramd {
namespace {

absl::Status InUse(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why,
                                             "; is another paramd running there? Stop it, or choose another --listen "
                                             "(port 0 lets the system choose)"));
}

absl::Status ProbeUnix(const ListenAddress& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (address.host.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", address.host, " is longer than the system's ",
                                                   sizeof(name.sun_path) - 1, " characters"));
  }
  std::memcpy(name.sun_path, address.host.data(), address.host.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  // A socket file that nobody listens on is left over, and gRPC replaces it.
  if (connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0) {
    return InUse(address.ToString(0), "somebody listens there");
  }
  return absl::OkStatus();
}

// Whether a socket's own address is the one that is listened on, as that of each accepted connection is.
bool IsAt(int socket, const ListenAddress& address, int port) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
  switch (own.ss_family) {
    case AF_INET:
      return !address.unix_socket && ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port) == port;
    case AF_INET6:
      return !address.unix_socket && ntohs(reinterpret_cast<const sockaddr_in6&>(own).sin6_port) == port;
    case AF_UNIX:
      return address.unix_socket && address.host == reinterpret_cast<const sockaddr_un&>(own).sun_path;
    default:
      return false;
  }
}

}  // namespace

bool ListenAddress::loopback() const {
  return unix_socket || host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

std::string ListenAddress::ToString(int real_port) const {
  if (unix_socket) return absl::StrCat("unix:", host);
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", real_port) : absl::StrCat(host, ":", real_port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  ListenAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    address.unix_socket = true;
    address.host = std::string(rest);
    if (!address.host.empty()) return address;
  } else if (const size_t colon = text.rfind(':'); colon != std::string::npos && colon > 0) {
    address.host = text.substr(0, colon);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    } else if (absl::StrContains(address.host, ':')) {
      address.host.clear();
    }
    if (!address.host.empty() && absl::SimpleAtoi(text.substr(colon + 1), &address.port) && address.port >= 0 &&
        address.port <= 65535) {
      return address;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("address '", text, "': use HOST:PORT, [IPV6]:PORT or unix:PATH, with a port of 0 to 65535"));
}

absl::Status ProbeListen(const ListenAddress& address) {
  if (address.unix_socket) return ProbeUnix(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string text = address.ToString(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("can't listen on ", text, ": ", gai_strerror(error), "; check the host in --listen"));
  }
  const auto freer = absl::MakeCleanup([found] { freeaddrinfo(found); });
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const auto closer = absl::MakeCleanup([fd] { close(fd); });
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, 1) != 0) return InUse(text, std::strerror(errno));
  }
  return absl::OkStatus();
}

void CutConnections(const ListenAddress& address, int port) {
  DIR* const files = opendir("/proc/self/fd");
  if (files == nullptr) return;
  const auto closer = absl::MakeCleanup([files] { closedir(files); });
  while (const dirent* const file = readdir(files)) {
    int fd = -1;
    if (!absl::SimpleAtoi(file->d_name, &fd)) continue;
    // A descriptor of our own, so that it stays the same file from the look to the cut.
    const int held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (held < 0) continue;
    if (IsAt(held, address, port)) shutdown(held, SHUT_RDWR);
    close(held);
  }
}

}  // namespace paramd
