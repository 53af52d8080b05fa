// What a model is made of and must not lose: its center, with the algorithm that changes it.
#ifndef PARAMD_SERVER_LEDGER_H_
#define PARAMD_SERVER_LEDGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/algorithm.h"
#include "server/apply_pool.h"
#include "server/budget.h"
#include "server/center.h"
#include "server/commit_buffer.h"
#include "server/held_center.h"
#include "server/spec.h"
#include "state/state.pb.h"

namespace paramd {

// What others may know of a ledger without waiting for it.
struct LedgerState {
  bool initialized = false;
  int64_t version = 0;
  int64_t first_version = 0;  // of the first center
  int64_t rounds = 0;
  absl::Status problem;  // why no worker can go on with this center
  std::shared_ptr<const BlockPool> pool;
  size_t own_bytes = 0;

  size_t pinned_bytes() const;
};

// The first center of a model, for other models to begin with.
struct InitialCenter {
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<uint32_t> checksums;  // of each tensor
};

// What a first center begins with that is one that another model had come to.
struct FirstPoint {
  int64_t version = 0;
  int64_t rounds = 0;
};

// All of it may take long, so it belongs on the model's strand. Externally synchronized, by that.
class Ledger {
 public:
  // `spec` lasts as long as this. `rounds`: commits are gathered in rounds. `pool` and `budget` may be null.
  Ledger(const CheckedSpec* spec, const ServerHalf* algorithm, bool rounds, std::shared_ptr<ApplyPool> pool,
         Budget* budget);

  LedgerState state() const;
  int64_t version() const { return center_->version(); }
  size_t state_vectors() const { return static_cast<size_t>(state_vectors_); }

  // `floats`: the center, and if there are so many more, the state vectors. True: this was the first center, which
  // wins. False: the same as the first. ALREADY_EXISTS names the difference to the first; INVALID_ARGUMENT: it is not
  // whole, or not finite. INTERNAL: it is unstable. RESOURCE_EXHAUSTED: there is no memory for it.
  absl::StatusOr<bool> Initialize(CommitBuffer* floats, const FirstPoint& at);
  // Shares the blocks. Only for one that has no center yet. RESOURCE_EXHAUSTED: there is no memory for it.
  absl::Status InitializeFrom(const InitialCenter& center);
  // At version 0, of one that has just been initialized.
  InitialCenter Initial();
  // What `record` and `image` say, whatever it was.
  void Restore(Image image, const state::Checkpoint& record);
  // What no image has.
  void Save(state::Checkpoint* record) const;

  // Merges a whole, finite commit into the center or into the round's sum. If it is not OK, nothing has changed, or
  // state().problem says what has. RESOURCE_EXHAUSTED: there
  // is no memory for it now.
  absl::Status Merge(const CommitInfo& info, CommitBuffer* commit, const Snapshot* base);
  // The same in two steps: makes of a stable commit its contribution, for which nobody needs `base` any more, and
  // merges that. Errors as above.
  absl::Status MakeContribution(const CommitInfo& info, CommitBuffer* commit, const Snapshot* base);
  absl::Status MergeContribution(const CommitInfo& info, CommitBuffer* contribution);
  bool HasSum() const { return center_.has_value() && center_->folded() > 0; }
  // HasSum(), so the version grows. False: there is no memory for it; nothing has changed.
  bool FinishRound();

  // Null without a center. The same one until the center changes.
  std::shared_ptr<const Snapshot> TakeSnapshot();
  std::shared_ptr<const Snapshot> TakeSnapshotWithState() const;
  // The center as it is before the round that is under way ends: one for all who are answered with it.
  std::shared_ptr<const HeldCenter> BeforeRound();
  std::optional<Image> TakeImage() const;

  // Lets go of the center, whoever still holds the ledger.
  void Free();

 private:
  absl::Status MergeBy(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit, const Snapshot* base);
  absl::Status NoMemoryToMerge() const;
  Reservation Count(BudgetKind kind) const;
  absl::Status NoMemory() const;
  void NoteProblem();

  const CheckedSpec& spec_;
  const ServerHalf& algorithm_;
  const SumHalf sum_half_;
  const int state_vectors_;
  const bool rounds_;
  const std::shared_ptr<ApplyPool> apply_pool_;
  Budget* const budget_;

  std::optional<Center> center_;
  std::vector<uint32_t> initial_checksums_;
  int64_t first_version_ = 0;
  absl::Status problem_;
  std::shared_ptr<const HeldCenter> before_round_;
  Reservation center_room_;
  Reservation sum_room_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_LEDGER_H_
