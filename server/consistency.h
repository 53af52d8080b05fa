// Who may go on when: one rule is one file in server/consistency.
#ifndef PARAMD_SERVER_CONSISTENCY_H_
#define PARAMD_SERVER_CONSISTENCY_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "server/spec.h"

namespace paramd {

// How far a worker is, by its name: it survives restarts and leases. Only the rule changes it.
struct Standing {
  bool live = false;
  bool known = false;                  // has been live before
  uint64_t windows = 0;                // whose commit was accepted; the one count of them
  uint64_t at_door = 0;                // the sequence of a window that is counted before its commit is applied; 0: none
  std::optional<uint64_t> last_round;  // that it has committed in
};

// A rule's state is one number that grows, the *progress*, and what every worker needs of it: to commit, and to be
// answered. It shrinks only when no worker is left to wait for anything.
//
// Externally synchronized. Besides the members' standings a rule keeps only sums of them: no call walks over members.
class ConsistencyRule {
 public:
  // What a worker may wait for when there is nobody to wait for.
  static constexpr uint64_t kAll = UINT64_MAX;

  virtual ~ConsistencyRule() = default;

  // Whether commits are gathered in rounds that become the center together.
  virtual bool rounds() const { return false; }

  // Goes on from where a rule was whose progress was `progress`; `any`: somebody had committed in its round. Before any
  // member enters, and then those that were live do by the order of their windows.
  virtual void Resume(uint64_t /*progress*/, bool /*any*/) {}

  // A member becomes live, or is live no longer.
  virtual void Enter(Standing* standing);
  virtual void Exit(Standing* standing);
  // A commit of `sequence` comes to the door: it would like to be applied. The same one may come again.
  virtual void Arrive(Standing* /*standing*/, uint64_t /*sequence*/) {}
  // It was applied, for the first time.
  virtual void Accept(Standing* standing);
  // The round that was due has become part of the center.
  virtual void EndRound() {}

  // Whether everyone who is waited for has committed in this round, and anyone has.
  virtual bool RoundDue() const { return false; }
  virtual uint64_t progress() const { return kAll; }
  // The progress from which on this member's next commit may be applied; it has come to the door.
  virtual uint64_t CommitsFrom(const Standing& /*standing*/) const { return 0; }
  // From which on the answer to its last commit, and its pulls, may be given.
  virtual uint64_t AnsweredFrom(const Standing& /*standing*/) const { return 0; }
  // Windows whose exchange may be over.
  virtual uint64_t Clock(const Standing& standing) const { return standing.windows; }
  // Whether nothing of a member that is gone need be remembered.
  virtual bool MayForget(const Standing& /*standing*/) const { return true; }
  // Whether `waiting`, who waits, waits for this live member.
  virtual bool HoldsUp(const Standing& /*member*/, const Standing& /*waiting*/) const { return false; }
};

std::unique_ptr<ConsistencyRule> MakeAsyncRule();
// `counts_at_door`: of algorithms whose answer would have to be kept while it waits, so that the commit waits instead.
std::unique_ptr<ConsistencyRule> MakeBoundedRule(uint64_t bound, bool counts_at_door);
std::unique_ptr<ConsistencyRule> MakeSyncRule();

std::unique_ptr<ConsistencyRule> MakeRule(const Consistency& consistency, bool answers_before_commit);

}  // namespace paramd

#endif  // PARAMD_SERVER_CONSISTENCY_H_
