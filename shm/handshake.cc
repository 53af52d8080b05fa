#include "shm/handshake.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/system_call.h"
#include "sync/clock.h"

namespace paramd {
namespace {

constexpr std::string_view kMagic = "PARAMD-1";
constexpr size_t kAnswerHead = 8 + sizeof(uint64_t) + sizeof(uint32_t);

template <typename Number>
void Append(Number number, std::string* message) {
  message->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename Number>
Number Read(std::string_view message, size_t at) {
  Number number;
  std::memcpy(&number, message.data() + at, sizeof(number));
  return number;
}

bool HasMagic(std::string_view message) { return message.substr(0, kMagic.size()) == kMagic; }

absl::Status Unreachable(const std::string& socket, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("can't get shared memory from paramd's socket @", socket, " (", what, ": ",
                                             std::strerror(errno),
                                             "); shared memory needs the daemon's host and network namespace"));
}

// Makes `call`, which waits for a peer, until it is through or the deadline has passed, whatever signals come. (The
// system starts nothing anew that has a time limit.)
template <typename Call>
auto CallUntil(absl::Time deadline, int socket, int limit_option, const Call& call) {
  const Clock* const clock = Clock::Steady();
  while (true) {
    // Zero would mean: for ever.
    const timeval limit = absl::ToTimeval(std::max(deadline - clock->Now(), absl::Milliseconds(1)));
    if (setsockopt(socket, SOL_SOCKET, limit_option, &limit, sizeof(limit)) != 0) return decltype(call()){-1};
    const auto result = call();
    if (result >= 0 || errno != EINTR || clock->Now() >= deadline) return result;
  }
}

// A message and the descriptor that came along with it.
absl::StatusOr<std::string> Receive(int socket, absl::Time deadline, FileDescriptor* fd) {
  char bytes[kMaxSegmentAnswerBytes];
  iovec part{bytes, sizeof(bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const auto receive = [&] { return recvmsg(socket, &message, MSG_CMSG_CLOEXEC); };
  ssize_t received = CallUntil(deadline, socket, SO_RCVTIMEO, receive);
  // A peer that refuses at once closes before it has read the request. The system says so first, then gives its answer.
  if (received < 0 && errno == ECONNRESET) received = CallUntil(deadline, socket, SO_RCVTIMEO, receive);
  if (received < 0) return absl::UnavailableError("");
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr; part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    int got = -1;
    std::memcpy(&got, CMSG_DATA(part_of), sizeof(got));
    *fd = FileDescriptor(got);
  }
  return std::string(bytes, static_cast<size_t>(received));
}

}  // namespace

std::optional<AbstractAddress> MakeAbstractAddress(const std::string& name) {
  AbstractAddress made;
  // A leading zero byte makes it abstract; there is none at the end.
  if (name.empty() || name.size() > sizeof(made.address.sun_path) - 1) return std::nullopt;
  made.address.sun_family = AF_UNIX;
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

std::string EncodeSegmentRequest(uint64_t bytes) {
  std::string message(kMagic);
  Append(bytes, &message);
  return message;
}

std::optional<uint64_t> DecodeSegmentRequest(std::string_view message) {
  if (message.size() != kSegmentRequestBytes || !HasMagic(message)) return std::nullopt;
  return Read<uint64_t>(message, kMagic.size());
}

std::string EncodeSegmentAnswer(uint64_t segment, const absl::Status& refusal) {
  std::string message(kMagic);
  Append(segment, &message);
  Append(static_cast<uint32_t>(refusal.code()), &message);
  absl::StrAppend(&message, refusal.message().substr(0, kMaxSegmentAnswerBytes - kAnswerHead));
  return message;
}

absl::StatusOr<uint64_t> DecodeSegmentAnswer(std::string_view message) {
  if (message.size() < kAnswerHead || !HasMagic(message)) {
    return absl::InternalError("what hands out shared memory here is not paramd, or of another version");
  }
  const auto code = Read<uint32_t>(message, kMagic.size() + sizeof(uint64_t));
  if (code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(code),
                        absl::string_view(message.data() + kAnswerHead, message.size() - kAnswerHead));
  }
  return Read<uint64_t>(message, kMagic.size());
}

bool SendMessage(int socket, std::string_view bytes, int fd) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(fd));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  return RetryInterrupted([&] { return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); }) ==
         static_cast<ssize_t>(bytes.size());
}

absl::StatusOr<GrantedSegment> RequestSegment(const std::string& socket_name, uint64_t bytes, absl::Duration timeout) {
  const auto address = MakeAbstractAddress(socket_name);
  if (!address.has_value()) return absl::InternalError("the daemon names a socket that can't be one");
  GrantedSegment granted;
  granted.link = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!granted.link.valid()) return Unreachable(socket_name, "socket");
  const int link = granted.link.get();
  const absl::Time deadline = Clock::Steady()->Now() + timeout;
  const auto connected = CallUntil(deadline, link, SO_SNDTIMEO, [&] {
    return connect(link, reinterpret_cast<const sockaddr*>(&address->address), address->length);
  });
  if (connected != 0) return Unreachable(socket_name, "connect");
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Unreachable(socket_name, "peer credentials");
  if (peer.uid != 0 && peer.uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("paramd's socket @", socket_name, " is served by user ", peer.uid, ", but this is user ",
                     geteuid(), "; daemon and worker share memory only as the same user, or if the daemon is root"));
  }
  // Whoever is refused at once is answered before it asks.
  SendMessage(link, EncodeSegmentRequest(bytes), -1);
  const auto answer = Receive(link, deadline, &granted.memory);
  if (!answer.ok()) return Unreachable(socket_name, "receive");
  if (answer->empty()) {
    return absl::UnavailableError(
        absl::StrCat("paramd's socket @", socket_name, " was closed without an answer: the daemon has ended"));
  }
  auto segment = DecodeSegmentAnswer(*answer);
  if (!segment.ok()) return segment.status();
  granted.id = *segment;
  if (granted.id == 0 || !granted.memory.valid()) return absl::InternalError("the daemon handed out no shared memory");
  return granted;
}

bool LinkAlive(const FileDescriptor& link) {
  char byte = 0;
  const ssize_t received = RetryInterrupted([&] { return recv(link.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT); });
  return received > 0 || (received < 0 && errno == EAGAIN);
}

}  // namespace paramd
