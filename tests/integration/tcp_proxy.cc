#include "tests/integration/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

void Check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::abort();
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A listening socket on a port that the system chooses, and its address.
int Listen(std::string* address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in bound = Loopback(0);
  socklen_t size = sizeof(bound);
  Check(bind(fd, reinterpret_cast<sockaddr*>(&bound), size) == 0 && listen(fd, 64) == 0, "listen");
  Check(getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0, "getsockname");
  *address = absl::StrCat("127.0.0.1:", ntohs(bound.sin_port));
  return fd;
}

int PortOf(const std::string& server) { return std::atoi(server.substr(server.rfind(':') + 1).c_str()); }

}  // namespace

SilentListener::SilentListener() : fd_(Listen(&address_)) {}
SilentListener::~SilentListener() { close(fd_); }

TcpProxy::TcpProxy(const std::string& server) : server_port_(PortOf(server)) {
  listener_ = Listen(&address_);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    CutLocked();
  }
  Wake();
  thread_.join();
  close(listener_);
  close(wake_);
}

void TcpProxy::SetServer(const std::string& server) {
  MutexLock lock(&mutex_);
  server_port_ = PortOf(server);
}

void TcpProxy::HoldReplies() {
  {
    MutexLock lock(&mutex_);
    holding_replies_ = true;
  }
  Wake();
}

void TcpProxy::HoldRequests() {
  {
    MutexLock lock(&mutex_);
    holding_requests_ = true;
  }
  Wake();
}

void TcpProxy::Release() {
  {
    MutexLock lock(&mutex_);
    holding_replies_ = holding_requests_ = false;
  }
  Wake();
}

void TcpProxy::Cut() {
  MutexLock lock(&mutex_);
  CutLocked();
}

void TcpProxy::CutAfter(size_t bytes) {
  MutexLock lock(&mutex_);
  left_ = bytes;
}

void TcpProxy::Wake() const {
  const uint64_t one = 1;
  Check(write(wake_, &one, sizeof(one)) == sizeof(one), "eventfd");
}

// The reading thread may be in poll with them: shut down, they end it there, and that thread closes them.
void TcpProxy::CutLocked() {
  for (const Pair& pair : pairs_) {
    shutdown(pair.client, SHUT_RDWR);
    shutdown(pair.server, SHUT_RDWR);
  }
  holding_replies_ = holding_requests_ = false;
  left_ = kUnlimited;
}

// Passes what there is from one socket to another; false once either is closed.
bool TcpProxy::Pass(int from, int to) {
  char bytes[65536];
  const ssize_t n = recv(from, bytes, sizeof(bytes), 0);
  if (n <= 0) return false;
  auto size = static_cast<size_t>(n);
  bool cut = false;
  {
    MutexLock lock(&mutex_);
    cut = size >= left_;
    size = std::min(size, left_);
    if (left_ != kUnlimited) left_ -= size;
  }
  for (size_t sent = 0; sent < size;) {
    const ssize_t m = send(to, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (m <= 0) return false;
    sent += static_cast<size_t>(m);
  }
  if (cut) Cut();
  return !cut;
}

void TcpProxy::Run() {
  while (true) {
    std::vector<Pair> pairs;
    short from_server = POLLIN;
    short from_client = POLLIN;
    int server_port = 0;
    {
      MutexLock lock(&mutex_);
      if (stopping_) break;
      pairs = pairs_;
      server_port = server_port_;
      if (holding_replies_) from_server = 0;
      if (holding_requests_) from_client = 0;
    }
    std::vector<pollfd> polled = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Pair& pair : pairs) {
      polled.push_back({pair.client, from_client, 0});
      polled.push_back({pair.server, from_server, 0});
    }
    Check(poll(polled.data(), polled.size(), -1) > 0, "poll");
    // Whatever has changed meanwhile must be seen before anything passes.
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      Check(read(wake_, &count, sizeof(count)) == sizeof(count), "eventfd");
      continue;
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      const pollfd& client = polled[2 + 2 * i];
      const pollfd& server = polled[3 + 2 * i];
      bool open = true;
      if (client.revents != 0) open = Pass(pairs[i].client, pairs[i].server);
      if (open && server.revents != 0) open = Pass(pairs[i].server, pairs[i].client);
      if (open) continue;
      MutexLock lock(&mutex_);
      std::erase_if(pairs_, [&](const Pair& pair) { return pair.client == pairs[i].client; });
      close(pairs[i].client);
      close(pairs[i].server);
    }
    if (polled[1].revents != 0) {
      Pair pair{.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
                .server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      const sockaddr_in server = Loopback(server_port);
      if (connect(pair.server, reinterpret_cast<const sockaddr*>(&server), sizeof(server)) != 0) {
        close(pair.client);
        close(pair.server);
        continue;
      }
      MutexLock lock(&mutex_);
      pairs_.push_back(pair);
    }
  }
  MutexLock lock(&mutex_);
  for (const Pair& pair : pairs_) {
    close(pair.client);
    close(pair.server);
  }
  pairs_.clear();
}

}  // namespace paramd
