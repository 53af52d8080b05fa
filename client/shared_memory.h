// The same-host transport of a worker: its buffers, and the segment that they are in. Internal to the client.
#ifndef PARAMD_CLIENT_SHARED_MEMORY_H_
#define PARAMD_CLIENT_SHARED_MEMORY_H_

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/paramd.pb.h"
#include "proto/tensor_codec.h"
#include "shm/file_descriptor.h"
#include "shm/handshake.h"
#include "shm/segment.h"
#include "sync/clock.h"

namespace paramd {

// Two buffers of the center's length, at addresses that stay. They are ordinary memory, or a segment that the daemon
// sees, too; when the segment is lost they keep their content, and another one takes their place at the next exchange.
// Their contract is Exchanger's: the commit buffer is written by nobody but the caller, so a commit from elsewhere goes
// through the center buffer, which the daemon does not write to before it has the commit.
//
// Thread-compatible but for in_use(). The buffers belong to the caller except during an exchange.
class SharedMemory {
 public:
  struct Options {
    uint64_t floats = 0;    // of the center
    bool required = false;  // an error where there is no shared memory, rather than gRPC
    // Asks the daemon for the name of its socket, anew.
    std::function<absl::StatusOr<std::string>(absl::Time deadline)> find_socket;
    std::function<absl::StatusOr<GrantedSegment>(const std::string& socket, uint64_t bytes, absl::Duration timeout)>
        request_segment = RequestSegment;
    std::function<void(absl::string_view)> on_event;
    const Clock* clock = Clock::Steady();
  };
  explicit SharedMemory(Options options);

  // Constant. Empty if the system has no memory for them.
  absl::Span<float> commit_buffer() const { return commit_; }
  absl::Span<float> center_buffer() const { return center_; }

  // Gets a segment from the daemon's socket. Errors only if shared memory is required.
  absl::Status Join(const std::string& socket, absl::Time deadline);

  // Whether exchanges go through a segment. Thread-safe.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // Before an attempt of an exchange: names the segment in `header` if the exchange is to go through it, after getting
  // another one if need be. Errors: the daemon can't be asked, or gives none though shared memory is required.
  absl::Status Begin(v1::ExchangeHeader* header, absl::Time deadline);

  // The message of a commit: its floats are in the segment now.
  grpc::ByteBuffer Put(const v1::ExchangeHeader& header, absl::Span<const float> commit) const;

  // Takes over a chunk of the center, which must begin at float `*received`. INTERNAL if the server does not keep to
  // the protocol.
  absl::Status Take(const DecodedExchange& message, absl::Span<float> center, size_t* received) const;

  // The attempt failed without an answer: the daemon may still be writing to the segment.
  void Distrust() { trusted_ = false; }

  // The exchange has failed: its commit must not be applied any more, for the caller may change it now.
  void TakeBack() const;

  // The buffers' memory, with its content and at its addresses, but of this process alone: nothing is the daemon's any
  // more, unless the system has no memory for a copy. Nullopt if there is none. Ends this object.
  std::optional<Segment> Release();

 private:
  absl::Status Attach(const std::string& socket, absl::Time deadline);
  // Attaches, also to another socket if the daemon has been started again meanwhile; `*attached`: what came of that. An
  // error: the daemon could not be asked.
  absl::Status AttachToCurrent(std::string socket, absl::Time deadline, absl::Status* attached);

  // Constant after construction.
  const Options options_;
  const SegmentLayout layout_;
  absl::Span<float> commit_;
  absl::Span<float> center_;

  std::atomic<bool> in_use_{false};
  FileDescriptor link_;            // to the daemon; its end is the segment's
  std::optional<Segment> memory_;  // of the buffers; let go before the daemon is told so
  uint64_t segment_ = 0;
  bool trusted_ = false;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_SHARED_MEMORY_H_
