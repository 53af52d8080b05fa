// bounded:S: a worker is at most S windows ahead of the slowest live one when it goes on, and never has more than
// S + 1 windows more than that one in the center. The progress is the slowest's count of windows.
#include <algorithm>
#include <map>

#include "server/consistency.h"

namespace paramd {
namespace {

class BoundedRule : public ConsistencyRule {
 public:
  BoundedRule(uint64_t bound, bool counts_at_door) : bound_(bound), counts_at_door_(counts_at_door) {}

  void Enter(Standing* standing) override {
    if (!live_.empty()) {
      const uint64_t slowest = live_.begin()->first;
      const uint64_t most = bound_ >= kAll - 1 - slowest ? kAll : slowest + bound_ + 1;
      if (standing->windows < slowest) {
        // A late joiner starts beside the slowest, and so does who was away and fell behind.
        standing->windows = slowest;
        standing->at_door = 0;
      } else if (standing->known) {
        // Who was ahead stays so, but waits for no more than a window if the others began anew meanwhile.
        standing->windows = std::min(standing->windows, most);
      }
    }
    ConsistencyRule::Enter(standing);
    ++live_[standing->windows];
  }

  void Exit(Standing* standing) override {
    ConsistencyRule::Exit(standing);
    Forget(standing->windows);
  }

  void Arrive(Standing* standing, uint64_t sequence) override {
    if (!counts_at_door_) return;
    if (standing->at_door == 0) Count(standing);
    standing->at_door = sequence;
  }

  void Accept(Standing* standing) override {
    if (counts_at_door_ && standing->at_door != 0) {
      standing->at_door = 0;
    } else {
      Count(standing);
    }
  }

  uint64_t progress() const override { return live_.empty() ? kAll : live_.begin()->first; }

  uint64_t CommitsFrom(const Standing& standing) const override { return Needs(standing.windows); }

  uint64_t AnsweredFrom(const Standing& standing) const override {
    return counts_at_door_ ? 0 : Needs(standing.windows);
  }

  uint64_t Clock(const Standing& standing) const override {
    const bool open = counts_at_door_ ? standing.at_door != 0 : AnsweredFrom(standing) > progress();
    return standing.windows - (open ? 1 : 0);
  }

  bool HoldsUp(const Standing& member, const Standing& waiting) const override {
    return member.windows < Needs(waiting.windows);
  }

 private:
  uint64_t Needs(uint64_t windows) const { return windows > bound_ ? windows - bound_ : 0; }

  void Count(Standing* standing) {
    if (standing->live) {
      ++live_[standing->windows + 1];
      Forget(standing->windows);
    }
    ++standing->windows;
  }

  void Forget(uint64_t windows) {
    const auto it = live_.find(windows);
    if (--it->second == 0) live_.erase(it);
  }

  const uint64_t bound_;
  const bool counts_at_door_;
  std::map<uint64_t, uint64_t> live_;  // how many live members have so many windows
};

}  // namespace

std::unique_ptr<ConsistencyRule> MakeBoundedRule(uint64_t bound, bool counts_at_door) {
  return std::make_unique<BoundedRule>(bound, counts_at_door);
}

}  // namespace paramd
