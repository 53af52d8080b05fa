#include "server/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "process/descriptors.h"
#include "process/system_call.h"
#include "sync/clock.h"

namespace paramd {
namespace {

// After the system had nothing for a connection: a descriptor, memory.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// To look at every connection takes a while, and peers decide how often that is asked for.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
// Without a refusal, after which there are none any more.
constexpr absl::Duration kQuiet = absl::Seconds(2);
// Fewer descriptors for connections than that are a mistake.
constexpr int kFewestConnections = 4;

struct Peer {
  std::string name;
  bool local = false;
};

Peer FindPeer(int connection, const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    inet_ntop(AF_INET, &v4, text, sizeof(text));
    return {text, ntohl(v4.s_addr) >> 24 == 127};
  }
  if (address.ss_family == AF_INET6) {
    in6_addr v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof(text));
      return {text, v6.s6_addr[12] == 127};
    }
    const bool local = IN6_IS_ADDR_LOOPBACK(&v6);
    // Whoever has one address of it has all.
    std::fill_n(&v6.s6_addr[8], 8, 0);
    inet_ntop(AF_INET6, &v6, text, sizeof(text));
    return {absl::StrCat(text, "/64"), local};
  }
  ucred user{};
  socklen_t length = sizeof(user);
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &user, &length);
  return {absl::StrCat("user ", user.uid), true};
}

ino_t InodeOf(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

}  // namespace

absl::Status Acceptor::CheckLimit(int used) {
  const int limit = DescriptorLimit();
  if (used < limit - kSpareDescriptors - kFewestConnections) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("this process may open ", limit,
                                                   " files, which leaves none for connections; raise the limit ",
                                                   "(`ulimit -n`, LimitNOFILE= of systemd) to 1024 or more"));
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(Listeners listeners, AcceptorOptions options, Take take) {
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  if (auto status = CheckLimit(stop.valid() ? stop.get() : DescriptorLimit()); !status.ok()) return status;
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(std::move(listeners), std::move(options), std::move(take), std::move(stop)));
  acceptor->thread_ = std::thread([raw = acceptor.get()] { raw->Run(); });
  return acceptor;
}

Acceptor::Acceptor(Listeners listeners, AcceptorOptions options, Take take, FileDescriptor stop)
    : options_(std::move(options)), take_(std::move(take)), stop_(std::move(stop)), listeners_(std::move(listeners)) {}

Acceptor::~Acceptor() {
  if (thread_.joinable()) Stop();
}

void Acceptor::Stop() {
  const uint64_t one = 1;
  RetryInterrupted([&] { return write(stop_.get(), &one, sizeof(one)); });
  thread_.join();
  listeners_.sockets.clear();
}

void Acceptor::Run() {
  std::vector<pollfd> polled;
  while (true) {
    const absl::Time now = Clock::Steady()->Now();
    if (refused_now_ > 0 && now >= last_refusal_ + kQuiet) {
      if (options_.log != nullptr) options_.log(absl::StrCat("event=accepting refused=", refused_now_));
      refused_now_ = 0;
    }
    const bool accepting = now >= accept_after_;
    absl::Time wake = accepting ? absl::InfiniteFuture() : accept_after_;
    if (refused_now_ > 0) wake = std::min(wake, last_refusal_ + kQuiet);
    polled.assign({{stop_.get(), POLLIN, 0}});
    for (const FileDescriptor& listener : listeners_.sockets) {
      polled.push_back({accepting ? listener.get() : -1, POLLIN, 0});
    }
    // Rounded up, so that what is due then is due.
    const int64_t timeout_ms =
        wake == absl::InfiniteFuture() ? -1 : absl::ToInt64Milliseconds(std::max(wake - now, absl::ZeroDuration())) + 1;
    if (poll(polled.data(), polled.size(), static_cast<int>(timeout_ms)) < 0) continue;
    if (polled[0].revents != 0) return;
    // In turns, so that none holds up the others.
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) AcceptOne(polled[i].fd);
    }
  }
}

void Acceptor::AcceptOne(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const int accepted = accept4(listener, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (accepted < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    accept_after_ = Clock::Steady()->Now() + kAcceptPause;
    return Refused(std::strerror(errno));
  }
  const Peer peer = FindPeer(accepted, address);
  std::string problem;
  {
    MutexLock lock(&mutex_);
    problem = ProblemLocked(accepted, peer.name, peer.local);
    if (problem.empty()) HoldLocked(accepted, peer.name);
  }
  if (!problem.empty()) {
    close(accepted);
    return Refused(problem);
  }
  const int one = 1;
  if (address.ss_family != AF_UNIX) setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  take_(listener, accepted);
}

std::string Acceptor::ProblemLocked(int connection, const std::string& peer, bool local) {
  // The lowest number that is free is given first.
  const int limit = DescriptorLimit();
  const int room = limit - kSpareDescriptors;
  if (connection >= room) {
    return absl::StrCat("of ", limit, " files that may be open (ulimit -n) only ", kSpareDescriptors,
                        " are left, which the daemon needs; raise the limit, or have fewer workers");
  }
  const size_t most = options_.max_connections > 0 ? options_.max_connections : static_cast<size_t>(room);
  size_t most_of_peer = options_.max_connections_per_peer;
  if (most_of_peer == 0) most_of_peer = local ? most : std::max<size_t>(most / 4 * 3, 1);
  const absl::Time now = Clock::Steady()->Now();
  if ((held_.size() >= most || OfPeerLocked(peer) >= most_of_peer) && now >= last_look_ + kLookInterval) {
    last_look_ = now;
    LookLocked();
  }
  if (held_.size() >= most) {
    return absl::StrCat("there are ", held_.size(), " connections, as many as may be (--max_connections)");
  }
  const size_t of_peer = OfPeerLocked(peer);
  if (of_peer >= most_of_peer) {
    return absl::StrCat(peer, " has ", of_peer, " connections, as many as one peer may (--max_connections_per_peer)");
  }
  return "";
}

size_t Acceptor::OfPeerLocked(const std::string& peer) const {
  const auto it = of_peers_.find(peer);
  return it == of_peers_.end() ? 0 : it->second;
}

void Acceptor::HoldLocked(int connection, const std::string& peer) {
  if (const auto before = held_.find(connection); before != held_.end()) ForgetLocked(before);
  held_[connection] = {InodeOf(connection), peer};
  ++of_peers_[peer];
}

void Acceptor::ForgetLocked(std::map<int, Held>::iterator held) {
  const auto peer = of_peers_.find(held->second.peer);
  if (--peer->second == 0) of_peers_.erase(peer);
  held_.erase(held);
}

void Acceptor::LookLocked() {
  for (auto it = held_.begin(); it != held_.end();) {
    const auto next = std::next(it);
    if (InodeOf(it->first) != it->second.inode) ForgetLocked(it);
    it = next;
  }
}

void Acceptor::Refused(const std::string& why) {
  last_refusal_ = Clock::Steady()->Now();
  if (++refused_now_ == 1 && options_.log != nullptr) {
    options_.log(absl::StrCat("event=refusing_connections reason=\"", why, "\""));
  }
  MutexLock lock(&mutex_);
  ++refused_;
}

size_t Acceptor::connections() {
  MutexLock lock(&mutex_);
  LookLocked();
  return held_.size();
}

size_t Acceptor::refused() const {
  MutexLock lock(&mutex_);
  return refused_;
}

}  // namespace paramd
