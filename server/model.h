// One model. Its parts: who takes part (Membership), who may go on when (ConsistencyRule, Waiters), and what the model
// is made of (Ledger). This is what sessions and services talk to.
#ifndef PARAMD_SERVER_MODEL_H_
#define PARAMD_SERVER_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "algorithms/algorithm.h"
#include "proto/paramd.pb.h"
#include "server/apply_pool.h"
#include "server/budget.h"
#include "server/commit_buffer.h"
#include "server/commit_statistics.h"
#include "server/consistency.h"
#include "server/effects.h"
#include "server/history.h"
#include "server/identity.h"
#include "server/journal.h"
#include "server/ledger.h"
#include "server/membership.h"
#include "server/model_event.h"
#include "server/model_image.h"
#include "server/recorder.h"
#include "server/spec.h"
#include "server/strand.h"
#include "server/waiters.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// UNAVAILABLE: what everybody is told while the server shuts down.
absl::Status ShuttingDown();

struct ModelOptions {
  const Clock* clock = Clock::Steady();
  absl::Duration lease = absl::Seconds(30);
  size_t max_workers = 10'000;            // that are remembered
  std::shared_ptr<ApplyPool> apply_pool;  // null: commits are applied on one thread
  Budget* budget = nullptr;               // null: nothing is counted
  std::shared_ptr<Histories> histories;   // of all models; null: this one has its own
  EventSink* events = nullptr;            // null: nobody is told
  Recorder* recorder = nullptr;           // null: nothing is recorded. Outlives the model
  bool journal = false;                   // commits are recorded, too, and answered once they are on disk
  // Called on a thread that is about to be busy for long, so that another one can do what it was there for. May be
  // null.
  std::function<void()> step_aside;
  // Runs a task soon, on another thread: what a quick call has made possible and may take long. Null: the call does it.
  std::function<void(std::function<void()>)> post;
};

// Thread-safe. Callbacks run on the thread that made them possible, under no lock; they may call back. Calls without a
// callback are quick: they never wait for an apply, however long that takes. What needs the center runs on the model's
// strand, so it is answered by a callback, perhaps later and on another thread. Whoever calls keeps the model alive.
//
// It has more parts than a class should: membership, rule and waiters are told apart by their classes, but one short
// lock makes them agree.
//
// Status codes of workers' calls: ABORTED, a newer incarnation of the worker has joined, or another process as the same
// one; NOT_FOUND, the worker never joined, or the model was deleted; FAILED_PRECONDITION, the worker has left;
// UNAVAILABLE, the server is shutting down. Exchanges also: INVALID_ARGUMENT, the commit is malformed or not finite;
// FAILED_PRECONDITION, what the commit or its answer needs is not there (center, base, kept answer), or the center is
// not finite any more; UNAVAILABLE, the commit changed while it was read, or lost its turn: send it again;
// DEADLINE_EXCEEDED, CANCELLED.
//
// With a journal an exchange is answered OK once its commit is on disk. Without room there it waits; an error then says
// `committed` all the same: the center has the commit, but a daemon that ends now forgets it.
class Model : public ReservationOwner, public std::enable_shared_from_this<Model> {
 public:
  using Done = std::function<void(ExchangeAnswer)>;
  using StatusDone = std::function<void(const absl::Status&)>;

  Model(CheckedSpec spec, ModelOptions options, uint64_t id = RandomId());
  ~Model() override;

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const CheckedSpec& checked_spec() const { return spec_; }
  const std::string& name() const { return spec_.spec.name(); }
  // Unique, never 0, and this model's for its life: one that is made under the same name later has another.
  uint64_t id() const { return id_; }
  uint64_t bytes() const { return spec_.floats * sizeof(float); }
  size_t state_vectors() const { return ledger_.state_vectors(); }
  bool own_centers() const { return algorithm_->own_centers(); }
  absl::Time Now() const { return options_.clock->Now(); }

  // Makes the worker live and returns its incarnation: `incarnation`, or if that is 0 the next one. Repeated with the
  // same nonce it changes nothing. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ABORTED.
  absl::StatusOr<uint64_t> Join(const std::string& worker, uint64_t incarnation, uint64_t nonce);
  absl::Status Heartbeat(const Caller& caller);
  absl::Status Leave(const Caller& caller, const std::string& error);

  // The lease of who calls, null if it has none: for renewal while floats trickle in or out.
  std::shared_ptr<Lease> FindLease(const Caller& caller);

  // From now on the call's owner is told when its worker is gone, or, if it has none, its model. Exchanges that commit
  // or pull need no call of it.
  void Watch(const ExchangeCall& call);

  // The answer to this sequence has arrived at the worker: it need not be kept for a retry.
  void Acknowledge(const Caller& caller, uint64_t sequence);

  // Counts a commit that the transport had to refuse.
  void CountRejected(const Caller& caller, const absl::Status& why);

