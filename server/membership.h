// Who takes part in a model: names, incarnations, leases, fencing.
#ifndef PARAMD_SERVER_MEMBERSHIP_H_
#define PARAMD_SERVER_MEMBERSHIP_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/paramd.pb.h"
#include "server/consistency.h"
#include "server/held_center.h"
#include "state/state.pb.h"

namespace paramd {

// Who calls: a worker as its join told it who it is.
struct Caller {
  std::string worker;  // empty: a reader
  uint64_t incarnation = 0;
  uint64_t nonce = 0;
};

inline Caller CallerOf(const v1::Participant& participant) {
  return {.worker = participant.worker(), .incarnation = participant.incarnation(), .nonce = participant.nonce()};
}

// A worker's lease, renewed without any lock. Thread-safe.
class Lease {
 public:
  void Renew(absl::Time now) { renewed_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }
  absl::Time renewed() const { return absl::FromUnixNanos(renewed_ns_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<int64_t> renewed_ns_{0};
};

// Of an exchange that waits for its peer, and holds room meanwhile. Thread-safe.
class ExchangeOwner {
 public:
  virtual ~ExchangeOwner() = default;

  // Its worker left, expired or was fenced, or its model was deleted. Called under no lock; it may come when the
  // exchange is over.
  virtual void OnGone(const absl::Status& why) = 0;
};

// Exchanges to be told. Thread-compatible.
class ExchangesUnderWay {
 public:
  void Add(std::weak_ptr<ExchangeOwner> exchange) {
    // Those that are over go before it would grow.
    if (exchanges_.size() == exchanges_.capacity()) Remove(exchange);
    exchanges_.push_back(std::move(exchange));
  }

  // And all that are over.
  void Remove(const std::weak_ptr<ExchangeOwner>& exchange) {
    const auto over = [&](const std::weak_ptr<ExchangeOwner>& other) {
      return other.expired() || (!other.owner_before(exchange) && !exchange.owner_before(other));
    };
    exchanges_.erase(std::remove_if(exchanges_.begin(), exchanges_.end(), over), exchanges_.end());
  }

  const std::vector<std::weak_ptr<ExchangeOwner>>& exchanges() const { return exchanges_; }

 private:
  std::vector<std::weak_ptr<ExchangeOwner>> exchanges_;
};

// The last commit of an incarnation, for its retries.
struct LastCommit {
  uint64_t sequence = 0;         // 0: none yet
  uint64_t closed_sequence = 0;  // up to here, what was not applied never will be
  int64_t version = 0;           // that it is answered with; sync: known when its round is over
  int64_t staleness = 0;
  int64_t base_version = -1;  // of the center that was last pulled
  uint64_t ticket = 0;        // of the record that must be on disk before it is answered; 0: none
  // The lowest version at which the model came back from disk since the last pull, where what came after may be
  // missing. -1: it was brought back to a checkpoint, so that nothing that was pulled counts.
  std::optional<int64_t> came_back_at;

  void ComeBackAt(int64_t at) { came_back_at = std::min(at, came_back_at.value_or(at)); }
};

// What is known of a worker by its name, for as long as it is remembered.
struct MemberRecord {
  std::string name;
  uint64_t incarnation = 0;
  uint64_t nonce = 0;
  std::vector<uint64_t> former_nonces;  // of the last joins before, the newest last
  LastCommit last;                      // of this incarnation
  Standing standing;
  uint64_t commits = 0;
  uint64_t pulls = 0;
  uint64_t rejected = 0;
  double staleness_sum = 0;
};

// What an incarnation has while it is live. Replaced whole.
struct MemberSession {
  std::shared_ptr<Lease> lease = std::make_shared<Lease>();
  std::shared_ptr<const HeldCenter> answer;  // of elastic algorithms, until it is acknowledged
  std::shared_ptr<const HeldCenter> base;    // if the algorithm needs it
  ExchangesUnderWay under_way;               // whose bytes are still to come, or whose center is to be read
};

struct Member {
  MemberRecord record;
  MemberSession session;
  v1::WorkerInfo::State state = v1::WorkerInfo::STATE_UNSPECIFIED;
  std::string message;
  bool forgotten = false;
  uint64_t gone = 0;                   // counts up with each that is
  std::list<Member*>::iterator place;  // among the live, or among the gone

  bool live() const { return state == v1::WorkerInfo::LIVE; }
  bool left() const { return state == v1::WorkerInfo::LEFT || state == v1::WorkerInfo::FAILED; }
};

// Externally synchronized, by its model's lock. What it drops it hands out, because letting go of a session may call
// others.
class Membership {
 public:
  // All of them last as long as this.
  Membership(const std::string* model, ConsistencyRule* rule, size_t max_workers)
      : model_(*model), rule_(*rule), max_workers_(max_workers) {}

  // INVALID_ARGUMENT for a join that no model would take.
  static absl::Status CheckJoin(const std::string& worker, uint64_t incarnation, uint64_t nonce);

  struct Joined {
    std::shared_ptr<Member> member;
    bool repeated = false;               // nothing changed but the lease
    uint64_t fenced = 0;                 // the incarnation that was live, or may still think so; 0: none
    std::shared_ptr<Member> forgotten;   // made room
    std::vector<MemberSession> dropped;  // of both
  };
  // Makes the worker live. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ABORTED.
  // Without `make_room` it may be one more than there is room for, and nobody is forgotten.
  absl::StatusOr<Joined> Join(const std::string& worker, uint64_t incarnation, uint64_t nonce, absl::Time now,
                              bool make_room = true);

  // Null if nobody of that name is gone.
  std::shared_ptr<Member> Forget(const std::string& worker);

  // NOT_FOUND, ABORTED.
  absl::StatusOr<std::shared_ptr<Member>> Find(const Caller& caller) const;
  // OK if the member is still who called.
  absl::Status Check(const Member& member, const Caller& caller) const;

  // A sign of life, which makes a member live whose lease ran out. Returns whether it did.
  bool Touch(Member* member, absl::Time now);
  // No longer live. Returns what it had.
  MemberSession Retire(Member* member, v1::WorkerInfo::State state, std::string message);

  // Where Save goes on.
  struct SaveCursor {
    std::string member;
    bool members_saved = false;
    uint64_t forgotten = 0;
  };
  // Saves some more; false: that was all. Of what changes in between, either is saved.
  bool Save(SaveCursor* cursor, state::Checkpoint* record) const;
  // Who was live is so again, and has a whole lease from `now` on. Only of one that nobody has joined, after its rule's
  // Resume.
  void Restore(const state::Checkpoint& record, absl::Time now);

  const std::map<std::string, std::shared_ptr<Member>>& members() const { return members_; }
  const std::list<Member*>& live() const { return live_; }

 private:
  absl::StatusOr<uint64_t> ChooseIncarnation(const std::string& worker, uint64_t asked, const Member* known) const;
  // Forgets whoever is gone longest; null if there is nobody to forget.
  std::shared_ptr<Member> ForgetOne();
  std::shared_ptr<Member> Forget(std::list<Member*>::iterator gone);
  void BecomeLive(Member* member);

  const std::string& model_;
  ConsistencyRule& rule_;
  const size_t max_workers_;

  std::map<std::string, std::shared_ptr<Member>> members_;
  std::list<Member*> live_;
  std::list<Member*> gone_;  // longest first
  uint64_t gone_count_ = 0;
  // The last incarnation of each forgotten name, by its hash, so that no old process passes for a new one.
  std::unordered_map<uint64_t, uint64_t> forgotten_;
  std::deque<uint64_t> forgotten_order_;
  uint64_t forgotten_dropped_ = 0;  // from the begin of that
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MEMBERSHIP_H_
