#include "server/waiters.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace paramd::testing {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

Waiter MakeWaiter(uint64_t sequence, std::shared_ptr<Member> member = nullptr, const void* tag = nullptr,
                  absl::Time deadline = absl::InfiniteFuture()) {
  Waiter waiter;
  waiter.call.sequence = sequence;
  waiter.call.tag = tag;
  waiter.call.deadline = deadline;
  waiter.member = std::move(member);
  return waiter;
}

std::vector<uint64_t> Sequences(const Waiters::List& list) {
  std::vector<uint64_t> sequences;
  for (const Waiter& waiter : list) sequences.push_back(waiter.call.sequence);
  return sequences;
}

using Sequence = std::vector<uint64_t>;

TEST_CASE("Waiters are taken when the progress is theirs, in the order they came, and each once") {
  Waiters waiters;
  waiters.AwaitProgress(2, MakeWaiter(1));
  waiters.AwaitProgress(1, MakeWaiter(2));
  waiters.AwaitProgress(2, MakeWaiter(3));
  waiters.AwaitProgress(3, MakeWaiter(4));
  waiters.AwaitCenter(MakeWaiter(5));
  CHECK(Sequences(waiters.TakeUpTo(0)) == Sequence{});
  CHECK(Sequences(waiters.TakeUpTo(2)) == Sequence{2, 1, 3});
  CHECK(Sequences(waiters.TakeUpTo(2)) == Sequence{});
  CHECK(Sequences(waiters.TakeForCenter()) == Sequence{5});
  CHECK(Sequences(waiters.TakeAll()) == Sequence{4});
  CHECK(Sequences(waiters.TakeAll()) == Sequence{});
}

TEST_CASE("Waiters are found by deadline, tag and member, and are nowhere once they were taken") {
  Waiters waiters;
  const auto a = std::make_shared<Member>();
  const auto b = std::make_shared<Member>();
  const int tags[2] = {};
  waiters.AwaitProgress(5, MakeWaiter(1, a, &tags[0], kStart + absl::Seconds(2)));
  waiters.AwaitProgress(5, MakeWaiter(2, a, &tags[1], kStart + absl::Seconds(1)));
  waiters.AwaitCenter(MakeWaiter(3, b, &tags[1]));
  CHECK(waiters.waiting_members() == 2);
  CHECK(waiters.IsWaiting(a.get()));
  CHECK(waiters.next_deadline() == kStart + absl::Seconds(1));
  SECTION("deadline") {
    CHECK(Sequences(waiters.TakeDue(kStart)) == Sequence{});
    CHECK(Sequences(waiters.TakeDue(kStart + absl::Seconds(1))) == Sequence{2});
    CHECK(waiters.next_deadline() == kStart + absl::Seconds(2));
    CHECK(waiters.waiting_members() == 2);
    CHECK(Sequences(waiters.TakeUpTo(5)) == Sequence{1});
    CHECK(waiters.next_deadline() == absl::InfiniteFuture());
    CHECK_FALSE(waiters.IsWaiting(a.get()));
  }
  SECTION("tag") {
    CHECK(Sequences(waiters.TakeTagged(&tags[1])).size() == 2);
    CHECK(Sequences(waiters.TakeTagged(&tags[1])) == Sequence{});
    CHECK(waiters.waiting_members() == 1);
    CHECK(Sequences(waiters.TakeAll()) == Sequence{1});
  }
  SECTION("member") {
    CHECK(Sequences(waiters.TakeOf(a.get())).size() == 2);
    CHECK(waiters.waiting_members() == 1);
    CHECK(Sequences(waiters.TakeTagged(&tags[0])) == Sequence{});
    CHECK(Sequences(waiters.TakeForCenter()) == Sequence{3});
  }
  CHECK(waiters.TakeAll().size() <= 1);
  CHECK(waiters.waiting_members() == 0);
}

}  // namespace
}  // namespace paramd::testing
