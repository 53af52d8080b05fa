#include "shm/segment_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "shm/handshake.h"

namespace paramd {
namespace {

constexpr int kBacklog = 128;
// After the system had no more files for a connection.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

// Of the system's own generator: nobody can guess them.
std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) std::memcpy(&id, RandomBytes(sizeof(id)).data(), sizeof(id));
  return id;
}

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("can't offer shared memory: ", what, ": ", std::strerror(errno),
                                             "; --max_shared_bytes=0 does without it"));
}

absl::Status CheckPeer(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::PermissionDeniedError("paramd can't tell who asks for shared memory");
  }
  if (peer.uid == geteuid() || peer.uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("paramd runs as user ", geteuid(),
                                                  " and shares memory with that user and root only, not with user ",
                                                  peer.uid, "; run the worker as the same user"));
}

}  // namespace

uint64_t DefaultMaxSharedBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 4;
}

SegmentServer::SegmentServer(SegmentServerOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<SegmentServer>> SegmentServer::Start(SegmentServerOptions options) {
  std::unique_ptr<SegmentServer> server(new SegmentServer(std::move(options)));
  if (auto status = server->Listen(); !status.ok()) return status;
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

absl::Status SegmentServer::Listen() {
  socket_name_ = absl::StrCat("paramd-", absl::BytesToHexString(RandomBytes(16)));
  listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return SystemError("socket");
  const auto address = MakeAbstractAddress(socket_name_);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) != 0) {
    return SystemError("bind");
  }
  if (listen(listener_.get(), kBacklog) != 0) return SystemError("listen");
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  return stop_.valid() ? absl::OkStatus() : SystemError("eventfd");
}

SegmentServer::~SegmentServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

std::shared_ptr<const Segment> SegmentServer::Find(uint64_t id, const SegmentUser& user) {
  MutexLock lock(&mutex_);
  const auto it = segments_.find(id);
  if (it == segments_.end()) return nullptr;
  if (!std::exchange(it->second.used, true)) it->second.user = user;
  return it->second.segment;
}

void SegmentServer::Release(const SegmentUser& user) {
  GiveUp([&](const Granted& granted) {
    return granted.used && granted.user.model_id == user.model_id &&
           (user.worker.empty() ||
            (granted.user.worker == user.worker && granted.user.incarnation == user.incarnation));
  });
}

template <typename Over>
void SegmentServer::GiveUp(const Over& over) {
  std::vector<std::shared_ptr<const Segment>> given_up;  // unmapped outside the lock
  MutexLock lock(&mutex_);
  for (auto it = segments_.begin(); it != segments_.end();) {
    if (!over(it->second)) {
      ++it;
      continue;
    }
    // Its end is what the peer notices; the thread then closes it.
    shutdown(it->second.socket, SHUT_RDWR);
    given_up.push_back(std::move(it->second.segment));
    it = segments_.erase(it);
  }
}

size_t SegmentServer::segments() const {
  MutexLock lock(&mutex_);
  return segments_.size();
}

void SegmentServer::Run() {
  std::vector<pollfd> polled;
  while (true) {
    const absl::Time now = absl::Now();
    const bool accepting = now >= accept_after_;
    absl::Time wake = accepting ? absl::InfiniteFuture() : accept_after_;
    polled.assign({{stop_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}});
    for (const Connection& connection : connections_) {
      polled.push_back({connection.socket.get(), POLLIN, 0});
      wake = std::min(wake, connection.deadline);
    }
    // Rounded up, so that what is due then is due.
    const int64_t timeout_ms =
        wake == absl::InfiniteFuture() ? -1 : absl::ToInt64Milliseconds(std::max(wake - now, absl::ZeroDuration())) + 1;
    if (poll(polled.data(), polled.size(), static_cast<int>(timeout_ms)) < 0) continue;
    if (polled[0].revents != 0) return;
    // Those that ended make room for new ones.
    const absl::Time after = absl::Now();
    auto event = polled.begin() + 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++event) {
      const bool keep = event->revents != 0 ? Handle(&*it) : after < it->deadline;
      if (keep) {
        ++it;
      } else {
        Forget(*it);
        it = connections_.erase(it);
      }
    }
    if (polled[1].revents != 0) Accept();
  }
}