  absl::Status Report(const v1::ReportHistoryRequest& request);
  // `workers`: also each of them, in time proportional to their number.
  v1::ModelInfo Describe(bool workers = true) const;

  // Bytes to reserve before the floats of a commit are received, once BeginCommit has said that they may come; they go
  // to Exchange. `float_bytes`: of each as it comes; `shared`: they come in memory that is accounted for.
  uint64_t RoomToReceive(size_t float_bytes, bool shared, bool pull) const;
  // Bytes to reserve for a first center, beside which the model's own is made.
  uint64_t RoomToInitialize(uint64_t floats) const { return floats * sizeof(float) + bytes() * (1 + state_vectors()); }

  // The first center wins; the same again is OK; ALREADY_EXISTS names the difference to another one. INTERNAL if it is
  // unstable. Its floats may be followed by those of the state vectors.
  void Initialize(CommitBuffer center, Reservation room, StatusDone done, FirstPoint at = {});
  // Shares the blocks. Only for a new model, which nobody else knows yet.
  absl::Status InitializeFrom(const InitialCenter& center);
  // Of one that nobody commits to: from now on its initial center is there for other models to begin with. To be called
  // before anybody else knows the model.
  void KeepInitialCenter();
  // Empty if there is none (yet).
  std::optional<InitialCenter> initial_center() const;

  // To be called before the bytes of a commit are received: checks what can be checked by now and waits until this
  // worker may commit. The answer's `committed` says that this commit was applied before: drop its bytes.
  void BeginCommit(const ExchangeCall& call, Done done);

  // Whether it need not: nobody ever waits to commit, and Exchange checks the rest. Only for a commit that is there
  // whole.
  bool TakesAtOnce(const ExchangeCall& call) const { return takes_at_once_ && call.floats == spec_.floats; }

  // Applies the commit at most once, and answers when consistency allows this worker to go on. `commit` must be
  // complete, or absent after BeginCommit said `committed`. `room` is what RoomToReceive asked for: the model gives it
  // back, or makes it that of the answer's center.
  void Exchange(ExchangeCall call, std::optional<CommitBuffer> commit, Reservation room, Done done);

  // Waits until a pull alone may be answered, which Pull then does.
  void BeginPull(const ExchangeCall& call, Done done);

  // Waits until the answer to the commit of `call.sequence` may be given, again. At once OK and not committed if it is
  // not in the center: then it never will be; who still wants it in sends it as a later sequence.
  void Await(ExchangeCall call, Done done);

  // The center for a call that was answered OK without it, once there is room.
  void Pull(ExchangeCall call, Reservation room, Done done);

  // Ends a wait with CANCELLED, if it is still waiting.
  void CancelWait(const void* tag);

  // Everything that the model is made of at one version, but for histories, which have none; why not, after Close.
  // RESOURCE_EXHAUSTED.
  using ImageDone = std::function<void(absl::StatusOr<ModelImage>)>;
  void TakeImage(ImageDone done);
  // Adds what the workers have reported to an image's record. Takes long, and holds up nobody.
  void SaveHistories(state::Checkpoint* record) const;
  // FAILED_PRECONDITION: its algorithm is not as the one was that the image was taken of.
  absl::Status CheckImage(const ModelImage& image) const;
  // Becomes what the image says, histories too. Only for a new model, which nobody else knows yet.
  void Restore(ModelImage image);
  // Becomes what an image of it was, which has a center; members, counts and histories stay as they are now, a round
  // that is under way does not, and whoever has pulled is told to pull again. `save` is called once, with what that is,
  // and must write it to the disk; if it is not OK, nothing has changed, and nothing happens to the center meanwhile.
  using GoBackSave = std::function<absl::Status(ModelImage*)>;
  void GoBack(ModelImage to, GoBackSave save, StatusDone done);
  // Takes over what a PastOf says. Again the same changes nothing. FAILED_PRECONDITION: it has a center already;
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  absl::Status AddPast(const state::Checkpoint& past);
  SavePoint save_point() const;

  // Does again what the model once wrote to its journal, by the code that did it then. To be called for its records in
  // their order, those that it contains already left out, before anybody else knows the model. DATA_LOSS: it does not
  // follow from what came before; INVALID_ARGUMENT; RESOURCE_EXHAUSTED.
  absl::Status Replay(const state::Record& what, const LogRecord& record);

  // Leaves a record out.
  void PassOver(uint64_t position);

  // To be called once that is done: who was a member then is told to pull if he comes from a version that is not known.
  void ComeBack();

  // Expires leases and waits. To be called every now and then; what the process itself has overslept counts against
  // nobody's lease.
  void Tick(absl::Duration overslept = absl::ZeroDuration());

  // Answers all that wait, and all that would have to wait from now on, with `why`.
  void Drain(const absl::Status& why);

  // Answers all that wait, and all later calls, with `why`, and frees the center, whoever still holds the model.
  // `for_good`: its histories go, too.
  void Close(absl::Status why, bool for_good = true);

