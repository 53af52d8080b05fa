// async: nobody waits for anybody.
#include "server/consistency.h"

namespace paramd {

void ConsistencyRule::Enter(Standing* standing) { standing->live = standing->known = true; }

void ConsistencyRule::Exit(Standing* standing) { standing->live = false; }

void ConsistencyRule::Accept(Standing* standing) { ++standing->windows; }

std::unique_ptr<ConsistencyRule> MakeAsyncRule() { return std::make_unique<ConsistencyRule>(); }

std::unique_ptr<ConsistencyRule> MakeRule(const Consistency& consistency, bool answers_before_commit) {
  switch (consistency.mode) {
    case Consistency::kAsync:
      return MakeAsyncRule();
    case Consistency::kBounded:
      return MakeBoundedRule(consistency.bound, answers_before_commit);
    case Consistency::kSync:
      return MakeSyncRule();
  }
  return nullptr;
}

}  // namespace paramd