void SegmentServer::Accept() {
  while (true) {
    FileDescriptor accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) accept_after_ = absl::Now() + kAcceptPause;
      return;
    }
    absl::Status refusal = CheckPeer(accepted.get());
    if (refusal.ok() && connections_.size() >= options_.max_connections) {
      refusal = absl::ResourceExhaustedError(
          absl::StrCat("paramd shares memory with ", connections_.size(), " workers, as many as it can"));
    }
    if (!refusal.ok()) {
      SendMessage(accepted.get(), EncodeSegmentAnswer(0, refusal), -1);
      continue;
    }
    connections_.push_back({std::move(accepted), absl::Now() + options_.request_timeout});
  }
}

bool SegmentServer::Handle(Connection* connection) {
  char bytes[kSegmentRequestBytes];
  const ssize_t received = recv(connection->socket.get(), bytes, sizeof(bytes), MSG_TRUNC);
  if (received < 0) return errno == EAGAIN || errno == EINTR;
  // Its end, or more than a request: there is nothing else to say.
  if (received == 0 || connection->segment != 0) return false;
  // The real length, though only the beginning was kept.
  const auto wanted = static_cast<size_t>(received) == sizeof(bytes)
                          ? DecodeSegmentRequest(std::string_view(bytes, sizeof(bytes)))
                          : std::nullopt;
  const absl::Status status =
      wanted.has_value() ? Grant(*wanted, connection)
                         : absl::InvalidArgumentError("this is no request for shared memory that paramd knows");
  if (!status.ok()) SendMessage(connection->socket.get(), EncodeSegmentAnswer(0, status), -1);
  return status.ok();
}

absl::Status SegmentServer::Grant(uint64_t bytes, Connection* connection) {
  const uint64_t largest = options_.max_segment_bytes();
  if (bytes == 0 || bytes > largest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a worker asks for ", bytes, " bytes of shared memory; no model here needs more than ", largest));
  }
  const auto fits = [&] { return bytes <= options_.max_bytes && bytes_->load() <= options_.max_bytes - bytes; };
  if (!fits()) {
    const absl::Time since = absl::Now() - options_.unused_timeout;
    GiveUp([since](const Granted& granted) { return !granted.used && granted.since <= since; });
  }
  if (!fits()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes_->load(), " bytes of memory are shared with workers, and the cap is ", options_.max_bytes,
                     ", so there is no room for ", bytes, " more; raise --max_shared_bytes, or use gRPC"));
  }
  FileDescriptor memory;
  auto created = Segment::Create(bytes, &memory);
  if (!created.ok()) return created.status();
  bytes_->fetch_add(created->bytes());
  const std::shared_ptr<const Segment> segment(new Segment(*std::move(created)),
                                               [counted = bytes_](const Segment* ended) {
                                                 counted->fetch_sub(ended->bytes());
                                                 delete ended;
                                               });
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    do {
      id = RandomId();
    } while (
        !segments_.emplace(id, Granted{.segment = segment, .socket = connection->socket.get(), .since = absl::Now()})
             .second);
  }
  connection->segment = id;
  connection->deadline = absl::InfiniteFuture();
  if (!SendMessage(connection->socket.get(), EncodeSegmentAnswer(id, absl::OkStatus()), memory.get())) {
    return absl::UnavailableError("the worker does not take what it asked for");
  }
  return absl::OkStatus();
}

void SegmentServer::Forget(const Connection& connection) {
  if (connection.segment == 0) return;
  std::shared_ptr<const Segment> forgotten;  // unmapped outside the lock
  MutexLock lock(&mutex_);
  const auto it = segments_.find(connection.segment);
  if (it == segments_.end()) return;
  forgotten = std::move(it->second.segment);
  segments_.erase(it);
}

}  // namespace paramd
