#include "server/commit_buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

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

absl::Status CommitBuffer::Append(uint64_t offset, const std::vector<std::string_view>& bytes,
                                  std::shared_ptr<const void> owner) {
  size_t total = 0;
  for (const std::string_view piece : bytes) total += piece.size();
  if (offset != received_) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk begins at float ", offset, " where float ", received_,
                                                   " was due; chunks of a commit come in order and without gaps"));
  }
  if (total % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk has ", total, " bytes, which is not a whole number of float32 values"));
  }
  const size_t count = total / sizeof(float);
  if (count > floats_ - received_) {
    return absl::InvalidArgumentError(absl::StrCat("a commit has more than the ", floats_,
                                                   " floats of the model; check the client's tensors against the "
                                                   "model's (paramctl show)"));
  }
  const size_t first_piece = pieces_.size();
  for (const std::string_view piece : bytes) {
    if (!piece.empty()) pieces_.push_back({piece, owner});
  }
  Reader reader(this, /*release=*/false);
  reader.piece_ = first_piece;
  for (size_t done = 0; done < count && first_non_finite_ < 0;) {
    const size_t n = std::min(count - done, kPieceFloats);
    const int64_t bad = FirstNonFinite(reader.Read(n));
    if (bad >= 0) first_non_finite_ = static_cast<int64_t>(received_ + done) + bad;
    done += n;
  }
  received_ += count;
  return absl::OkStatus();
}

absl::Span<const float> CommitBuffer::Reader::Read(size_t count) {
  const size_t bytes = count * sizeof(float);
  SkipEmpty();
  const std::string_view piece = buffer_->pieces_[piece_].bytes;
  const char* at = piece.data() + offset_;
  if (piece.size() - offset_ >= bytes && reinterpret_cast<uintptr_t>(at) % alignof(float) == 0) {
    offset_ += bytes;
    return {reinterpret_cast<const float*>(at), count};
  }
  CopyTo(reinterpret_cast<char*>(scratch_), bytes);
  return {scratch_, count};
}

// Not called at the end of a Read: the floats it returned are still in use.
void CommitBuffer::Reader::SkipEmpty() {
  while (piece_ < buffer_->pieces_.size() && offset_ == buffer_->pieces_[piece_].bytes.size()) {
    offset_ = 0;
    if (release_) {
      buffer_->pieces_.pop_front();
    } else {
      ++piece_;
    }
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
