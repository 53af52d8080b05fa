// A commit as it is received: the peer's bytes, where they arrived, never flattened.
#ifndef PARAMD_SERVER_COMMIT_BUFFER_H_
#define PARAMD_SERVER_COMMIT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace paramd {

// Floats that a commit is read in: small enough for a copy of them to stay in the first-level cache.
inline constexpr size_t kPieceFloats = 4096;

// Bytes of one commit, in pieces of any length and alignment. Thread-compatible.
class CommitBuffer {
 public:
  // `floats`: the length of the center, and so of the commit.
  explicit CommitBuffer(size_t floats) : floats_(floats) {}

  // Adds the floats of one message, which must follow those before: a whole number of them, split anywhere. `owner`
  // keeps the bytes alive. Errors: INVALID_ARGUMENT; the buffer then is of no more use.
  absl::Status Append(uint64_t offset, const std::vector<std::string_view>& bytes, std::shared_ptr<const void> owner);

  bool complete() const { return received_ == floats_; }
  size_t floats() const { return floats_; }
  size_t received() const { return received_; }

  // Index of the first NaN or infinity among the floats received so far, or -1. Append looks for it while the bytes
  // are warm.
  int64_t first_non_finite() const { return first_non_finite_; }

  // Reads the floats once, from first to last, and lets go of the bytes behind it if `release`.
  class Reader {
   public:
    explicit Reader(CommitBuffer* buffer, bool release = true) : buffer_(buffer), release_(release) {}

    // The next `count` <= kPieceFloats floats, which must be there; valid until the next call.
    absl::Span<const float> Read(size_t count);

   private:
    friend class CommitBuffer;
    void CopyTo(char* to, size_t bytes);
    void SkipEmpty();

    CommitBuffer* const buffer_;
    const bool release_;
    size_t piece_ = 0;   // in buffer_->pieces_
    size_t offset_ = 0;  // bytes of it already read
    alignas(64) float scratch_[kPieceFloats];
  };

 private:
  struct Piece {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
  };

  size_t floats_;
  size_t received_ = 0;
  int64_t first_non_finite_ = -1;
  std::deque<Piece> pieces_;
};

// Index of the first NaN or infinity, or -1.
int64_t FirstNonFinite(absl::Span<const float> floats);

}  // namespace paramd

#endif  // PARAMD_SERVER_COMMIT_BUFFER_H_
