// The rules by themselves: who may go on when, by standings alone.
#include "server/consistency.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>

namespace paramd::testing {
namespace {

// A window that need not be held anywhere.
void Commit(ConsistencyRule* rule, Standing* standing, uint64_t sequence) {
  rule->Arrive(standing, sequence);
  REQUIRE(rule->CommitsFrom(*standing) <= rule->progress());
  rule->Accept(standing);
}

TEST_CASE("async: nobody waits for anybody, and windows are counted") {
  const auto rule = MakeAsyncRule();
  Standing a;
  Standing b;
  rule->Enter(&a);
  rule->Enter(&b);
  for (uint64_t i = 1; i <= 100; ++i) {
    Commit(rule.get(), &a, i);
    CHECK(rule->AnsweredFrom(a) <= rule->progress());
  }
  CHECK(rule->Clock(a) == 100);
  CHECK_FALSE(rule->RoundDue());
  CHECK_FALSE(rule->HoldsUp(b, a));
}

TEST_CASE("bounded: the progress is the slowest live member's count, kept as members come, go and commit") {
  const auto rule = MakeBoundedRule(1, /*counts_at_door=*/false);
  Standing slow;
  Standing fast;
  CHECK(rule->progress() == ConsistencyRule::kAll);
  rule->Enter(&slow);
  rule->Enter(&fast);
  Commit(rule.get(), &fast, 1);
  CHECK(rule->AnsweredFrom(fast) <= rule->progress());
  Commit(rule.get(), &fast, 2);
  // In, but not answered; nor may another one come in.
  CHECK(rule->AnsweredFrom(fast) == 1);
  CHECK(rule->CommitsFrom(fast) == 1);
  CHECK(rule->progress() == 0);
  CHECK(rule->HoldsUp(slow, fast));
  CHECK(rule->Clock(fast) == 1);
  Commit(rule.get(), &slow, 1);
  CHECK(rule->progress() == 1);
  CHECK(rule->Clock(fast) == 2);
  rule->Exit(&slow);
  CHECK(rule->progress() == 2);
  rule->Exit(&fast);
  CHECK(rule->progress() == ConsistencyRule::kAll);
}

TEST_CASE("bounded: questions change nothing, and the same commit at the door counts once") {
  const auto rule = MakeBoundedRule(0, /*counts_at_door=*/true);
  Standing a;
  Standing b;
  rule->Enter(&a);
  rule->Enter(&b);
  for (int i = 0; i < 5; ++i) {
    rule->Arrive(&a, 1);
    CHECK(rule->CommitsFrom(a) == 1);
    CHECK(a.windows == 1);
    CHECK(rule->Clock(a) == 0);
  }
  // A later one takes the place of one that never was applied.
  rule->Arrive(&a, 2);
  CHECK(a.windows == 1);
  rule->Arrive(&b, 1);
  CHECK(rule->progress() == 1);
  rule->Accept(&a);
  CHECK(a.windows == 1);
  CHECK(rule->Clock(a) == 1);
  rule->Arrive(&a, 3);
  CHECK(a.windows == 2);
}

TEST_CASE("bounded: who comes back keeps its count, at least the slowest's and at most a window too many") {
  const auto rule = MakeBoundedRule(2, GENERATE(false, true));
  Standing steady;
  Standing behind;
  Standing ahead;
  for (Standing* standing : {&steady, &behind, &ahead}) rule->Enter(standing);
  rule->Exit(&behind);
  for (uint64_t i = 1; i <= 3; ++i) {
    Commit(rule.get(), &steady, i);
    Commit(rule.get(), &ahead, i);
  }
  Commit(rule.get(), &ahead, 4);
  rule->Exit(&ahead);
  rule->Enter(&ahead);
  CHECK(ahead.windows == 4);
  rule->Enter(&behind);
  CHECK(behind.windows == 3);
  rule->Exit(&ahead);
  rule->Exit(&behind);
  rule->Exit(&steady);
  Standing fresh;
  rule->Enter(&fresh);
  CHECK(fresh.windows == 0);
  rule->Enter(&ahead);
  CHECK(ahead.windows == 3);
}

TEST_CASE("bounded: the largest bound there is does not overflow") {
  const auto rule = MakeBoundedRule(UINT64_MAX, false);
  Standing a;
  Standing b;
  rule->Enter(&a);
  Commit(rule.get(), &a, 1);
  rule->Enter(&b);
  for (uint64_t i = 2; i <= 10; ++i) Commit(rule.get(), &a, i);
  rule->Exit(&a);
  rule->Enter(&a);
  CHECK(a.windows == 10);
  CHECK(rule->AnsweredFrom(a) <= rule->progress());
}

TEST_CASE("sync: a round is due when nobody is missing, counted as members come, go and commit") {
  const auto rule = MakeSyncRule();
  REQUIRE(rule->rounds());
  Standing a;
  Standing b;
  Standing c;
  rule->Enter(&a);
  rule->Enter(&b);
  CHECK_FALSE(rule->RoundDue());
  Commit(rule.get(), &a, 1);
  CHECK(rule->CommitsFrom(a) == 1);
  CHECK(rule->AnsweredFrom(a) == 1);
  CHECK(rule->Clock(a) == 0);
  CHECK_FALSE(rule->HoldsUp(a, a));
  CHECK(rule->HoldsUp(b, a));
  rule->Enter(&c);
  Commit(rule.get(), &b, 1);
  CHECK_FALSE(rule->RoundDue());
  // Who has committed and goes is not missed; who comes back has still committed.
  rule->Exit(&a);
  CHECK_FALSE(rule->RoundDue());
  rule->Enter(&a);
  rule->Exit(&c);
  REQUIRE(rule->RoundDue());
  rule->EndRound();
  CHECK(rule->progress() == 1);
  CHECK_FALSE(rule->RoundDue());
  CHECK(rule->CommitsFrom(a) <= rule->progress());
  CHECK(rule->Clock(a) == 1);
  Commit(rule.get(), &a, 2);
  CHECK_FALSE(rule->RoundDue());
  Commit(rule.get(), &b, 2);
  CHECK(rule->RoundDue());
}

}  // namespace
}  // namespace paramd::testing
