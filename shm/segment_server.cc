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
#include "process/descriptors.h"
#include "process/system_call.h"
#include "shm/handshake.h"
#include "sync/clock.h"

namespace paramd {
namespace {

constexpr int kBacklog = 128;
// After the system had no more files for a connection.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
constexpr absl::Duration kLookInterval = absl::Seconds(1);

// Of the system's own generator: nobody can guess them.
std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = RetryInterrupted([&] { return getrandom(bytes.data() + done, count - done, 0); });
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

// Counts memory until nobody holds it any more, whoever that is. Thread-safe.
class SegmentServer::Memory : public std::enable_shared_from_this<Memory> {
 public:
  // The segment, and its end in this process.
  std::shared_ptr<const Segment> Count(Segment segment, FileDescriptor watch) {
    {
      MutexLock lock(&mutex_);
      mapped_bytes_ += segment.bytes();
      ++mapped_;
    }
    auto held = std::make_shared<FileDescriptor>(std::move(watch));
    return {new Segment(std::move(segment)), [self = shared_from_this(), held](const Segment* ended) {
              const uint64_t bytes = ended->bytes();
              delete ended;
              MutexLock lock(&self->mutex_);
              self->mapped_bytes_ -= bytes;
              --self->mapped_;
              self->elsewhere_.push_back({std::move(*held), bytes});
              self->ForgetGoneLocked();
            }};
  }

  uint64_t bytes() {
    MutexLock lock(&mutex_);
    ForgetGoneLocked();
    uint64_t bytes = mapped_bytes_;
    for (const Elsewhere& held : elsewhere_) bytes += held.bytes;
    return bytes;
  }

  size_t segments() {
    MutexLock lock(&mutex_);
    ForgetGoneLocked();
    return mapped_ + elsewhere_.size();
  }

 private:
  struct Elsewhere {
    FileDescriptor watch;
    uint64_t bytes = 0;
  };

  void ForgetGoneLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::erase_if(elsewhere_, [](const Elsewhere& held) { return ReleaseUnheld(held.watch); });
  }

  Mutex mutex_;
  uint64_t mapped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // by this process
  size_t mapped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Elsewhere> elsewhere_ ABSL_GUARDED_BY(mutex_);  // not by this process any more
};

uint64_t SegmentServer::bytes() const { return memory_->bytes(); }

SegmentServer::SegmentServer(SegmentServerOptions options)
    : options_(std::move(options)), memory_(std::make_shared<Memory>()) {}

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
  RetryInterrupted([&] { return write(stop_.get(), &one, sizeof(one)); });
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
    const absl::Time now = Clock::Steady()->Now();
    const bool accepting = now >= accept_after_;
    absl::Time wake = accepting ? absl::InfiniteFuture() : accept_after_;
    // What is not held any more is found by looking: until then its watch would keep the memory.
    if (memory_->segments() > 0) wake = std::min(wake, now + kLookInterval);
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
    const absl::Time after = Clock::Steady()->Now();
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
    FileDescriptor accepted(
        RetryInterrupted([&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    if (!accepted.valid()) {
      if (errno == ECONNABORTED) continue;
      if (errno != EAGAIN) accept_after_ = Clock::Steady()->Now() + kAcceptPause;
      return;
    }
    absl::Status refusal = CheckPeer(accepted.get());
    if (refusal.ok() && connections_.size() >= options_.max_connections) {
      refusal = absl::ResourceExhaustedError(
          absl::StrCat("paramd shares memory with ", connections_.size(), " workers, as many as it can"));
    }
    // Connections, which everybody needs, must not want for descriptors because of it.
    const int limit = DescriptorLimit();
    if (refusal.ok() && accepted.get() >= limit / 4 * 3 - kSpareDescriptors) {
      refusal = absl::ResourceExhaustedError(
          absl::StrCat("of ", limit, " files that paramd may have open (ulimit -n) a quarter is left, which it keeps ",
                       "for connections; raise the limit, or use gRPC"));
    }
    if (!refusal.ok()) {
      SendMessage(accepted.get(), EncodeSegmentAnswer(0, refusal), -1);
      continue;
    }
    connections_.push_back({std::move(accepted), Clock::Steady()->Now() + options_.request_timeout});
  }
}

bool SegmentServer::Handle(Connection* connection) {
  char bytes[kSegmentRequestBytes];
  const ssize_t received =
      RetryInterrupted([&] { return recv(connection->socket.get(), bytes, sizeof(bytes), MSG_TRUNC); });
  if (received < 0) return errno == EAGAIN;
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
  if (memory_->segments() >= options_.max_connections) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", options_.max_connections,
                                                     " segments of shared memory that somebody still holds, as many as "
                                                     "paramd can watch; end the processes that do, or use gRPC"));
  }
  const auto fits = [&] { return bytes <= options_.max_bytes && memory_->bytes() <= options_.max_bytes - bytes; };
  if (!fits()) {
    const absl::Time since = Clock::Steady()->Now() - options_.unused_timeout;
    GiveUp([since](const Granted& granted) { return !granted.used && granted.since <= since; });
  }
  if (!fits()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(memory_->bytes(), " bytes of memory are shared with workers, and the cap is ", options_.max_bytes,
                     ", so there is no room for ", bytes, " more; raise --max_shared_bytes, or use gRPC"));
  }
  FileDescriptor memory;
  FileDescriptor watch;
  auto created = Segment::Create(bytes, &memory, &watch);
  if (!created.ok()) return created.status();
  const std::shared_ptr<const Segment> segment = memory_->Count(*std::move(created), std::move(watch));
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    do {
      id = RandomId();
    } while (
        !segments_
             .emplace(id,
                      Granted{.segment = segment, .socket = connection->socket.get(), .since = Clock::Steady()->Now()})
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
