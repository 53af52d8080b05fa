#include "client/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "proto/stream_copy.h"

namespace paramd {
namespace {

// The daemon answers at once, unless it is stopped.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(2);

// `large`: of a vector that does not stay in the cache.
void Copy(const float* from, size_t n, float* to, bool large) {
  if (large) {
    StreamCopy(from, n, to);
    EndStream();
  } else {
    std::memcpy(to, from, n * sizeof(float));
  }
}

// The daemon has nothing to do meanwhile, so its core is free for half of a long copy: a second thread's start takes
// some tens of microseconds.
void CopyCommit(absl::Span<const float> from, float* to) {
  const bool large = from.size() >= kLargeFloats;
  const size_t half = large ? from.size() / 2 : 0;
  std::thread helper;
  if (half > 0) {
    try {
      helper = std::thread([=] { Copy(from.data(), half, to, large); });
    } catch (const std::system_error&) {  // no more threads
      Copy(from.data(), half, to, large);
    }
  }
  Copy(from.data() + half, from.size() - half, to + half, large);
  if (helper.joinable()) helper.join();
}

}  // namespace

SharedMemory::SharedMemory(Options options) : options_(std::move(options)), layout_(LayOutSegment(options_.floats)) {
  auto memory = Segment::Private(layout_.bytes);
  if (!memory.ok()) return;
  memory_ = *std::move(memory);
  commit_ = memory_->Floats(layout_.commit_begin, options_.floats);
  center_ = memory_->Floats(layout_.center_begin, options_.floats);
}

absl::Status SharedMemory::Attach(const std::string& socket, absl::Time deadline) {
  if (socket.empty()) return absl::UnavailableError("the daemon shares no memory (--max_shared_bytes=0)");
  if (!memory_.has_value()) return absl::UnavailableError("there is no address space for the buffers");
  // The daemon counts the old segment until nobody holds it.
  if (link_.valid()) {
    auto memory = Segment::Private(layout_.bytes);
    if (!memory.ok()) return memory.status();
    if (auto status = memory->Replace(&*memory_); !status.ok()) return status;
    memory_ = *std::move(memory);
    link_ = FileDescriptor();
  }
  auto granted =
      options_.request_segment(socket, layout_.bytes, std::min(kHandshakeTimeout, deadline - options_.clock->Now()));
  // A refusal is a peer's words, and its code a number of any kind.
  if (!granted.ok()) {
    return FromWireStatus(static_cast<int>(granted.status().raw_code()), std::string(granted.status().message()));
  }
  auto segment = Segment::Map(granted->memory, layout_.bytes);
  if (!segment.ok()) return segment.status();
  if (auto status = segment->Replace(&*memory_); !status.ok()) return status;
  memory_ = *std::move(segment);
  link_ = std::move(granted->link);
  segment_ = granted->id;
  trusted_ = true;
  return absl::OkStatus();
}

absl::Status SharedMemory::AttachToCurrent(std::string socket, absl::Time deadline, absl::Status* attached) {
  while (true) {
    *attached = Attach(socket, deadline);
    if (!absl::IsUnavailable(*attached) || socket.empty()) return absl::OkStatus();
    auto current = options_.find_socket(deadline);
    if (!current.ok()) return current.status();
    if (*current == socket) return absl::OkStatus();
    socket = *std::move(current);
  }
}

absl::Status SharedMemory::Join(const std::string& socket, absl::Time deadline) {
  absl::Status attached;
  if (auto status = AttachToCurrent(socket, deadline, &attached); !status.ok()) attached = status;
  if (attached.ok()) {
    in_use_ = true;
  } else if (options_.required) {
    return absl::Status(attached.code(), absl::StrCat("no shared memory with the daemon: ", attached.message(),
                                                      "; use the transport grpc, or auto"));
  } else if (options_.on_event != nullptr) {
    options_.on_event(absl::StrCat("exchanges go over gRPC: ", attached.message()));
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::Begin(v1::ExchangeHeader* header, absl::Time deadline) {
  header->clear_segment();
  if (in_use() && !(trusted_ && LinkAlive(link_))) {
    auto socket = options_.find_socket(deadline);
    if (!socket.ok()) return socket.status();
    absl::Status attached;
    if (auto status = AttachToCurrent(*std::move(socket), deadline, &attached); !status.ok()) return status;
    if (!attached.ok()) {
      if (options_.required) return attached;
      if (options_.on_event != nullptr) {
        options_.on_event(absl::StrCat("exchanges go over gRPC from now on: ", attached.message()));
      }
      in_use_ = false;
    }
  }
  if (!in_use()) return absl::OkStatus();
  header->set_segment(segment_);
  if (header->has_commit()) memory_->StoreCommitWord(header->commit().sequence());
  return absl::OkStatus();
}

grpc::ByteBuffer SharedMemory::Put(const v1::ExchangeHeader& header, absl::Span<const float> commit) const {
  if (commit.data() == commit_.data()) return EncodeSharedExchange(&header, 0, layout_.commit_begin, commit.size());
  if (commit.data() != center_.data()) CopyCommit(commit, center_.data());
  return EncodeSharedExchange(&header, 0, layout_.center_begin, commit.size());
}

absl::Status SharedMemory::Take(const DecodedExchange& message, absl::Span<float> center, size_t* received) const {
  const uint64_t due = layout_.center_begin + *received * sizeof(float);
  if (message.offset != *received || message.shared_begin != due || message.shared_floats > center.size() - *received) {
    return absl::InternalError(absl::StrCat(
        "the server put ", message.shared_floats, " floats of the center from ", message.offset, " on at byte ",
        message.shared_begin, " of the shared memory, where float ", *received, " was due at byte ", due));
  }
  if (center.data() != center_.data()) {
    Copy(center_.data() + *received, message.shared_floats, center.data() + *received, center.size() >= kLargeFloats);
  }
  *received += message.shared_floats;
  return absl::OkStatus();
}

std::optional<Segment> SharedMemory::Release() {
  if (link_.valid() && memory_.has_value()) {
    auto memory = Segment::Private(layout_.bytes);
    if (memory.ok() && memory->Replace(&*memory_).ok()) memory_ = *std::move(memory);
  }
  in_use_ = false;
  commit_ = {};
  center_ = {};
  link_ = FileDescriptor();
  return std::exchange(memory_, std::nullopt);
}

void SharedMemory::TakeBack() const {
  if (memory_.has_value()) memory_->StoreCommitWord(0);
}

}  // namespace paramd
