// The center variable of one model, in blocks that snapshots share.
#ifndef PARAMD_SERVER_CENTER_H_
#define PARAMD_SERVER_CENTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "algorithms/algorithm.h"
#include "server/apply_pool.h"
#include "server/block.h"
#include "server/commit_buffer.h"

namespace paramd {

// One version of a center. Immutable; safe to read from any thread for as long as it is held.
struct Snapshot {
  int64_t version = 0;
  size_t floats = 0;
  std::vector<BlockRef> blocks;  // kBlockFloats each, but for the last
  int64_t rounds = 0;
};

// All of a center at one version, of which nothing is missing: the next version follows from it and the next commits.
// Immutable; it shares blocks as a snapshot does.
struct Image {
  int64_t version = 0;
  int64_t rounds = 0;  // finished
  size_t floats = 0;
  std::vector<BlockRef> blocks;
  std::vector<std::vector<BlockRef>> state;  // the algorithm's vectors
  std::vector<BlockRef> sum;                 // of a round that is under way; empty if there is none
  int64_t folded = 0;                        // commits in it
  std::shared_ptr<BlockPool> pool;           // of the blocks

  // Of all its vectors.
  size_t bytes() const { return floats * sizeof(float) * (1 + state.size() + (sum.empty() ? 0 : 1)); }
};

// Merges what another half has made of commits, and finishes rounds as that does.
class SumHalf : public ServerHalf {
 public:
  // `half` outlives it.
  explicit SumHalf(const ServerHalf* half) : half_(*half) {}

  int state_vectors() const override { return half_.state_vectors(); }
  void Finish(const RoundInfo& round, const FinishPiece& piece) const override { half_.Finish(round, piece); }

 private:
  const ServerHalf& half_;
};

// Externally synchronized: by the strand of its model. Throws std::bad_alloc where there is no memory for its blocks,
// and then has changed nothing.
class Center {
 public:
  // All zero. `state_vectors` as the algorithm's server half declares them. `helpers` may be null.
  Center(size_t floats, int state_vectors, std::shared_ptr<ApplyPool> helpers = nullptr);
  // Goes on from `image`, whose blocks are of its pool and the image's alone, or shared.
  Center(Image image, std::shared_ptr<ApplyPool> helpers);
  // Begins with the blocks of `snapshot`, at version 0.
  Center(const Snapshot& snapshot, int state_vectors, std::shared_ptr<ApplyPool> helpers = nullptr);

  // One to be filled: its blocks are of undefined content.
  static Image AllocateImage(size_t floats, size_t state_vectors, bool with_sum);

  size_t floats() const { return floats_; }
  int64_t version() const { return version_; }
  int64_t rounds() const { return rounds_; }

  // Of one that has had no commit: sets every float, from a stable commit; of the state, too, if that has so many.
  void Set(CommitBuffer* floats, int64_t version, int64_t rounds);

  // Costs a reference count a block. The same object is returned until the center changes.
  std::shared_ptr<const Snapshot> TakeSnapshot();
  // With the state vectors behind the center: each begins with a block.
  Snapshot TakeSnapshotWithState() const;

  // Merges one commit and finishes a round of it alone, in one pass. Consumes the commit. `base` is null unless
  // `algorithm` needs it. Every block is written in place when no snapshot holds it, else into a fresh one.
  //
  // An unstable commit is checked in the same pass, and goes to fresh blocks only. False says that it is not finite
  // (then its first_non_finite() is set) or not whole any more; the center is then what it was. Or that the algorithm
  // threw: see failure().
  [[nodiscard]] bool Apply(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit,
                           const Snapshot* base);

  // What `algorithm` adds to a sum for a commit that must be stable, for SumHalf to merge instead. Consumes the commit.
  // Nothing is changed. Null: the algorithm threw, see failure().
  std::optional<CommitBuffer> Contribution(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit,
                                           const Snapshot* base);

  // Merges one commit, which must be stable, into the round's sum, which takes as much memory as the center from its
  // first use on. Consumes the commit.
  void Fold(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base);

  // Finishes the round: the version grows by the number of commits folded, which must not be 0.
  void FinishRound(const ServerHalf* algorithm);

  int64_t folded() const { return folded_; }

  // Shares the blocks of a round's sum, too.
  Image TakeImage() const;

  // Index of the first float that is NaN or infinite since Apply or FinishRound wrote it, or -1: finite commits can
  // make a center that is not.
  int64_t first_non_finite() const { return first_non_finite_; }
  // What the algorithm threw; empty if nothing. The center may be half written since then.
  const std::string& failure() const { return failure_; }

  // Of all blocks that came from here, its own and those that only snapshots hold by now.
  std::shared_ptr<const BlockPool> pool() const { return pool_; }
  // Bytes of its own blocks.
  size_t own_bytes() const;
  // Bytes of blocks that only snapshots hold by now.
  size_t pinned_bytes() const;

 private:
  using Vector = std::vector<BlockRef>;

  // Of undefined content.
  static Vector Allocate(size_t floats, BlockPool* pool);
  Vector AllocateZeroed() const;
  // What one pass writes to.
  struct Pass {
    Vector blocks;
    std::vector<Vector> state;
  };

  // Blocks to write to: each itself where nobody else holds it.
  Vector Writable(const Vector& blocks) const;
  // All that a pass needs, before it changes anything.
  Pass Prepare() const;
  // From now on the state's blocks are those of the pass.
  std::vector<absl::Span<float>> TakeState(Pass* pass, size_t block);
  // Calls work(b) for every block, on several threads if that pays. What it throws becomes the failure.
  void ForEachBlock(absl::FunctionRef<void(size_t)> work);
  // Index of the first NaN or infinity of the commit, looked for only if that is unstable, or -1. The center may then
  // be half written. The first one of what is written goes to `overflow`.
  int64_t ApplyBlock(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base,
                     size_t block, Pass* pass, std::atomic<int64_t>* overflow);

  const size_t floats_;
  const std::shared_ptr<BlockPool> pool_;
  const std::shared_ptr<ApplyPool> helpers_;
  int64_t version_ = 0;
  int64_t rounds_ = 0;  // finished
  Vector blocks_;
  std::vector<Vector> state_;
  Vector sum_;  // empty until the first Fold
  int64_t folded_ = 0;
  int64_t first_non_finite_ = -1;
  std::string failure_;
  std::weak_ptr<const Snapshot> latest_;  // of the present version
};

}  // namespace paramd

#endif  // PARAMD_SERVER_CENTER_H_