  // Gives up answers that their workers neither take nor acknowledge.
  void OnStall() override;

 private:
  // Runs it soon, on another thread if there is a way.
  void Post(std::function<void()> task);
  // `incarnation`: the member's, unless it is another one.
  void TellLocked(ModelEvent::Kind kind, const Member* member, Effects* effects, std::string reason = "",
                  std::optional<uint64_t> incarnation = std::nullopt) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Membership, with what follows for those who wait.
  absl::StatusOr<std::shared_ptr<Member>> TouchLocked(const Caller& caller, absl::Time now, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetireLocked(Member* member, v1::WorkerInfo::State state, const std::string& message, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LeftError(const Member& member) const;

  void RejectLocked(Member* member, const absl::Status& why, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // On the strand.
  void Merge(ExchangeCall call, CommitBuffer commit, Reservation room, Done done);
  void AcceptLocked(const Caller& caller, uint64_t sequence, const CommitInfo& info,
                    const std::shared_ptr<Member>& member, absl::Time now, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteInitializedLocked(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishRoundIfDue();
  // False: there is no memory for it now.
  bool FinishRound(bool replay);
  absl::Status ReplayCommit(const state::Commit& what, const LogRecord& record);
  absl::Status ReplayMemberLocked(const state::Record& what, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplayRetireLocked(const std::string& worker, v1::WorkerInfo::State state, const std::string& message,
                          Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Member>> ReplayJoinLocked(const Caller& caller, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be told when the record is on disk that was appended with this ticket.
  Journal::OnDisk OnDiskOf(uint64_t ticket);
  void OnDisk(uint64_t ticket, const absl::Status& status);
  void PostRoundIfDueLocked(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishLocked(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepAsideIfLong() const;
  void RecordLocked(state::Record record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ModelImage> TakeImageNow() const;
  absl::Status NoMemoryForImage() const;
  // What it is but for its center. On the strand.
  state::Checkpoint SaveRecord(const std::optional<Image>& image, const SavePoint& at) const;
  SavePoint SavePointLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Answers the waiter if it need not wait (any more), else lets it wait.
  void SettleLocked(Waiter waiter, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the record that must be on disk before it is answered.
  uint64_t TicketLocked(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompleteLocked(Waiter* waiter, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleAllLocked(Waiters::List waiters, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeLocked(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchLocked(Member* member, const ExchangeCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who calls has the center from now on. `member`: null for a reader.
  void NotePulledLocked(Member* member, const ExchangeCall& call, const std::shared_ptr<const Snapshot>& center,
                        Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `behind`: who is waited for, of those waiters that were asked about before.
  absl::Status WaitedTooLongLocked(const Waiter& waiter, std::map<uint64_t, std::string>* behind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeasesLocked(absl::Time now, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::WorkerInfo DescribeMemberLocked(const Member& member, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const CheckedSpec spec_;
  const ModelOptions options_;
  const uint64_t id_;
  const std::unique_ptr<const ServerHalf> algorithm_;
  const bool keeps_answers_;  // of commits, until they are acknowledged
  const bool needs_base_;
  const bool rounds_;
  const bool takes_at_once_;
  const EffectsTargets targets_;
  const Journal journal_;

  // Self-synchronized.
  Strand strand_;

  // Of the strand.
  Ledger ledger_;
  absl::Duration last_merge_ = absl::InfiniteDuration();  // how long it took
  uint64_t tickets_ = 0;                                  // of records that were appended to the journal

  mutable Mutex mutex_;
  absl::Status draining_ ABSL_GUARDED_BY(mutex_);  // not OK: why nobody may wait any more
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<ConsistencyRule> rule_ ABSL_GUARDED_BY(mutex_);
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  Waiters waiters_ ABSL_GUARDED_BY(mutex_);
  ExchangesUnderWay of_nobody_ ABSL_GUARDED_BY(mutex_);  // of readers, and of who was gone already
  LedgerState state_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // of what an image has
  bool keeps_initial_center_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<InitialCenter> initial_center_ ABSL_GUARDED_BY(mutex_);
  CommitStatistics statistics_ ABSL_GUARDED_BY(mutex_);
  // Whose answer gets its version when the round ends, and which sequence.
  std::vector<std::pair<std::shared_ptr<Member>, uint64_t>> round_ ABSL_GUARDED_BY(mutex_);
  bool round_overdue_ ABSL_GUARDED_BY(mutex_) = false;  // there was no memory to finish it: it is tried again
  uint64_t log_position_ ABSL_GUARDED_BY(mutex_) = 0;   // of the model's last record
  uint64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;       // of its last one that is no commit's
  uint64_t on_disk_ ABSL_GUARDED_BY(mutex_) = 0;        // the last ticket whose record is
  uint64_t initialized_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<StatusDone> initializing_ ABSL_GUARDED_BY(mutex_);                // wait for it
  absl::Time next_lease_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // none ends before
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODEL_H_
