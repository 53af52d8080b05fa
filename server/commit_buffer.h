// A commit as it is received: the peer's bytes, where they arrived, never flattened.
#ifndef PARAMD_SERVER_COMMIT_BUFFER_H_
#define PARAMD_SERVER_COMMIT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/encoding.h"

namespace paramd {

// Floats that a commit is read in: few enough for a copy of them, and of what is made of them, to stay in the
// first-level cache.
inline constexpr size_t kPieceFloats = 1024;

// Bytes of one commit, in pieces of any length and alignment, in the encoding they came in: a Reader makes float32 of
// them as they are read. However small the pieces are, and whatever else their owners keep, the buffer takes not much
// more than the floats do: beyond the first few, small pieces are copied together. Thread-compatible; Readers of
// different blocks may read at the same time.
//
// A commit is unstable if its bytes are in memory that the peer can still write to. Then Readers copy each float to
// private memory, once, before anybody looks at it, and what they gave counts only if StillWhole() afterwards.
class CommitBuffer {
 public:
  // `floats`: the length of the center, and so of the commit. `encoding`: one that FloatBytes knows.
  explicit CommitBuffer(size_t floats, v1::Encoding encoding = v1::FLOAT32)
      : floats_(floats), encoding_(encoding), float_bytes_(FloatBytes(encoding)) {}

  // Adds the floats of one message, which must follow those before: a whole number of them, split anywhere. `owner`
  // keeps the bytes alive, and `owner_bytes` in all if that is not 0. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED;
  // the buffer then is of no more use.
  absl::Status Append(uint64_t offset, const std::vector<std::string_view>& bytes, std::shared_ptr<const void> owner,
                      size_t owner_bytes = 0);

  // As Append, of float32 that the peer may change while they are read, which makes the commit unstable. They are not
  // looked at yet.
  absl::Status AppendUnstable(uint64_t offset, absl::Span<const float> floats, std::shared_ptr<const void> owner);

  // How to find out, once the floats of an unstable commit were read, whether the peer let them be. It is called under
  // the model's lock, so it must not block.
  void set_still_whole(std::function<bool()> still_whole) { still_whole_ = std::move(still_whole); }

  bool unstable() const { return unstable_; }
  bool StillWhole() const { return !unstable_ || still_whole_ == nullptr || still_whole_(); }

  // Copies a complete unstable commit to private memory and looks for NaN and infinity as Append does. Errors: that of
  // ChangedError, RESOURCE_EXHAUSTED; the buffer then is of no more use.
  absl::Status MakeStable();

  // UNAVAILABLE: the commit was not whole any more when it had been read.
  static absl::Status ChangedError();

  // Within one block, so that Readers of different blocks share none.
  struct Piece {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
  };
  // In their order; without owners where a Reader has let go of them.
  const std::vector<Piece>& pieces() const { return pieces_; }
  v1::Encoding encoding() const { return encoding_; }

  bool complete() const { return received_ == floats_; }
  size_t floats() const { return floats_; }
  size_t bytes() const { return bytes_; }  // received
  size_t received() const { return received_; }

  // Index of the first NaN or infinity among the floats received so far, or -1. Append looks for it while the bytes
  // are warm. Of an unstable commit it is what set_first_non_finite said.
  int64_t first_non_finite() const { return first_non_finite_; }
  void set_first_non_finite(int64_t index) { first_non_finite_ = index; }

  // Reads the floats once, in order, and lets go of the bytes behind it if `release`.
  class Reader {
   public:
    // From the beginning of `block` on.
    explicit Reader(CommitBuffer* buffer, bool release = true, size_t block = 0);
    ~Reader() { SkipEmpty(); }

    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // The next `count` <= kPieceFloats floats, which must be there; valid until the next call.
    absl::Span<const float> Read(size_t count);
    // Of an unstable commit: whether what Read gave last is.
    bool finite() const { return finite_; }

   private:
    friend class CommitBuffer;
    void CopyTo(char* to, size_t bytes);
    void SkipEmpty();

    CommitBuffer* const buffer_;
    const bool release_;
    size_t piece_ = 0;   // in buffer_->pieces_
    size_t offset_ = 0;  // bytes of it already read
    bool finite_ = true;
    alignas(64) float scratch_[kPieceFloats];
    char narrow_[kPieceFloats * sizeof(uint16_t)];  // in an encoding of fewer bytes, where pieces split them
  };

 private:
  absl::Status CheckPlace(uint64_t offset, size_t floats) const;
  // As FirstNonFinite, of the `count` floats from `offset` in a piece on, counted from there.
  int64_t FirstNonFiniteFrom(size_t piece, size_t offset, size_t count);
  // `gather`: they are copied, rather than kept where they are; false: there is no memory for that.
  bool AddPiece(std::string_view bytes, const std::shared_ptr<const void>& owner, bool gather);
  bool Gather(std::string_view bytes);
  absl::Status NoMemory() const;

  size_t floats_;
  v1::Encoding encoding_;
  size_t float_bytes_;
  size_t received_ = 0;
  int64_t first_non_finite_ = -1;
  bool unstable_ = false;
  std::function<bool()> still_whole_;
  size_t bytes_ = 0;  // of all pieces
  std::vector<Piece> pieces_;
  std::vector<size_t> first_pieces_;  // of each block
  std::shared_ptr<char[]> gathered_;  // where small pieces are copied together
  size_t gathered_room_ = 0;          // bytes of it that are free, at its end
  char* gathered_end_ = nullptr;
};

// Index of the first NaN or infinity, or -1.
int64_t FirstNonFinite(absl::Span<const float> floats);

}  // namespace paramd

#endif  // PARAMD_SERVER_COMMIT_BUFFER_H_
