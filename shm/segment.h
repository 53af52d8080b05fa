// Memory that a worker shares with a daemon on the same host: a memfd, which has no name and is gone with its last
// holder.
#ifndef PARAMD_SHM_SEGMENT_H_
#define PARAMD_SHM_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "shm/file_descriptor.h"

namespace paramd {

// In bytes from a segment's begin: one page whose first word is the commit word, then room for a commit and for a
// center, each from a page's begin on.
struct SegmentLayout {
  uint64_t commit_begin = 0;
  uint64_t center_begin = 0;
  uint64_t bytes = 0;
};

// For a model of so many floats, at most 2^48.
SegmentLayout LayOutSegment(uint64_t floats);

// True once no process maps a segment's memory any more or has it open: its pages are given back then, though an O_PATH
// descriptor, which can't reach them, should keep the file. While it is false nothing changes. Where the system can't
// say (/proc/sys/fs/leases-enable is 0) it is true, and the pages stay with who holds them.
bool ReleaseUnheld(const FileDescriptor& watch);

// A mapping of a segment. Its peer may change every byte of it at any time, so whatever is read from it must be copied
// before it is judged. In children that are forked it can't be accessed. Movable. Thread-compatible.
class Segment {
 public:
  // New memory of `bytes`, rounded up to pages, which nobody can resize: so no access within it faults, whatever the
  // peer does. All zero; the system finds the pages when they are first used. `memory` is for the peer, `watch` for
  // ReleaseUnheld. UNAVAILABLE with the system's reason.
  static absl::StatusOr<Segment> Create(uint64_t bytes, FileDescriptor* memory, FileDescriptor* watch);

  // Memory that a peer made. FAILED_PRECONDITION unless it has `bytes` and is sealed as Create does it; UNAVAILABLE if
  // there is too little memory, for all its pages are taken now.
  static absl::StatusOr<Segment> Map(const FileDescriptor& memory, uint64_t bytes);

  // Ordinary memory of the same kind, of this process alone, and a copy of its own in a child.
  static absl::StatusOr<Segment> Private(uint64_t bytes);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment other) noexcept;
  ~Segment();

  uint64_t bytes() const { return bytes_; }

  // The floats from a byte on; data() is null unless they are aligned, within the segment and behind its first page.
  absl::Span<float> Floats(uint64_t begin, uint64_t floats) const;

  // The sequence of the commit that the worker lets be, 0: of none. Both order it against the floats.
  void StoreCommitWord(uint64_t sequence) const;
  uint64_t LoadCommitWord() const;

  // Takes the place of `other`, which must be of the same size: its addresses, with its floats. `other` ends up empty.
  absl::Status Replace(Segment* other);

  // Private memory becomes zero, and its pages are the system's again until it is written to.
  void Clear();

 private:
  Segment(void* memory, uint64_t bytes) : memory_(static_cast<char*>(memory)), bytes_(bytes) {}
  std::atomic_ref<uint64_t> commit_word() const;

  char* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_SHM_SEGMENT_H_
