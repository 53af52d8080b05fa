// The center variable of one model, in blocks that snapshots share.
#ifndef PARAMD_SERVER_CENTER_H_
#define PARAMD_SERVER_CENTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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
};

// Externally synchronized: by the lock of its model.
class Center {
 public:
  // All zero. `state_vectors` as the algorithm's server half declares them. `helpers` may be null.
  Center(size_t floats, int state_vectors, std::shared_ptr<ApplyPool> helpers = nullptr);
  // Begins with the blocks of `snapshot`, at version 0.
  Center(const Snapshot& snapshot, int state_vectors, std::shared_ptr<ApplyPool> helpers = nullptr);

  size_t floats() const { return floats_; }
  int64_t version() const { return version_; }

  // Sets every float, from a stable commit. Version and state stay as they are.
  void Set(CommitBuffer* floats);

  // Costs a reference count a block. The same object is returned until the center changes.
  std::shared_ptr<const Snapshot> TakeSnapshot();

  // Merges one commit and finishes a round of it alone, in one pass. Consumes the commit. `base` is null unless
  // `algorithm` needs it. Every block is written in place when no snapshot holds it, else into a fresh one.
  //
  // An unstable commit is checked in the same pass, and goes to fresh blocks only. False says that it is not finite
  // (then its first_non_finite() is set) or not whole any more; the center is then what it was.
  [[nodiscard]] bool Apply(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit,
                           const Snapshot* base);

  // Merges one commit, which must be stable, into the round's sum, which takes as much memory as the center from its
  // first use on. Consumes the commit.
  void Fold(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base);

  // Finishes the round: the version grows by the number of commits folded, which must not be 0.
  void FinishRound(const ServerHalf* algorithm);

  int64_t folded() const { return folded_; }

  // Bytes of blocks that only snapshots hold by now.
  size_t pinned_bytes() const;

 private:
  using Vector = std::vector<BlockRef>;

  Vector AllocateZeroed() const;
  size_t BlockSize(size_t block) const;
  // The block to write to: `*block` itself if nobody else holds it.
  BlockRef Writable(const BlockRef& block) const;
  std::vector<absl::Span<float>> WritableState(size_t block);
  // Calls work(b) for every block, on several threads if that pays.
  void ForEachBlock(absl::FunctionRef<void(size_t)> work) const;
  // Index of the first NaN or infinity, looked for only if the commit is unstable, or -1. The center may then be half
  // written.
  int64_t ApplyBlock(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base,
                     size_t block);

  const size_t floats_;
  const std::shared_ptr<BlockPool> pool_;
  const std::shared_ptr<ApplyPool> helpers_;
  int64_t version_ = 0;
  int64_t rounds_ = 0;  // finished
  Vector blocks_;
  std::vector<Vector> state_;
  Vector sum_;  // empty until the first Fold
  int64_t folded_ = 0;
  std::weak_ptr<const Snapshot> latest_;  // of the present version
};

}  // namespace paramd

#endif  // PARAMD_SERVER_CENTER_H_
