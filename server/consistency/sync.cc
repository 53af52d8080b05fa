// sync: rounds of one commit of every live worker. The progress is the number of the round.
#include "server/consistency.h"

namespace paramd {
namespace {

class SyncRule : public ConsistencyRule {
 public:
  bool rounds() const override { return true; }

  void Resume(uint64_t progress, bool any) override {
    round_ = progress;
    any_ = any;
  }

  void Enter(Standing* standing) override {
    ConsistencyRule::Enter(standing);
    ++live_;
    if (!HasCommitted(*standing)) ++missing_;
  }

  void Exit(Standing* standing) override {
    ConsistencyRule::Exit(standing);
    --live_;
    if (!HasCommitted(*standing)) --missing_;
  }

  void Accept(Standing* standing) override {
    ConsistencyRule::Accept(standing);
    any_ = true;
    if (HasCommitted(*standing)) return;
    standing->last_round = round_;
    if (standing->live) --missing_;
  }

  void EndRound() override {
    ++round_;
    any_ = false;
    missing_ = live_;
  }

  bool RoundDue() const override { return any_ && missing_ == 0; }
  uint64_t progress() const override { return round_; }
  uint64_t CommitsFrom(const Standing& standing) const override { return HasCommitted(standing) ? round_ + 1 : 0; }
  uint64_t AnsweredFrom(const Standing& standing) const override { return CommitsFrom(standing); }
  uint64_t Clock(const Standing& standing) const override {
    return standing.windows - (HasCommitted(standing) ? 1 : 0);
  }
  // It would be counted in the round again if it came back.
  bool MayForget(const Standing& standing) const override { return !HasCommitted(standing); }
  bool HoldsUp(const Standing& member, const Standing& /*waiting*/) const override { return !HasCommitted(member); }

 private:
  bool HasCommitted(const Standing& standing) const { return standing.last_round == round_; }

  uint64_t round_ = 0;
  bool any_ = false;      // has committed in it
  uint64_t missing_ = 0;  // live members that have not
  uint64_t live_ = 0;
};

}  // namespace

std::unique_ptr<ConsistencyRule> MakeSyncRule() { return std::make_unique<SyncRule>(); }

}  // namespace paramd
