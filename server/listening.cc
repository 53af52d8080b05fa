#include "server/listening.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/identity.h"
#include "sync/clock.h"

namespace paramd {
namespace {

constexpr char kTaken[] =
    "is another paramd running there? Stop it, or choose another --listen (port 0 lets the system choose)";
// It is held for some milliseconds.
constexpr absl::Duration kLockTimeout = absl::Seconds(5);
// To find a port that is free at all addresses of a name.
constexpr int kPortAttempts = 10;

absl::Status CantListen(const Address& address, const std::string& why, const std::string& next_step) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", address.ToString(), ": ", why, "; ", next_step));
}

sockaddr_un NameOf(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  return name;
}

// 0 if somebody listens there, else the system's error.
int Connect(const std::string& path) {
  const sockaddr_un name = NameOf(path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const absl::Cleanup closer = [fd] { close(fd); };
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  // EAGAIN: there, and busy.
  return result == 0 || errno == EAGAIN ? 0 : errno;
}

// Whether a socket's own address is the one that is listened on, as that of each accepted connection is.
bool IsAt(int socket, const Address& bound) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
  switch (own.ss_family) {
    case AF_INET:
      return !bound.unix_socket && ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port) == bound.port;
    case AF_INET6:
      return !bound.unix_socket && ntohs(reinterpret_cast<const sockaddr_in6&>(own).sin6_port) == bound.port;
    case AF_UNIX:
      return bound.unix_socket && bound.host == reinterpret_cast<const sockaddr_un&>(own).sun_path;
    default:
      return false;
  }
}

bool IsLoopback(const addrinfo& info) {
  if (info.ai_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(info.ai_addr)->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr);
}

