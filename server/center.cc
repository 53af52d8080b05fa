#include "server/center.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "proto/stream_copy.h"

namespace paramd {
namespace {

size_t Bytes(size_t floats) { return floats * sizeof(float); }

// Of a large model, free blocks beyond these go back to malloc, where commits can use the memory as well.
constexpr size_t kRetainedBytes = size_t{16} << 20;

// Fewer blocks are done before a helper has woken up.
constexpr size_t kSharedBlocks = 4;

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

void LowerTo(int64_t index, std::atomic<int64_t>* least) {
  int64_t present = *least;
  while (index < present && !least->compare_exchange_weak(present, index)) {
  }
}

absl::Span<const float> BasePiece(const Snapshot* base, size_t block, size_t offset, size_t n) {
  if (base == nullptr) return {};
  return base->blocks[block].floats().subspan(offset, n);
}

}  // namespace

Center::Center(size_t floats, int state_vectors, std::shared_ptr<ApplyPool> helpers)
    : floats_(floats),
      pool_(BlockPool::Create(kRetainedBytes)),
      helpers_(std::move(helpers)),
      blocks_(AllocateZeroed()) {
  for (int i = 0; i < state_vectors; ++i) state_.push_back(AllocateZeroed());
}

Center::Center(const Snapshot& snapshot, int state_vectors, std::shared_ptr<ApplyPool> helpers)
    : floats_(snapshot.floats),
      pool_(BlockPool::Create(kRetainedBytes)),
      helpers_(std::move(helpers)),
      blocks_(snapshot.blocks) {
  for (int i = 0; i < state_vectors; ++i) state_.push_back(AllocateZeroed());
}

Center::Center(Image image, std::shared_ptr<ApplyPool> helpers)
    : floats_(image.floats),
      pool_(std::move(image.pool)),
      helpers_(std::move(helpers)),
      version_(image.version),
      rounds_(image.rounds),
      blocks_(std::move(image.blocks)),
      state_(std::move(image.state)),
      sum_(std::move(image.sum)),
      folded_(image.folded) {}

Center::Vector Center::Allocate(size_t floats, BlockPool* pool) {
  Vector vector;
  for (size_t begin = 0; begin < floats; begin += kBlockFloats) {
    vector.push_back(pool->Allocate(std::min(kBlockFloats, floats - begin)));
  }
  return vector;
}

Image Center::AllocateImage(size_t floats, size_t state_vectors, bool with_sum) {
  Image image{.floats = floats, .pool = BlockPool::Create(kRetainedBytes)};
  const auto allocate = [&] { return Allocate(floats, image.pool.get()); };
  image.blocks = allocate();
  for (size_t i = 0; i < state_vectors; ++i) image.state.push_back(allocate());
  if (with_sum) image.sum = allocate();
  return image;
}

Center::Vector Center::AllocateZeroed() const {
  Vector vector = Allocate(floats_, pool_.get());
  for (BlockRef& block : vector) {
    const absl::Span<float> floats = block.mutable_floats();
    std::fill(floats.begin(), floats.end(), 0.0f);
  }
  return vector;
}

Center::Vector Center::Writable(const Vector& blocks) const {
  Vector writable;
  writable.reserve(blocks.size());
  // Uniqueness must be tested before a second handle is made.
  for (const BlockRef& block : blocks) {
    writable.push_back(block.unique() ? block : pool_->Allocate(block.floats().size()));
  }
  return writable;
}

Center::Pass Center::Prepare() const {
  Pass pass{.blocks = Writable(blocks_)};
  pass.state.reserve(state_.size());
  for (const Vector& vector : state_) pass.state.push_back(Writable(vector));
  return pass;
}

std::vector<absl::Span<float>> Center::TakeState(Pass* pass, size_t block) {
  std::vector<absl::Span<float>> spans;
  for (size_t s = 0; s < state_.size(); ++s) {
    const absl::Span<const float> present = state_[s][block].floats();
    const absl::Span<float> next = pass->state[s][block].mutable_floats();
    if (next.data() != present.data()) std::memcpy(next.data(), present.data(), Bytes(present.size()));
    state_[s][block] = std::move(pass->state[s][block]);
    spans.push_back(next);
  }
  return spans;
}

void Center::ForEachBlock(absl::FunctionRef<void(size_t)> work) {
  Mutex mutex;
  const auto fail = [&](const char* what) {
    MutexLock lock(&mutex);
    if (failure_.empty()) failure_ = what;
  };
  const auto guarded = [&](size_t b) {
    try {
      work(b);
    } catch (const std::exception& e) {
      fail(e.what());
    } catch (...) {
      fail("something that is no std::exception");
    }
  };
  if (helpers_ != nullptr && blocks_.size() >= kSharedBlocks) return helpers_->ForEach(blocks_.size(), guarded);
  for (size_t b = 0; b < blocks_.size(); ++b) guarded(b);
}

void Center::Set(CommitBuffer* floats, int64_t version, int64_t rounds) {
  latest_.reset();
  CommitBuffer::Reader reader(floats);
  const auto read = [&](Vector* vector) {
    Vector next = Writable(*vector);
    for (BlockRef& block : next) {
      const absl::Span<float> to = block.mutable_floats();
      for (size_t i = 0; i < to.size(); i += kPieceFloats) {
        const absl::Span<const float> piece = reader.Read(std::min(kPieceFloats, to.size() - i));
        std::memcpy(&to[i], piece.data(), Bytes(piece.size()));
      }
    }
    *vector = std::move(next);
  };
  read(&blocks_);
  if (floats->floats() > floats_) std::for_each(state_.begin(), state_.end(), [&](Vector& vector) { read(&vector); });
  version_ = version;
  rounds_ = rounds;
}

std::shared_ptr<const Snapshot> Center::TakeSnapshot() {
  std::shared_ptr<const Snapshot> snapshot = latest_.lock();
  if (snapshot == nullptr) {
    snapshot = std::make_shared<const Snapshot>(Snapshot{version_, floats_, blocks_, rounds_});
    latest_ = snapshot;
  }
  return snapshot;
}

Snapshot Center::TakeSnapshotWithState() const {
  Snapshot snapshot{version_, floats_ * (1 + state_.size()), blocks_, rounds_};
  for (const Vector& vector : state_) snapshot.blocks.insert(snapshot.blocks.end(), vector.begin(), vector.end());
  return snapshot;
}

bool Center::Apply(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base) {
  // Held here, no block of the present center and state is written to.
  Vector old_blocks;
  std::vector<Vector> old_state;
  if (commit->unstable()) {
    old_blocks = blocks_;
    old_state = state_;
  }
  Pass pass = Prepare();
  std::atomic<int64_t> non_finite{kNone};
  std::atomic<int64_t> overflow{kNone};
  ForEachBlock([&](size_t b) {
    if (non_finite < static_cast<int64_t>(b * kBlockFloats)) return;
    if (const int64_t found = ApplyBlock(algorithm, info, commit, base, b, &pass, &overflow); found >= 0) {
      LowerTo(found, &non_finite);
    }
  });
  if (non_finite != kNone) commit->set_first_non_finite(non_finite);
  if (non_finite != kNone || !failure_.empty() || !commit->StillWhole()) {
    if (commit->unstable()) {
      blocks_ = std::move(old_blocks);
      state_ = std::move(old_state);
    }
    return false;
  }
  if (overflow != kNone) first_non_finite_ = overflow;
  latest_.reset();
  ++version_;
  ++rounds_;
  return true;
}

int64_t Center::ApplyBlock(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit,
                           const Snapshot* base, size_t block, Pass* pass, std::atomic<int64_t>* overflow) {
  alignas(64) float sum[kPieceFloats];
  CommitBuffer::Reader reader(commit, /*release=*/true, block);
  const absl::Span<const float> center = blocks_[block].floats();
  const absl::Span<float> to = pass->blocks[block].mutable_floats();
  const std::vector<absl::Span<float>> state = TakeState(pass, block);
  const RoundInfo round{.commits = 1, .before = rounds_};
  alignas(64) float streamed[kPieceFloats];
  const bool stream = to.data() != center.data() && floats_ >= kLargeFloats;
  FinishPiece finish;
  finish.state.resize(state.size());
  for (size_t i = 0; i < to.size(); i += kPieceFloats) {
    const size_t n = std::min(kPieceFloats, to.size() - i);
    const absl::Span<const float> piece = reader.Read(n);
    if (!reader.finite()) {
      if (stream) EndStream();
      return static_cast<int64_t>(block * kBlockFloats + i) + FirstNonFinite(piece);
    }
    std::fill_n(sum, n, 0.0f);
    algorithm->Merge(info, {.commit = piece,
                            .center = center.subspan(i, n),
                            .base = BasePiece(base, block, i, n),
                            .sum = absl::MakeSpan(sum, n)});
    finish.center = center.subspan(i, n);
    finish.sum = absl::MakeConstSpan(sum, n);
    finish.next = stream ? absl::MakeSpan(streamed, n) : to.subspan(i, n);
    for (size_t s = 0; s < state.size(); ++s) finish.state[s] = state[s].subspan(i, n);
    algorithm->Finish(round, finish);
    if (const int64_t bad = FirstNonFinite(finish.next); bad >= 0) {
      LowerTo(static_cast<int64_t>(block * kBlockFloats + i) + bad, overflow);
    }
    if (stream) StreamCopy(streamed, n, to.data() + i);
  }
  if (stream) EndStream();
  blocks_[block] = std::move(pass->blocks[block]);
  return -1;
}

std::optional<CommitBuffer> Center::Contribution(const ServerHalf* algorithm, const CommitInfo& info,
                                                 CommitBuffer* commit, const Snapshot* base) {
  std::vector<std::shared_ptr<float[]>> sums;
  for (const BlockRef& block : blocks_) sums.emplace_back(new float[block.floats().size()]());
  ForEachBlock([&](size_t b) {
    CommitBuffer::Reader reader(commit, /*release=*/true, b);
    const absl::Span<const float> center = blocks_[b].floats();
    for (size_t i = 0; i < center.size(); i += kPieceFloats) {
      const size_t n = std::min(kPieceFloats, center.size() - i);
      algorithm->Merge(info, {.commit = reader.Read(n),
                              .center = center.subspan(i, n),
                              .base = BasePiece(base, b, i, n),
                              .sum = absl::MakeSpan(sums[b].get() + i, n)});
    }
  });
  if (!failure_.empty()) return std::nullopt;
  CommitBuffer contribution(floats_);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const std::string_view bytes(reinterpret_cast<const char*>(sums[b].get()), Bytes(blocks_[b].floats().size()));
    // Its own length fits.
    contribution.Append(b * kBlockFloats, {bytes}, std::move(sums[b])).IgnoreError();
  }
  // What is not finite in it is the center's affair.
  contribution.set_first_non_finite(-1);
  return contribution;
}

