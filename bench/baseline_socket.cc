#include "bench/baseline_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sync/mutex.h"

namespace paramd::bench {
namespace {

// A piece is received, added and sent back while it is in the cache; larger ones measured slower.
constexpr size_t kPieceBytes = 64 << 10;

absl::Status SystemError(const char* call) { return absl::UnavailableError(absl::StrCat(call, ": ", strerror(errno))); }

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address LoopbackAddress(int port) {
  Address address;
  auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in->sin_port = htons(static_cast<uint16_t>(port));
  address.length = sizeof(*in);
  return address;
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  Address address;
  if (absl::StartsWith(text, "unix:")) {
    const std::string path = text.substr(5);
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    if (path.size() >= sizeof(un->sun_path)) return absl::InvalidArgumentError(absl::StrCat(path, " is too long"));
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
    address.length = sizeof(*un);
    return address;
  }
  int port = 0;
  if (text != "tcp" && !absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is neither HOST:PORT nor unix:PATH"));
  }
  return LoopbackAddress(port);
}

void DontDelay(int fd) {
  const int on = 1;
  // Fails on a unix socket, which never delays.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool SendAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// What a client sends first: the operation. The answer to a commit is the same byte.
using Request = char;

class Center {
 public:
  explicit Center(size_t bytes) : floats_(bytes / sizeof(float)) {}

  bool Serve(int fd, Operation operation) {
    const size_t total = floats_.size() * sizeof(float);
    char* const center = reinterpret_cast<char*>(floats_.data());
    if (operation == Operation::kPull) return SendAll(fd, center, total);
    thread_local std::vector<float> piece(kPieceBytes / sizeof(float));
    for (size_t begin = 0; begin < total; begin += kPieceBytes) {
      const size_t bytes = std::min(kPieceBytes, total - begin);
      if (!ReceiveAll(fd, piece.data(), bytes)) return false;
      Add(piece.data(), begin / sizeof(float), bytes / sizeof(float));
      if (operation == Operation::kExchange && !SendAll(fd, center + begin, bytes)) return false;
    }
    const auto answer = static_cast<Request>(operation);
    return operation == Operation::kExchange || SendAll(fd, &answer, sizeof(answer));
  }

 private:
  void Add(const float* piece, size_t begin, size_t count) {
    MutexLock lock(&mutex_);
    float* const to = floats_.data() + begin;
    for (size_t i = 0; i < count; ++i) to[i] += piece[i];
  }

  Mutex mutex_;
  // Written under the lock; sent without it, since this baseline promises no whole version.
  std::vector<float> floats_;
};

void ServeConnection(int fd, Center* center) {
  Request request = 0;
  while (ReceiveAll(fd, &request, sizeof(request)) && center->Serve(fd, static_cast<Operation>(request))) {
  }
  close(fd);
}

class SocketPeer : public Peer {
 public:
  SocketPeer(int fd, Buffers buffers) : fd_(fd), buffers_(buffers) {}
  ~SocketPeer() override { close(fd_); }

  absl::Status Run(Operation operation) override {
    const size_t bytes = buffers_.update.size() * sizeof(float);
    auto answer = static_cast<Request>(operation);
    bool done = SendAll(fd_, &answer, sizeof(answer));
    if (operation == Operation::kPull) {
      done = done && ReceiveAll(fd_, buffers_.center.data(), bytes);
    } else if (operation == Operation::kCommit) {
      done = done && SendAll(fd_, buffers_.update.data(), bytes) && ReceiveAll(fd_, &answer, sizeof(answer));
    } else if (bytes <= kPieceBytes) {
      done = done && SendAll(fd_, buffers_.update.data(), bytes) && ReceiveAll(fd_, buffers_.center.data(), bytes);
    } else {
      done = done && SendAndReceive(bytes);
    }
    return done ? absl::OkStatus() : SystemError("the connection broke");
  }

 private:
  // Far enough for neither side to wait, and less than the other's receive buffer holds: if that is full, while the
  // other is itself sending, Linux drops acknowledgements with the data, and both may stand still for good.
  static constexpr size_t kMaxAhead = size_t{8} << 20;

  // Both directions on one thread.
  bool SendAndReceive(size_t bytes) {
    const char* const from = reinterpret_cast<const char*>(buffers_.update.data());
    char* const to = reinterpret_cast<char*>(buffers_.center.data());
    size_t sent = 0;
    size_t received = 0;
    while (received < bytes) {
      const bool sends = sent < bytes && sent < received + kMaxAhead;
      pollfd ready = {fd_, static_cast<int16_t>(sends ? POLLIN | POLLOUT : POLLIN), 0};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR) return false;
      if ((ready.revents & POLLOUT) != 0) {
        const ssize_t n = send(fd_, from + sent, std::min(kPieceBytes, bytes - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) sent += static_cast<size_t>(n);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
      }
      if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        const ssize_t n = recv(fd_, to + received, bytes - received, MSG_DONTWAIT);
        if (n > 0) received += static_cast<size_t>(n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      }
    }
    return true;
  }

  const int fd_;
  const Buffers buffers_;
};

}  // namespace

absl::Status ServeSocket(const std::string& listen_on, size_t bytes) {
  auto address = ParseAddress(listen_on);
  if (!address.ok()) return address.status();
  const int listener = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return SystemError("socket");
  if (bind(listener, address->get(), address->length) != 0) return SystemError("bind");
  if (listen(listener, SOMAXCONN) != 0) return SystemError("listen");
  std::string printed = listen_on;
  if (address->storage.ss_family == AF_INET) {
    if (getsockname(listener, address->get(), &address->length) != 0) return SystemError("getsockname");
    printed = absl::StrCat("127.0.0.1:", ntohs(reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port));
  }
  Center center(bytes);
  std::cout << "listens on " << printed << std::endl;
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return SystemError("accept");
    DontDelay(fd);
    std::thread(ServeConnection, fd, &center).detach();
  }
}

absl::StatusOr<std::unique_ptr<Peer>> ConnectSocketPeer(const std::string& text, Buffers buffers) {
  auto address = ParseAddress(text);
  if (!address.ok()) return address.status();
  const int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  auto peer = std::make_unique<SocketPeer>(fd, buffers);
  if (connect(fd, address->get(), address->length) != 0) return SystemError("connect");
  DontDelay(fd);
  return peer;
}

}  // namespace paramd::bench
