// The calls of one model that are held up: for other workers, or for a first center.
#ifndef PARAMD_SERVER_WAITERS_H_
#define PARAMD_SERVER_WAITERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/membership.h"

namespace paramd {

// One exchange as the transport hands it over.
struct ExchangeCall {
  Caller caller;
  uint64_t sequence = 0;  // of the commit; 0: a pull
  int64_t base_version = -1;
  uint64_t floats = 0;  // of the commit half
  bool pull = false;
  bool state = false;                            // of a reader's pull: with the state vectors
  absl::Time deadline = absl::InfiniteFuture();  // by the model's clock: how long the answer may be held up
  const void* tag = nullptr;                     // names the call for CancelWait
  const std::atomic<bool>* cancelled = nullptr;  // set before CancelWait is called: it will not wait from then on
  std::weak_ptr<ExchangeOwner> owner;            // is told when its worker or model is gone
};

struct ExchangeAnswer {
  absl::Status status;
  // The commit is part of the center or of its round, also when `status` says what went wrong after that.
  bool committed = false;
  int64_t version = 0;  // of the center after the commit (sync: after its round), or of `center`; only if OK
  int64_t staleness = 0;
  // The center that was asked for, if it could be given at once. Null although one was asked for, `status` is OK and
  // the commit, if there was one, is committed: reserve Model::bytes() and call Model::Pull.
  std::shared_ptr<const HeldCenter> center;
  bool acknowledge = false;  // the model keeps `center` until it is acknowledged
};

struct Waiter {
  ExchangeCall call;
  bool begin = false;              // waits to commit rather than for its answer
  std::shared_ptr<Member> member;  // null: a reader
  ExchangeAnswer answer;           // as far as it is known
  std::function<void(ExchangeAnswer)> done;
};

// Each waits for a progress (of the model's ConsistencyRule), for the disk or for the first center, and is found by
// that, by its deadline, its tag and its member: nothing walks over those whose turn has not come. Externally
// synchronized, by its model's lock.
class Waiters {
 public:
  using List = std::list<Waiter>;

  void AwaitProgress(uint64_t progress, Waiter waiter);
  // `ticket`: of the record that must be on disk.
  void AwaitDisk(uint64_t ticket, Waiter waiter);
  void AwaitCenter(Waiter waiter);

  // Those that need wait no longer, in the order in which they came to wait for the same thing.
  List TakeUpTo(uint64_t progress);
  List TakeOnDisk(uint64_t ticket);
  List TakeForCenter();
  List TakeDue(absl::Time now);
  List TakeOf(const Member* member);
  List TakeTagged(const void* tag);
  List TakeAll();

  // No deadline is earlier.
  absl::Time next_deadline() const {
    return by_deadline_.empty() ? absl::InfiniteFuture() : by_deadline_.begin()->first;
  }
  bool IsWaiting(const Member* member) const { return by_member_.find(member) != by_member_.end(); }
  size_t waiting_members() const { return waiting_members_; }

 private:
  struct Entry;
  using Entries = std::list<Entry>;
  using ByProgress = std::multimap<uint64_t, Entries::iterator>;
  using ByDeadline = std::multimap<absl::Time, Entries::iterator>;
  struct Entry {
    Waiter waiter;
    std::optional<ByProgress::iterator> progress;
    std::optional<ByProgress::iterator> ticket;  // neither: waits for the center
    std::optional<ByDeadline::iterator> deadline;
  };

  Entries::iterator Add(Waiter waiter);
  void Take(Entries::iterator entry, List* taken);

  Entries entries_;
  ByProgress by_progress_;
  ByProgress by_ticket_;
  ByDeadline by_deadline_;
  std::unordered_multimap<const void*, Entries::iterator> by_tag_;
  std::unordered_multimap<const Member*, Entries::iterator> by_member_;
  size_t waiting_members_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_WAITERS_H_
