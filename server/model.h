// One model: its center, its workers, and the rules by which exchanges change the one and hold up the other.
#ifndef PARAMD_SERVER_MODEL_H_
#define PARAMD_SERVER_MODEL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "algorithms/algorithm.h"
#include "proto/paramd.pb.h"
#include "server/apply_pool.h"
#include "server/budget.h"
#include "server/center.h"
#include "server/commit_buffer.h"
#include "server/history.h"
#include "server/identity.h"
#include "server/spec.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

struct ModelOptions {
  const Clock* clock = Clock::Steady();
  absl::Duration lease = absl::Seconds(30);
  size_t max_workers = 10'000;            // that are remembered
  std::shared_ptr<ApplyPool> apply_pool;  // null: commits are applied on one thread
  Budget* budget = nullptr;               // null: nothing is counted
  std::shared_ptr<Histories> histories;   // of all models; null: this one has its own
};

// One exchange as the transport hands it over.
struct ExchangeCall {
  std::string worker;  // empty: a reader
  uint64_t incarnation = 0;
  uint64_t sequence = 0;  // with no commit half: asks again for the answer to that commit
  int64_t base_version = -1;
  uint64_t commit_floats = 0;  // 0: no commit half
  bool pull = false;
  absl::Time deadline = absl::InfiniteFuture();  // by the model's clock: how long the answer may be held up
  const void* tag = nullptr;                     // names the call for CancelWait
};

struct ExchangeAnswer {
  absl::Status status;
  bool committed = false;  // the commit is part of the center, also when `status` says that waiting ran out
  int64_t version = 0;     // of the center after the commit (sync: after its round); only if `status` is OK
  int64_t staleness = 0;
};

