#include "server/commit_buffer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/kernel.h"
#include "server/block.h"

namespace paramd {
namespace {

// Pieces that are remembered where they are: some, and one for so many bytes. More are copied together.
constexpr size_t kFewPieces = 16;
constexpr size_t kBytesPerPiece = 4096;

// Of a float that is NaN or infinite the exponent is all ones, and then it is no less than this without its sign.
constexpr int32_t kNonFinite = 0x7f800000;

// Whether one of `n` floats, at any alignment, is NaN or infinite. No exit from the loop, so that the compiler
// vectorises it.
PARAMD_KERNEL bool AnyNonFinite(const char* floats, size_t n) {
  int32_t largest = 0;
#pragma GCC unroll 4
  for (size_t i = 0; i < n; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, floats + i * sizeof(float), sizeof(bits));
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return largest >= kNonFinite;
}

// As AnyNonFinite, while the floats are copied: where they come from memory, to look at them costs nothing.
PARAMD_KERNEL bool CopyAnyNonFinite(const char* __restrict floats, float* __restrict to, size_t n) {
  int32_t largest = 0;
#pragma GCC unroll 4
  for (size_t i = 0; i < n; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, floats + i * sizeof(float), sizeof(bits));
    __builtin_memcpy(to + i, &bits, sizeof(bits));
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return largest >= kNonFinite;
}

int64_t FirstNonFiniteOf(const char* floats, size_t n) {
  if (!AnyNonFinite(floats, n)) return -1;
  size_t i = 0;
  while (!AnyNonFinite(floats + i * sizeof(float), 1)) ++i;
  return static_cast<int64_t>(i);
}

// Of floats that pieces split anywhere.
int64_t FirstNonFiniteOf(const std::vector<std::string_view>& pieces) {
  int64_t index = 0;
  char split[sizeof(float)];
  size_t have = 0;  // bytes of it
  for (std::string_view piece : pieces) {
    for (; have > 0 && !piece.empty(); piece.remove_prefix(1)) {
      split[have++] = piece.front();
      if (have < sizeof(split)) continue;
      if (AnyNonFinite(split, 1)) return index;
      ++index;
      have = 0;
    }
    const size_t whole = piece.size() / sizeof(float);
    if (const int64_t found = FirstNonFiniteOf(piece.data(), whole); found >= 0) return index + found;
    index += static_cast<int64_t>(whole);
    piece.remove_prefix(whole * sizeof(float));
    if (!piece.empty()) have = piece.copy(split, sizeof(split));
  }
  return -1;
}

}  // namespace

int64_t FirstNonFinite(absl::Span<const float> floats) {
  return FirstNonFiniteOf(reinterpret_cast<const char*>(floats.data()), floats.size());
}

absl::Status CommitBuffer::CheckPlace(uint64_t offset, size_t floats) const {
  if (offset != received_) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk begins at float ", offset, " where float ", received_,
                                                   " was due; chunks of a commit come in order and without gaps"));
  }
  if (floats > floats_ - received_) {
    return absl::InvalidArgumentError(absl::StrCat("a commit has more than the ", floats_,
                                                   " floats of the model; check the client's tensors against the "
                                                   "model's (paramctl show)"));
  }
  return absl::OkStatus();
}

bool CommitBuffer::AddPiece(std::string_view bytes, const std::shared_ptr<const void>& owner, bool gather) {
  const size_t block_bytes = kBlockFloats * float_bytes_;
  while (!bytes.empty()) {
    const size_t in_block = bytes_ % block_bytes;
    if (in_block == 0) first_pieces_.push_back(pieces_.size());
    const std::string_view piece = bytes.substr(0, block_bytes - in_block);
    if (gather) {
      if (!Gather(piece)) return false;
    } else {
      pieces_.push_back({piece, owner});
    }
    bytes_ += piece.size();
    bytes.remove_prefix(piece.size());
  }
  return true;
}

bool CommitBuffer::Gather(std::string_view bytes) {
  while (!bytes.empty()) {
    if (gathered_room_ == 0) {
      const size_t room = std::min(kBlockFloats, floats_) * float_bytes_;
      gathered_.reset(new (std::nothrow) char[room]);
      if (gathered_ == nullptr) return false;
      gathered_room_ = room;
      gathered_end_ = gathered_.get();
    }
    const std::string_view part = bytes.substr(0, gathered_room_);
    std::memcpy(gathered_end_, part.data(), part.size());
    const bool at_block = first_pieces_.back() == pieces_.size();
    if (!at_block && !pieces_.empty() && pieces_.back().bytes.data() + pieces_.back().bytes.size() == gathered_end_) {
      std::string_view& last = pieces_.back().bytes;
      last = std::string_view(last.data(), last.size() + part.size());
    } else {
      pieces_.push_back({std::string_view(gathered_end_, part.size()), gathered_});
    }
    gathered_end_ += part.size();
    gathered_room_ -= part.size();
    bytes.remove_prefix(part.size());
  }
  return true;
}

