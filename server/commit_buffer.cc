#include "server/commit_buffer.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/block.h"

namespace paramd {
namespace {

bool NonFinite(float value) { return (std::bit_cast<uint32_t>(value) & 0x7f800000u) == 0x7f800000u; }

}  // namespace

int64_t FirstNonFinite(absl::Span<const float> floats) {
  // The common case is a loop without an exit, which the compiler vectorises.
  uint32_t any = 0;
  for (const float f : floats) any |= static_cast<uint32_t>(NonFinite(f));
  if (any == 0) return -1;
  return std::find_if(floats.begin(), floats.end(), NonFinite) - floats.begin();
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

void CommitBuffer::AddPiece(std::string_view bytes, const std::shared_ptr<const void>& owner) {
  const size_t block_bytes = kBlockFloats * float_bytes_;
  while (!bytes.empty()) {
    const size_t in_block = bytes_ % block_bytes;
    if (in_block == 0) first_pieces_.push_back(pieces_.size());
    const std::string_view piece = bytes.substr(0, block_bytes - in_block);
    pieces_.push_back({piece, owner});
    bytes_ += piece.size();
    bytes.remove_prefix(piece.size());
  }
}

absl::Status CommitBuffer::Append(uint64_t offset, const std::vector<std::string_view>& bytes,
                                  std::shared_ptr<const void> owner) {
  size_t total = 0;
  for (const std::string_view piece : bytes) total += piece.size();
  const size_t count = total / float_bytes_;
  if (auto status = CheckPlace(offset, count); !status.ok()) return status;
  if (total % float_bytes_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk has ", total, " bytes, which is not a whole number of ",
                                                   EncodingName(encoding_), " values"));
  }
  Reader reader(this, /*release=*/false);
  reader.piece_ = pieces_.size();
  for (const std::string_view piece : bytes) AddPiece(piece, owner);
  for (size_t done = 0; done < count && first_non_finite_ < 0;) {
    const size_t n = std::min(count - done, kPieceFloats);
    const int64_t bad = FirstNonFinite(reader.Read(n));
    if (bad >= 0) first_non_finite_ = static_cast<int64_t>(received_ + done) + bad;
    done += n;
  }
  received_ += count;
  return absl::OkStatus();
}

absl::Status CommitBuffer::AppendUnstable(uint64_t offset, absl::Span<const float> floats,
                                          std::shared_ptr<const void> owner) {
  if (auto status = CheckPlace(offset, floats.size()); !status.ok()) return status;
  unstable_ = true;
  AddPiece({reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)}, owner);
  received_ += floats.size();
  return absl::OkStatus();
}

absl::Status CommitBuffer::MakeStable() {
  if (!unstable_) return absl::OkStatus();
  CommitBuffer stable(floats_);
  for (size_t block = 0; !stable.complete(); ++block) {
    Reader reader(this, /*release=*/true, block);
    const size_t n = std::min(floats_ - stable.received_, kBlockFloats);
    const std::shared_ptr<float[]> memory(new float[n]);
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
  CopyTo(reinterpret_cast<char*>(scratch_), bytes);
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