// Listens there, or says why not by the system's error. Nothing is closed in between: nobody else gets the port.
int TryListen(const addrinfo& info, int port, FileDescriptor* listener) {
  FileDescriptor opened(socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!opened.valid()) return errno;
  const int one = 1;
  setsockopt(opened.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool v6 = info.ai_family == AF_INET6;
  // Of [::] alone, connections of both kinds.
  const int only = v6 && !IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr);
  if (v6) setsockopt(opened.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  sockaddr_storage own{};
  std::memcpy(&own, info.ai_addr, info.ai_addrlen);
  (v6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port : reinterpret_cast<sockaddr_in&>(own).sin_port) =
      htons(static_cast<uint16_t>(port));
  if (bind(opened.get(), reinterpret_cast<const sockaddr*>(&own), info.ai_addrlen) != 0) return errno;
  if (listen(opened.get(), SOMAXCONN) != 0) return errno;
  *listener = std::move(opened);
  return 0;
}

int PortOf(const FileDescriptor& listener) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

// Keeps this user's other servers from replacing or removing a socket in a folder meanwhile, by a lock on a file that
// nobody else may open. Where that can't be made it must do without. Thread-compatible.
class FolderLock {
 public:
  explicit FolderLock(int folder)
      : folder_(folder), name_(absl::StrCat(".paramd-", geteuid(), ".lock")), file_(Take(&timed_out_)) {}
  ~FolderLock() {
    if (!file_.valid()) return;
    unlinkat(folder_, name_.c_str(), 0);
  }

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Another server has it for good.
  bool timed_out() const { return timed_out_; }

 private:
  FileDescriptor Take(bool* timed_out) const {
    const absl::Time deadline = Clock::Steady()->Now() + kLockTimeout;
    while (true) {
      FileDescriptor file(openat(folder_, name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
      struct stat own {};
      if (!file.valid() || fstat(file.get(), &own) != 0 || own.st_uid != geteuid()) return FileDescriptor();
      if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
        // Not if its holder has just removed it.
        struct stat there {};
        if (fstatat(folder_, name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == own.st_ino)
          return file;
      } else if (errno != EWOULDBLOCK && errno != EINTR) {
        return FileDescriptor();
      }
      if (Clock::Steady()->Now() >= deadline) {
        *timed_out = true;
        return FileDescriptor();
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  const int folder_;
  const std::string name_;
  bool timed_out_ = false;
  const FileDescriptor file_;
};

}  // namespace

absl::StatusOr<Listeners> Listen(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0) {
    return CantListen(address, gai_strerror(error), "check the host in --listen");
  }
  const absl::Cleanup freer = [found] { freeaddrinfo(found); };
  for (int attempt = 1;; ++attempt) {
    Listeners listeners{.port = address.port};
    // A name may stand for addresses of which this host has only some.
    int missing = 0;
    bool again = false;
    for (const addrinfo* info = found; info != nullptr && !again; info = info->ai_next) {
      if (address.loopback() && !IsLoopback(*info)) {
        return CantListen(address, "the name leads beyond loopback", "mend /etc/hosts, or name an address");
      }
      FileDescriptor listener;
      const int error = TryListen(*info, listeners.port, &listener);
      if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
        missing = error;
      } else if (error == EADDRINUSE && address.port == 0 && attempt < kPortAttempts) {
        // The port that the system chose is another's at this address.
        again = true;
      } else if (error != 0) {
        return CantListen(address, std::strerror(error), kTaken);
      } else {
        listeners.port = PortOf(listener);
        listeners.sockets.push_back(std::move(listener));
      }
    }
    if (again) continue;
    if (!listeners.sockets.empty()) return listeners;
    return CantListen(address, std::strerror(missing), "is it an address of this host? 127.0.0.1 always is");
  }
}

// ---------------------------------------------------------------------------------------------------------------------

SocketFile::SocketFile(std::string path, std::string name, int folder)
    : path_(std::move(path)),
      name_(std::move(name)),
      temporary_(absl::StrCat(".paramd-", absl::Hex(RandomId()))),
      folder_(folder) {}

SocketFile::~SocketFile() {
  unlinkat(folder_, temporary_.c_str(), 0);
  if (published_) {
    const FolderLock lock(folder_);
    struct stat there {};
    if (!lock.timed_out() && fstatat(folder_, name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        there.st_dev == device_ && there.st_ino == inode_) {
      unlinkat(folder_, name_.c_str(), 0);
    }
  }
  close(folder_);
}

absl::StatusOr<std::unique_ptr<SocketFile>> SocketFile::Prepare(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string folder = whole.has_parent_path() ? whole.parent_path().string() : ".";
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return CantListen({.unix_socket = true, .host = path}, std::strerror(errno),
                      absl::StrCat("is ", folder, " a folder that you may use?"));
  }
  std::unique_ptr<SocketFile> file(new SocketFile(path, whole.filename().string(), fd));
  if (const auto left_over = file->LeftOver(); !left_over.ok()) return left_over.status();
  return file;
}

absl::Status SocketFile::Error(const std::string& why, const std::string& next_step) const {
  return CantListen({.unix_socket = true, .host = path_}, why, next_step);
}

absl::StatusOr<bool> SocketFile::LeftOver() const {
  struct stat there {};
  if (fstatat(folder_, name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return Error(std::strerror(errno), "name a path for the socket's file");
  }
  if (!S_ISSOCK(there.st_mode)) {
    return Error("there is something that is no socket", "remove it, or choose another path");
  }
  const int error = Connect(path_);
  if (error == 0) return Error("somebody listens there", kTaken);
  // It may have gone meanwhile.
  if (error == ENOENT) return false;
  if (error == ECONNREFUSED) return true;
  return Error(std::strerror(error), "whose socket is it? Choose another path");
}

Address SocketFile::bound() const {
  // Short, however long the path.
  return {.unix_socket = true, .host = absl::StrCat("/proc/self/fd/", folder_, "/", temporary_)};
}

absl::StatusOr<Listeners> SocketFile::Listen() const {
  const sockaddr_un name = NameOf(bound().host);
  FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid() || bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return Error(std::strerror(errno), "may you make files in its folder?");
  }
  Listeners listeners;
  listeners.sockets.push_back(std::move(listener));
  return listeners;
}

absl::Status SocketFile::Publish() {
  struct stat own {};
  bool there = fstatat(folder_, temporary_.c_str(), &own, AT_SYMLINK_NOFOLLOW) == 0 && Link();
  int error = errno;
  if (!there && error == EEXIST) {
    const FolderLock lock(folder_);
    if (lock.timed_out()) {
      return Error("another paramd holds the lock on what is left over there", "see with lslocks which");
    }
    const auto left_over = LeftOver();
    if (!left_over.ok()) return left_over.status();
    there = *left_over ? renameat(folder_, temporary_.c_str(), folder_, name_.c_str()) == 0 : Link();
    error = errno;
  }
  if (!there) return Error(std::strerror(error), "check the folder's permissions");
  published_ = true;
  device_ = own.st_dev;
  inode_ = own.st_ino;
  return absl::OkStatus();
}

bool SocketFile::Link() const {
  if (linkat(folder_, temporary_.c_str(), folder_, name_.c_str(), 0) != 0) return false;
  unlinkat(folder_, temporary_.c_str(), 0);
  return true;
}

// ---------------------------------------------------------------------------------------------------------------------

void CutConnections(const Address& bound) {
  DIR* const files = opendir("/proc/self/fd");
  if (files == nullptr) return;
  const absl::Cleanup closer = [files] { closedir(files); };
  while (const dirent* const file = readdir(files)) {
    int fd = -1;
    if (!absl::SimpleAtoi(file->d_name, &fd)) continue;
    // A descriptor of our own, so that it stays the same file from the look to the cut.
    const int held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (held < 0) continue;
    if (IsAt(held, bound)) shutdown(held, SHUT_RDWR);
    close(held);
  }
}

}  // namespace paramd
