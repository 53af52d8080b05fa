// How a segment is handed over: docs/protocol.md has the bytes.
//
// The daemon listens on an abstract unix socket (SOCK_SEQPACKET). A worker connects and sends one request; the answer
// brings the memory along as a file descriptor. The segment lives for as long as the connection.
#ifndef PARAMD_SHM_HANDSHAKE_H_
#define PARAMD_SHM_HANDSHAKE_H_

#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shm/file_descriptor.h"

namespace paramd {

inline constexpr size_t kSegmentRequestBytes = 16;
inline constexpr size_t kMaxSegmentAnswerBytes = 512;

// The address of the abstract socket `name`. Nothing if that is empty or too long.
struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};
std::optional<AbstractAddress> MakeAbstractAddress(const std::string& name);

std::string EncodeSegmentRequest(uint64_t bytes);
std::optional<uint64_t> DecodeSegmentRequest(std::string_view message);

// `segment` is 0 if `refusal` is not OK.
std::string EncodeSegmentAnswer(uint64_t segment, const absl::Status& refusal);
// The segment, or why it was refused. INTERNAL for bytes that are no answer.
absl::StatusOr<uint64_t> DecodeSegmentAnswer(std::string_view message);

// Sends `message` at once, with a file descriptor unless `fd` is negative; false if that can't be done.
bool SendMessage(int socket, std::string_view message, int fd);

struct GrantedSegment {
  FileDescriptor link;  // its end is the end of the segment for the daemon
  FileDescriptor memory;
  uint64_t id = 0;
};

// The worker's half. UNAVAILABLE if the socket is not there or silent, PERMISSION_DENIED if it is neither this process'
// user nor root who serves it, else why the daemon refuses.
absl::StatusOr<GrantedSegment> RequestSegment(const std::string& socket, uint64_t bytes, absl::Duration timeout);

// Whether the other end still holds the connection, and so the segment.
bool LinkAlive(const FileDescriptor& link);

}  // namespace paramd

#endif  // PARAMD_SHM_HANDSHAKE_H_