absl::Status CommitBuffer::Append(uint64_t offset, const std::vector<std::string_view>& bytes,
                                  std::shared_ptr<const void> owner, size_t owner_bytes) {
  size_t total = 0;
  for (const std::string_view piece : bytes) total += piece.size();
  const size_t count = total / float_bytes_;
  if (auto status = CheckPlace(offset, count); !status.ok()) return status;
  if (total % float_bytes_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk has ", total, " bytes, which is not a whole number of ",
                                                   EncodingName(encoding_), " values"));
  }
  // Where they begin: after those before, in the same piece if they are gathered.
  const size_t first_piece = pieces_.empty() ? 0 : pieces_.size() - 1;
  const size_t first_offset = pieces_.empty() ? 0 : pieces_.back().bytes.size();
  // An owner that keeps much else is not kept for them.
  const bool crowded = owner_bytes > 2 * total + kBytesPerPiece;
  for (const std::string_view piece : bytes) {
    const bool gather =
        crowded || (piece.size() < kBytesPerPiece && pieces_.size() >= kFewPieces + bytes_ / kBytesPerPiece);
    if (!AddPiece(piece, owner, gather)) return NoMemory();
  }
  if (first_non_finite_ < 0) {
    const int64_t bad =
        encoding_ == v1::FLOAT32 ? FirstNonFiniteOf(bytes) : FirstNonFiniteFrom(first_piece, first_offset, count);
    if (bad >= 0) first_non_finite_ = static_cast<int64_t>(received_) + bad;
  }
  received_ += count;
  return absl::OkStatus();
}

int64_t CommitBuffer::FirstNonFiniteFrom(size_t piece, size_t offset, size_t count) {
  Reader reader(this, /*release=*/false);
  reader.piece_ = piece;
  reader.offset_ = offset;
  for (size_t done = 0; done < count;) {
    const size_t n = std::min(count - done, kPieceFloats);
    if (const int64_t bad = FirstNonFinite(reader.Read(n)); bad >= 0) return static_cast<int64_t>(done) + bad;
    done += n;
  }
  return -1;
}

absl::Status CommitBuffer::AppendUnstable(uint64_t offset, absl::Span<const float> floats,
                                          std::shared_ptr<const void> owner) {
  if (auto status = CheckPlace(offset, floats.size()); !status.ok()) return status;
  unstable_ = true;
  AddPiece({reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)}, owner, /*gather=*/false);
  received_ += floats.size();
  return absl::OkStatus();
}

absl::Status CommitBuffer::MakeStable() {
  if (!unstable_) return absl::OkStatus();
  CommitBuffer stable(floats_);
  for (size_t block = 0; !stable.complete(); ++block) {
    Reader reader(this, /*release=*/true, block);
    const size_t n = std::min(floats_ - stable.received_, kBlockFloats);
    const std::shared_ptr<float[]> memory(new (std::nothrow) float[n]);
    if (memory == nullptr) return NoMemory();
    for (size_t i = 0; i < n; i += kPieceFloats) {
      const absl::Span<const float> piece = reader.Read(std::min(kPieceFloats, n - i));
      std::memcpy(memory.get() + i, piece.data(), piece.size() * sizeof(float));
    }
    const std::string_view bytes(reinterpret_cast<const char*>(memory.get()), n * sizeof(float));
    if (auto status = stable.Append(stable.received_, {bytes}, memory); !status.ok()) return status;
  }
  if (!StillWhole()) return ChangedError();
  *this = std::move(stable);
  return absl::OkStatus();
}

absl::Status CommitBuffer::NoMemory() const {
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory for a commit of ", floats_ * float_bytes_,
                                                   " bytes; send it again later, or give the server more"));
}

absl::Status CommitBuffer::ChangedError() {
  return absl::UnavailableError(
      "the commit changed while it was applied, so it was not: its sender gave it up, or something else writes to its "
      "memory; commit again");
}

CommitBuffer::Reader::Reader(CommitBuffer* buffer, bool release, size_t block)
    : buffer_(buffer),
      release_(release),
      piece_(block < buffer->first_pieces_.size() ? buffer->first_pieces_[block] : buffer->pieces_.size()) {}

absl::Span<const float> CommitBuffer::Reader::Read(size_t count) {
  const size_t bytes = count * buffer_->float_bytes_;
  SkipEmpty();
  const std::string_view piece = buffer_->pieces_[piece_].bytes;
  const char* at = piece.data() + offset_;
  const bool together = piece.size() - offset_ >= bytes;
  if (buffer_->encoding_ != v1::FLOAT32) {
    if (together) {
      offset_ += bytes;
    } else {
      CopyTo(narrow_, bytes);
      at = narrow_;
    }
    Widen(buffer_->encoding_, at, count, scratch_);
    return {scratch_, count};
  }
  if (!buffer_->unstable_ && together && reinterpret_cast<uintptr_t>(at) % alignof(float) == 0) {
    offset_ += bytes;
    return {reinterpret_cast<const float*>(at), count};
  }
  if (buffer_->unstable_ && together) {
    finite_ = !CopyAnyNonFinite(at, scratch_, count);
    offset_ += bytes;
  } else {
    CopyTo(reinterpret_cast<char*>(scratch_), bytes);
    finite_ = !buffer_->unstable_ || FirstNonFinite({scratch_, count}) < 0;
  }
  // Keeps the compiler from reading the peer's memory again in place of the copy.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return {scratch_, count};
}

// Not called at the end of a Read: the floats it returned are still in use.
void CommitBuffer::Reader::SkipEmpty() {
  while (piece_ < buffer_->pieces_.size() && offset_ == buffer_->pieces_[piece_].bytes.size()) {
    offset_ = 0;
    // Not the bytes, whose length a reader of the block before looks at.
    if (release_) buffer_->pieces_[piece_].owner.reset();
    ++piece_;
  }
}

void CommitBuffer::Reader::CopyTo(char* to, size_t bytes) {
  while (bytes > 0) {
    SkipEmpty();
    const std::string_view piece = buffer_->pieces_[piece_].bytes;
    const size_t n = std::min(bytes, piece.size() - offset_);
    std::memcpy(to, piece.data() + offset_, n);
    to += n;
    offset_ += n;
    bytes -= n;
  }
}

}  // namespace paramd