void Center::Fold(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base) {
  if (sum_.empty()) sum_ = AllocateZeroed();
  Vector next = Writable(sum_);
  ForEachBlock([&](size_t b) {
    CommitBuffer::Reader reader(commit, /*release=*/true, b);
    const absl::Span<float> sum = next[b].mutable_floats();
    if (folded_ == 0) {
      std::fill(sum.begin(), sum.end(), 0.0f);
    } else if (sum.data() != sum_[b].floats().data()) {
      std::memcpy(sum.data(), sum_[b].floats().data(), Bytes(sum.size()));
    }
    for (size_t i = 0; i < sum.size(); i += kPieceFloats) {
      const size_t n = std::min(kPieceFloats, sum.size() - i);
      algorithm->Merge(info, {.commit = reader.Read(n),
                              .center = blocks_[b].floats().subspan(i, n),
                              .base = BasePiece(base, b, i, n),
                              .sum = sum.subspan(i, n)});
    }
  });
  sum_ = std::move(next);
  ++folded_;
}

void Center::FinishRound(const ServerHalf* algorithm) {
  Pass pass = Prepare();
  latest_.reset();
  std::atomic<int64_t> overflow{kNone};
  ForEachBlock([&](size_t b) {
    const absl::Span<const float> center = blocks_[b].floats();
    const absl::Span<float> next = pass.blocks[b].mutable_floats();
    algorithm->Finish({.commits = folded_, .before = rounds_},
                      {.center = center, .sum = sum_[b].floats(), .next = next, .state = TakeState(&pass, b)});
    if (const int64_t bad = FirstNonFinite(next); bad >= 0) {
      LowerTo(static_cast<int64_t>(b * kBlockFloats) + bad, &overflow);
    }
    blocks_[b] = std::move(pass.blocks[b]);
  });
  if (overflow != kNone) first_non_finite_ = overflow;
  version_ += folded_;
  ++rounds_;
  folded_ = 0;
}

Image Center::TakeImage() const {
  return {.version = version_,
          .rounds = rounds_,
          .floats = floats_,
          .blocks = blocks_,
          .state = state_,
          .sum = folded_ > 0 ? sum_ : Vector(),
          .folded = folded_,
          .pool = pool_};
}

size_t Center::own_bytes() const { return Bytes(floats_) * (1 + state_.size() + (sum_.empty() ? 0 : 1)); }

size_t Center::pinned_bytes() const {
  // Blocks that came with a snapshot are another pool's.
  const size_t allocated = pool_->allocated_bytes();
  return allocated - std::min(own_bytes(), allocated);
}

}  // namespace paramd