// A worker's lease, renewed without the model's lock. Thread-safe.
class Lease {
 public:
  void Renew(absl::Time now) { renewed_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }
  absl::Time renewed() const { return absl::FromUnixNanos(renewed_ns_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<int64_t> renewed_ns_{0};
};

// Thread-safe. Callbacks run on the thread that made them possible, never under the lock; they may call back.
//
// Status codes of workers' calls: ABORTED, a newer incarnation of the worker has joined; NOT_FOUND, the worker never
// joined, or the model was deleted; FAILED_PRECONDITION, the worker has left; UNAVAILABLE, the server is shutting down.
// Exchanges also: INVALID_ARGUMENT, the commit is malformed or not finite; FAILED_PRECONDITION, what the commit or its
// answer needs is not there (center, base, kept answer); DEADLINE_EXCEEDED, CANCELLED.
class Model {
 public:
  using Done = std::function<void(ExchangeAnswer)>;

  Model(CheckedSpec spec, ModelOptions options);
  ~Model();

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const CheckedSpec& checked_spec() const { return spec_; }
  const std::string& name() const { return spec_.spec.name(); }
  // Unique, never 0, and this model's for its life: one that is made under the same name later has another.
  uint64_t id() const { return id_; }
  uint64_t bytes() const { return spec_.floats * sizeof(float); }
  bool own_centers() const { return own_centers_; }
  bool keeps_answers() const { return answers_before_commit_; }  // until they are acknowledged
  absl::Time Now() const { return options_.clock->Now(); }

  // Makes the worker live and returns its incarnation: `incarnation`, or if that is 0 the next one. Repeated with the
  // same nonce it changes nothing. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ABORTED.
  absl::StatusOr<uint64_t> Join(const std::string& worker, uint64_t incarnation, uint64_t nonce);
  absl::Status Heartbeat(const std::string& worker, uint64_t incarnation);
  absl::Status Leave(const std::string& worker, uint64_t incarnation, const std::string& error);

  // The first center wins; the same again is OK; ALREADY_EXISTS names the difference to another one. INTERNAL if it is
  // unstable.
  absl::Status Initialize(CommitBuffer* center);
  // Shares the blocks. Only for a model that has none yet.
  void InitializeFrom(const Snapshot& center);

  // To be called before the bytes of a commit are received: checks what can be checked by now and waits until this
  // worker may commit. The answer's `committed` says that this commit was applied before: its bytes need not be kept.
  void BeginCommit(const ExchangeCall& call, Done done);

  // Applies the commit, if there is one, at most once, and answers when consistency allows this worker to go on, and
  // for a pull when there is a center. `commit` must be complete; it is consumed. Absent for a retry. It may be
  // unstable except in `sync` (INTERNAL); UNAVAILABLE if it changed meanwhile.
  void Exchange(const ExchangeCall& call, std::optional<CommitBuffer> commit, Done done);

  // The center for a call that Exchange has answered. Apart from it because a snapshot is only taken when there is
  // room for it in flight. After a commit of an elastic algorithm it is the center as it was before.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Pull(const ExchangeCall& call);

  // The answer to this sequence has arrived at the worker: it need not be kept for a retry.
  void Acknowledge(const std::string& worker, uint64_t incarnation, uint64_t sequence);

  // Ends a wait with CANCELLED, if it is still waiting.
  void CancelWait(const void* tag);

  // The lease of a live worker, null if there is none: for renewal while a commit trickles in.
  std::shared_ptr<Lease> FindLease(const std::string& worker, uint64_t incarnation);

  // Counts a commit that the transport had to refuse.
  void CountRejected(const std::string& worker, uint64_t incarnation);

  absl::Status Report(const v1::ReportHistoryRequest& request);
  // A page. INVALID_ARGUMENT: its token is not of this history.
  absl::StatusOr<v1::GetHistoryReply> ReadHistory(const v1::GetHistoryRequest& request) const;

  // Expires leases and waits. To be called every now and then.
  void Tick();

  // Answers all that wait, and all later calls, with `why`.
  void Close(absl::Status why);

  v1::ModelInfo Describe() const;
  std::shared_ptr<const Snapshot> TakeSnapshot();

 private:
  struct Member {
    std::string name;
    std::shared_ptr<Lease> lease = std::make_shared<Lease>();
    uint64_t incarnation = 0;
    uint64_t nonce = 0;
    v1::WorkerInfo::State state = v1::WorkerInfo::STATE_UNSPECIFIED;  // while it joins
    std::string message;

    uint64_t arrived = 0;  // windows whose commit has come in; `clock` follows when the exchange may end
    uint64_t clock = 0;
    uint64_t commits = 0;
    uint64_t pulls = 0;
    uint64_t rejected = 0;
    int64_t base_version = -1;
    double staleness_sum = 0;
    std::optional<uint64_t> committed_round;  // the last round it has committed in

    // The last commit, for its retries.
    uint64_t sequence = 0;
    int64_t version = 0;  // sync: known when the round is finished
    int64_t staleness = 0;
    std::shared_ptr<const Snapshot> answer;  // of the elastic family, until acknowledged

    std::shared_ptr<const Snapshot> base;  // if the algorithm needs it
  };

  struct Waiter {
    ExchangeCall call;
    bool begin = false;        // waits to commit rather than for its answer
    Member* member = nullptr;  // null: a reader
    ExchangeAnswer answer;     // as far as it is known
    Done done;
  };

  // Callbacks to run after the lock is released: declare one before the lock.
  class Deferred;

  absl::StatusOr<Member*> FindLocked(const std::string& worker, uint64_t incarnation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As FindLocked, and renews the lease; a worker whose lease had run out is live again.
  absl::StatusOr<Member*> TouchLocked(const std::string& worker, uint64_t incarnation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BecomeLiveLocked(Member* member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stops waiting for a member, and drops what is kept for it.
  void RetireLocked(Member* member, v1::WorkerInfo::State state, std::string message, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The least `arrived` of the live members; none live: the greatest number.
  uint64_t SlowestLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status CheckCommitLocked(const ExchangeCall& call, const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // INVALID_ARGUMENT that names the place, with the likely cause.
  absl::Status NonFiniteError(const std::string& worker, const CommitBuffer& commit) const;
  // Nothing has changed if it is not OK.
  absl::Status ApplyLocked(const ExchangeCall& call, Member* member, CommitBuffer* commit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Finishes the sync round if every live member has committed.
  void FinishRoundLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Not under the lock: others may have their turn now.
  Reservation CountCenter() const;

  // Whether a waiter need wait no longer; completes its answer then.
  bool ReadyLocked(Waiter* waiter, uint64_t slowest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitLocked(Waiter waiter, Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeLocked(Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitedTooLongLocked(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const CheckedSpec spec_;
  const ModelOptions options_;
  const uint64_t id_;
  const std::unique_ptr<const ServerHalf> algorithm_;
  const int state_vectors_;
  const bool needs_base_;
  const bool answers_before_commit_;
  const bool own_centers_;

  // Self-synchronized.
  const std::shared_ptr<Histories> histories_;

  mutable Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::optional<Center> center_ ABSL_GUARDED_BY(mutex_);  // once initialized
  Reservation center_room_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> initial_checksums_ ABSL_GUARDED_BY(mutex_);  // of each tensor
  std::map<std::string, std::unique_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // no lease and no wait ends before
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, 64> staleness_histogram_ ABSL_GUARDED_BY(mutex_) = {};
  double staleness_sum_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t commits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Time> first_join_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_commit_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODEL_H_
