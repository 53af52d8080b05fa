#include "server/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "server/commit_check.h"

namespace paramd {
namespace {

// A model of so many floats takes as long to apply a commit as it takes to wake a thread several times over; and so
// does any whose last merge took so long.
constexpr size_t kLongFloats = kBlockFloats;
constexpr absl::Duration kLong = absl::Milliseconds(1);
// Of one report.
constexpr int kMaxReportRecords = 10'000;
// That are described without a break.
constexpr size_t kDescribedMembers = 256;

}  // namespace

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down; try again when it is back"); }

Model::Model(CheckedSpec spec, ModelOptions options, uint64_t id)
    : spec_(std::move(spec)),
      options_(std::move(options)),
      id_(id),
      algorithm_(spec_.algorithm->make_server(spec_.hyperparameters)),
      keeps_answers_(algorithm_->answers_before_commit()),
      needs_base_(algorithm_->needs_base()),
      rounds_(spec_.consistency.mode == Consistency::kSync),
      takes_at_once_(spec_.consistency.mode == Consistency::kAsync && !keeps_answers_),
      targets_{.model_id = id_,
               .events = options_.events,
               .histories = options_.histories != nullptr ? options_.histories : std::make_shared<Histories>(),
               .post = [this](std::function<void()> task) { Post(std::move(task)); }},
      journal_(options_.journal ? options_.recorder : nullptr, id_),
      ledger_(&spec_, algorithm_.get(), rounds_, options_.apply_pool, options_.budget),
      rule_(MakeRule(spec_.consistency, keeps_answers_)),
      membership_(&spec_.spec.name(), rule_.get(), options_.max_workers) {}

Model::~Model() { Close(ShuttingDown()); }

void Model::Post(std::function<void()> task) {
  // Not from the destructor.
  if (auto self = weak_from_this().lock(); self != nullptr && options_.post) {
    options_.post([self = std::move(self), task = std::move(task)] { task(); });
  } else {
    task();
  }
}

void Model::TellLocked(ModelEvent::Kind kind, const Member* member, Effects* effects, std::string reason,
                       std::optional<uint64_t> incarnation) const {
  if (!targets_.Wants(kind)) return;
  ModelEvent event{
      .kind = kind, .model = name(), .model_id = id_, .version = state_.version, .reason = std::move(reason)};
  if (member != nullptr) {
    event.worker = member->record.name;
    event.incarnation = incarnation.value_or(member->record.incarnation);
  }
  effects->Tell(std::move(event));
}

// ---------------------------------------------------------------------------------------------------------------------
// Members

absl::StatusOr<uint64_t> Model::Join(const std::string& worker, uint64_t incarnation, uint64_t nonce) {
  Effects effects(&targets_, /*quick=*/true);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  auto joined = membership_.Join(worker, incarnation, nonce, Now());
  if (!joined.ok()) return joined.status();
  const Member& member = *joined->member;
  next_lease_end_ = std::min(next_lease_end_, Now() + options_.lease);
  statistics_.CountJoin(Now());
  if (joined->repeated) return member.record.incarnation;
  ++changes_;
  if (options_.recorder != nullptr) {
    state::Record record;
    state::Joined* const what = record.mutable_joined();
    what->set_worker(worker);
    what->set_incarnation(member.record.incarnation);
    what->set_nonce(nonce);
    if (joined->forgotten != nullptr) what->set_forgotten(joined->forgotten->record.name);
    RecordLocked(std::move(record));
  }

  if (joined->forgotten != nullptr) {
    effects.Forget(joined->forgotten->record.name);
    SettleAllLocked(waiters_.TakeOf(joined->forgotten.get()), &effects);
  }
  const absl::Status fenced = membership_.Check(member, {.worker = worker, .incarnation = joined->fenced, .nonce = 0});
  for (MemberSession& session : joined->dropped) effects.Drop(std::move(session), fenced);
  SettleAllLocked(waiters_.TakeOf(&member), &effects);
  if (joined->fenced != 0) {
    TellLocked(ModelEvent::Kind::kFenced, &member, &effects,
               absl::StrCat("incarnation ", member.record.incarnation, " has joined"), joined->fenced);
  }
  TellLocked(ModelEvent::Kind::kJoined, &member, &effects);
  WakeLocked(&effects);
  return member.record.incarnation;
}

absl::StatusOr<std::shared_ptr<Member>> Model::TouchLocked(const Caller& caller, absl::Time now, Effects* effects) {
  if (!closed_.ok()) return closed_;
  auto member = membership_.Find(caller);
  if (!member.ok()) return member;
  if ((*member)->left()) return LeftError(**member);
  if (membership_.Touch(member->get(), now)) {
    next_lease_end_ = std::min(next_lease_end_, now + options_.lease);
    if (options_.recorder != nullptr) {
      state::Record record;
      record.mutable_returned()->set_worker(caller.worker);
      RecordLocked(std::move(record));
    }
    TellLocked(ModelEvent::Kind::kReturned, member->get(), effects);
  }
  return member;
}

absl::Status Model::LeftError(const Member& member) const {
  return absl::FailedPreconditionError(
      absl::StrCat("worker '", member.record.name, "' has left model '", name(), "'; join again to go on"));
}

void Model::RetireLocked(Member* member, v1::WorkerInfo::State state, const std::string& message, Effects* effects) {
  const absl::Status why =
      state == v1::WorkerInfo::EXPIRED
          ? absl::UnavailableError(absl::StrCat("the lease of worker '", member->record.name, "' of model '", name(),
                                                "' ran out while its commit was received; send it again"))
          : LeftError(*member);
  ++changes_;
  effects->Drop(membership_.Retire(member, state, message), why);
  effects->Leave(member->record.name);
  // Who has only lost its lease goes on waiting.
  if (member->left()) SettleAllLocked(waiters_.TakeOf(member), effects);
  WakeLocked(effects);
  PostRoundIfDueLocked(effects);
}

absl::Status Model::Heartbeat(const Caller& caller) {
  Effects effects(&targets_, /*quick=*/true);
  MutexLock lock(&mutex_);
  return TouchLocked(caller, Now(), &effects).status();
}

absl::Status Model::Leave(const Caller& caller, const std::string& error) {
  Effects effects(&targets_, /*quick=*/true);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  const auto member = membership_.Find(caller);
  if (!member.ok()) return member.status();
  if ((*member)->left()) return absl::OkStatus();
  const std::string message = Shortened(error, kMaxLastWords);
  TellLocked(ModelEvent::Kind::kLeft, member->get(), &effects, message);
  if (options_.recorder != nullptr) {
    state::Record record;
    state::Left* const what = record.mutable_left();
    what->set_worker(caller.worker);
    what->set_incarnation(caller.incarnation);
    what->set_nonce(caller.nonce);
    what->set_error(Repaired(message));
    RecordLocked(std::move(record));
  }
  RetireLocked(member->get(), error.empty() ? v1::WorkerInfo::LEFT : v1::WorkerInfo::FAILED, message, &effects);
  return absl::OkStatus();
}

std::shared_ptr<Lease> Model::FindLease(const Caller& caller) {
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return nullptr;
  const auto member = membership_.Find(caller);
  return member.ok() && (*member)->live() ? (*member)->session.lease : nullptr;
}

void Model::Watch(const ExchangeCall& call) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  const auto member = membership_.Find(call.caller);
  WatchLocked(member.ok() ? member->get() : nullptr, call);
  if (!closed_.ok()) effects.Gone(of_nobody_, closed_);
}

void Model::WatchLocked(Member* member, const ExchangeCall& call) {
  ExchangesUnderWay& under_way =
      member != nullptr && member->live() && closed_.ok() ? member->session.under_way : of_nobody_;
  under_way.Add(call.owner);
}

void Model::Acknowledge(const Caller& caller, uint64_t sequence) {
  Effects effects(&targets_, /*quick=*/true);
  MutexLock lock(&mutex_);
  const auto member = TouchLocked(caller, Now(), &effects);
  if (!member.ok() || (*member)->record.last.sequence != sequence) return;
  std::shared_ptr<const HeldCenter> answer = std::exchange((*member)->session.answer, nullptr);
  if (answer != nullptr && journal_.writes()) log_position_ = journal_.AppendAcknowledged(caller, sequence);
  effects.Drop(std::move(answer));
}

void Model::OnStall() {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  for (Member* member : membership_.live()) {
    std::shared_ptr<const HeldCenter>& answer = member->session.answer;
    if (answer == nullptr || !answer->room.Stalled() || member->record.last.ticket > on_disk_) continue;
    TellLocked(ModelEvent::Kind::kStalled, member, &effects, "its last answer was never acknowledged");
    if (journal_.writes()) {
      const MemberRecord& of = member->record;
      log_position_ = std::max(
          log_position_, journal_.AppendAcknowledged(
                             {.worker = of.name, .incarnation = of.incarnation, .nonce = of.nonce}, of.last.sequence));
    }
    effects.Drop(std::exchange(answer, nullptr));
  }
}

void Model::CountRejected(const Caller& caller, const absl::Status& why) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  const auto member = membership_.Find(caller);
  RejectLocked(member.ok() ? member->get() : nullptr, why, &effects);
}

void Model::RejectLocked(Member* member, const absl::Status& why, Effects* effects) {
  if (IsPullAgain(why)) return;  // nothing was wrong with it
  statistics_.CountRejected();
  if (member != nullptr) ++member->record.rejected;
  TellLocked(ModelEvent::Kind::kRejected, member, effects, std::string(why.message()));
}

void Model::ExpireLeasesLocked(absl::Time now, Effects* effects) {
  if (now < next_lease_end_) return;
  next_lease_end_ = absl::InfiniteFuture();
  std::vector<Member*> expired;
  for (Member* member : membership_.live()) {
    const absl::Time end = member->session.lease->renewed() + options_.lease;
    end < now ? expired.push_back(member) : void(next_lease_end_ = std::min(next_lease_end_, end));
  }
  const std::string why = absl::StrCat("no sign of life for ", absl::FormatDuration(options_.lease));
  for (Member* member : expired) {
    if (options_.recorder != nullptr) {
      state::Record record;
      record.mutable_expired()->set_worker(member->record.name);
      RecordLocked(std::move(record));
    }
    TellLocked(ModelEvent::Kind::kExpired, member, effects, why);
    RetireLocked(member, v1::WorkerInfo::EXPIRED, why, effects);
  }
}

void Model::Tick(absl::Duration overslept) {
  Effects effects(&targets_, /*quick=*/true);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return;
  const absl::Time now = Now();
  if (overslept > absl::ZeroDuration()) {
    for (const Member* member : membership_.live()) {
      Lease& lease = *member->session.lease;
      lease.Renew(std::min(now, lease.renewed() + overslept));
    }
  }
  ExpireLeasesLocked(now, &effects);
  if (round_overdue_) PostRoundIfDueLocked(&effects);
  std::map<uint64_t, std::string> behind;
  for (Waiter& waiter : waiters_.TakeDue(now)) {
    waiter.answer.status = WaitedTooLongLocked(waiter, &behind);
    effects.Answer(std::move(waiter.done), std::move(waiter.answer));
  }
}

void Model::Drain(const absl::Status& why) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  draining_ = why;
  SettleAllLocked(waiters_.TakeAll(), &effects);
}

void Model::Close(absl::Status why, bool for_good) {
  std::optional<InitialCenter> initial;
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return;
  closed_ = std::move(why);
  initial = std::exchange(initial_center_, std::nullopt);
  SettleAllLocked(waiters_.TakeAll(), &effects);
  for (const auto& [worker, member] : membership_.members()) {
    effects.Drop(std::exchange(member->session, {}), closed_);
  }
  effects.Gone(of_nobody_, closed_);
  effects.Post([this, for_good] {
    strand_.Run([this, for_good] {
      StepAsideIfLong();
      ledger_.Free();
      if (for_good) targets_.histories->ForgetModel(id_);
      MutexLock relock(&mutex_);
      state_ = {};
    });
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// The center

uint64_t Model::RoomToReceive(size_t float_bytes, bool shared, bool pull) const {
  if (journal_.writes()) {
    // What comes stays until it is on disk: as it came, or a copy that its sender can't change. The center is pinned
    // then, but for what is answered with the one before.
    const uint64_t other = needs_base_ || (keeps_answers_ && pull && !rounds_) ? bytes() : 0;
    return other + (shared ? bytes() : spec_.floats * float_bytes);
  }
  // Shared floats are there already, but go to fresh blocks, or to a copy that their sender can't change.
  if (shared) return bytes();
  // What is pulled is pinned as float32, whatever it is sent as.
  return pull && !rounds_ ? bytes() : spec_.floats * float_bytes;
}

void Model::Initialize(CommitBuffer center, Reservation room, StatusDone done, FirstPoint at) {
  strand_.Run([this, at, center = std::move(center), room = std::move(room), done = std::move(done)]() mutable {
    StepAsideIfLong();
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      status = closed_;
    }
    LogPayload payload;
    if (status.ok()) {
      if (journal_.writes()) payload = PayloadOf(center, std::move(room));
      const auto first = ledger_.Initialize(&center, at);
      status = first.status();
      if (journal_.writes() && first.ok() && *first) {
        const uint64_t position = journal_.AppendInitialized(at, std::move(payload), OnDiskOf(++tickets_));
        MutexLock lock(&mutex_);
        log_position_ = std::max(log_position_, position);
        initialized_ticket_ = tickets_;
      }
      Effects effects(&targets_);
      MutexLock lock(&mutex_);
      if (first.ok() && *first) NoteInitializedLocked(&effects);
      if (status.ok() && initialized_ticket_ > on_disk_) return initializing_.push_back(std::move(done));
    }
    payload = {};
    room.Release();
    if (status.ok() && options_.recorder != nullptr) {
      options_.recorder->AwaitDurable(shared_from_this(), std::move(done));
    } else {
      done(status);
    }
  });
}

void Model::NoteInitializedLocked(Effects* effects) {
  PublishLocked(effects);
  if (keeps_initial_center_ && closed_.ok()) initial_center_ = ledger_.Initial();
  TellLocked(ModelEvent::Kind::kInitialized, nullptr, effects);
  SettleAllLocked(waiters_.TakeForCenter(), effects);
}

absl::Status Model::InitializeFrom(const InitialCenter& center) {
  absl::Status status;
  strand_.Run([&] {
    status = ledger_.InitializeFrom(center);
    if (!status.ok()) return;
    // Whoever commits to it waits for that.
    uint64_t position = 0;
    if (journal_.writes()) position = journal_.AppendInitialized({}, PayloadOf(center.snapshot), nullptr);
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    log_position_ = std::max(log_position_, position);
    PublishLocked(&effects);
    TellLocked(ModelEvent::Kind::kInitialized, nullptr, &effects);
  });
  return status;
}

void Model::KeepInitialCenter() {
  MutexLock lock(&mutex_);
  keeps_initial_center_ = true;
}

std::optional<InitialCenter> Model::initial_center() const {
  MutexLock lock(&mutex_);
  return initial_center_;
}

void Model::StepAsideIfLong() const {
  if (options_.step_aside && (spec_.floats >= kLongFloats || last_merge_ > kLong)) options_.step_aside();
}

void Model::PublishLocked(Effects* effects) {
  const bool had_problem = !state_.problem.ok();
  state_ = ledger_.state();
  ++changes_;
  if (had_problem || state_.problem.ok()) return;
  TellLocked(ModelEvent::Kind::kDiverged, nullptr, effects, std::string(state_.problem.message()));
  SettleAllLocked(waiters_.TakeAll(), effects);
}

// ---------------------------------------------------------------------------------------------------------------------
// Exchanges

void Model::BeginCommit(const ExchangeCall& call, Done done) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  const auto member = TouchLocked(call.caller, Now(), &effects);
  absl::Status status = member.status();
  if (status.ok()) {
    status = CheckCommit(spec_, state_, needs_base_, **member, call);
    if (!status.ok()) RejectLocked(member->get(), status, &effects);
  }
  if (!status.ok()) return effects.Answer(std::move(done), {.status = status});
  MemberRecord& record = (*member)->record;
  if (call.sequence != record.last.sequence) {
    // A worker that goes on has done with the answer before, whose room it may need.
    effects.Drop(std::exchange((*member)->session.answer, nullptr));
    rule_->Arrive(&record.standing, call.sequence);
  }
  SettleLocked({.call = call, .begin = true, .member = *member, .done = std::move(done)}, &effects);
  WakeLocked(&effects);
}

void Model::Exchange(ExchangeCall call, std::optional<CommitBuffer> commit, Reservation room, Done done) {
  if (!commit.has_value()) {
    room.Release();
    return Await(std::move(call), std::move(done));
  }
  if ((rounds_ || journal_.writes()) && commit->unstable()) {
    StepAsideIfLong();
    if (auto status = commit->MakeStable(); !status.ok()) {
      CountRejected(call.caller, status);
      return done({.status = status});
    }
  }
  strand_.Run([this, call = std::move(call), commit = *std::move(commit), room = std::move(room),
               done = std::move(done)]() mutable {
    Merge(std::move(call), std::move(commit), std::move(room), std::move(done));
    if (rounds_) FinishRoundIfDue();
  });
}

void Model::Merge(ExchangeCall call, CommitBuffer commit, Reservation room, Done done) {
  std::shared_ptr<Member> member;
  std::shared_ptr<const HeldCenter> base;
  CommitInfo info;
  absl::Time begun;
  {
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    begun = Now();
    const auto touched = TouchLocked(call.caller, begun, &effects);
    if (!touched.ok()) return effects.Answer(std::move(done), {.status = touched.status()});
    member = *touched;
    member->session.under_way.Remove(call.owner);
    if (call.sequence != 0 && call.sequence == member->record.last.sequence) {
      // A retry whose floats came after all.
      const int64_t staleness = member->record.last.staleness;
      return SettleLocked({.call = std::move(call),
                           .member = std::move(member),
                           .answer = {.committed = true, .staleness = staleness},
                           .done = std::move(done)},
                          &effects);
    }
    absl::Status status = CheckCommit(spec_, state_, needs_base_, *member, call);
    if (status.ok() && commit.first_non_finite() >= 0) status = NonFiniteError(spec_, call.caller.worker, commit);
    if (!status.ok()) {
      RejectLocked(member.get(), status, &effects);
      return effects.Answer(std::move(done), {.status = status});
    }
    Standing* const standing = &member->record.standing;
    rule_->Arrive(standing, call.sequence);
    WakeLocked(&effects);
    if (rule_->CommitsFrom(*standing) > rule_->progress()) {
      return effects.Answer(
          std::move(done),
          {.status = absl::UnavailableError(absl::StrCat("worker '", call.caller.worker, "' of model '", name(),
                                                         "' lost its turn while its commit came in (consistency ",
                                                         spec_.spec.consistency(), "); send it again"))});
    }
    base = member->session.base;
    // Who has not pulled can have begun with the first center only.
    const int64_t begun_with = std::max<int64_t>(call.base_version, state_.first_version);
    info = {.version = state_.version, .base_version = begun_with, .staleness = state_.version - begun_with};
  }

  StepAsideIfLong();
  const v1::Encoding encoding = commit.encoding();
  const bool contribution = journal_.writes() && needs_base_;
  const Snapshot* const base_center = base == nullptr ? nullptr : base->snapshot.get();
  absl::Status merged;
  if (contribution) merged = ledger_.MakeContribution(info, &commit, base_center);
  LogPayload floats;
  if (journal_.writes()) floats = PayloadOf(commit, room.Split(commit.bytes()));
  std::shared_ptr<const HeldCenter> center;
  if (keeps_answers_ && call.pull) {
    room.SetOwner(weak_from_this());
    center = rounds_ ? ledger_.BeforeRound()
                     : std::make_shared<const HeldCenter>(
                           HeldCenter{.snapshot = ledger_.TakeSnapshot(), .room = std::move(room)});
  }
  if (merged.ok()) {
    merged = contribution ? ledger_.MergeContribution(info, &commit) : ledger_.Merge(info, &commit, base_center);
  }
  if (commit.first_non_finite() >= 0) merged = NonFiniteError(spec_, call.caller.worker, commit);
  uint64_t position = 0;
  if (journal_.writes() && merged.ok()) {
    position = journal_.AppendCommit(call, info, contribution ? v1::FLOAT32 : encoding, contribution, std::move(floats),
                                     OnDiskOf(++tickets_));
  }
  // Until it is on disk nobody needs it.
  if (merged.ok() && call.pull && !keeps_answers_ && !rounds_ && !journal_.writes() && !room.empty()) {
    center =
        std::make_shared<const HeldCenter>(HeldCenter{.snapshot = ledger_.TakeSnapshot(), .room = std::move(room)});
  }
  floats = {};
  room.Release();
  const absl::Time ended = Now();
  last_merge_ = ended - begun;

  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  log_position_ = std::max(log_position_, position);
  PublishLocked(&effects);
  if (!merged.ok()) {
    RejectLocked(member.get(), merged, &effects);
    effects.Drop(std::move(center));
    return effects.Answer(std::move(done), {.status = merged});
  }
  // Another incarnation may have joined meanwhile: the commit counts, but is not its last one.
  const bool present = membership_.Check(*member, call.caller).ok();
  AcceptLocked(call.caller, call.sequence, info, member, ended, &effects);
  if (present && journal_.writes()) member->record.last.ticket = tickets_;
  // Who has to wait for others must not keep room that they need for their commits.
  if (!keeps_answers_ && rule_->AnsweredFrom(member->record.standing) > rule_->progress()) {
    effects.Drop(std::exchange(center, nullptr));
  }
  if (keeps_answers_ && closed_.ok() && member->live() && present) {
    effects.Drop(std::exchange(member->session.answer, center));
  }
  SettleLocked({.call = std::move(call),
                .member = std::move(member),
                .answer = {.committed = true, .staleness = info.staleness, .center = std::move(center)},
                .done = std::move(done)},
               &effects);
  WakeLocked(&effects);
}

void Model::AcceptLocked(const Caller& caller, uint64_t sequence, const CommitInfo& info,
                         const std::shared_ptr<Member>& member, absl::Time now, Effects* effects) {
  MemberRecord& record = member->record;
  rule_->Accept(&record.standing);
  if (membership_.Check(*member, caller).ok()) {
    record.last.sequence = sequence;
    record.last.version = state_.version;
    record.last.staleness = info.staleness;
    if (rounds_) round_.emplace_back(member, sequence);
  }
  ++record.commits;
  record.staleness_sum += static_cast<double>(info.staleness);
  statistics_.CountCommit(info.staleness, now);
  TellLocked(ModelEvent::Kind::kCommitted, member.get(), effects);
}

void Model::FinishRoundIfDue() {
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok() || !state_.problem.ok() || !rule_->RoundDue()) return;
  }
  StepAsideIfLong();
  const absl::Time begun = Now();
  const bool finished = FinishRound(/*replay=*/false);
  last_merge_ = std::max(last_merge_, Now() - begun);
  MutexLock lock(&mutex_);
  round_overdue_ = !finished;
}

bool Model::FinishRound(bool replay) {
  if (!ledger_.FinishRound()) return false;
  const int64_t version = ledger_.version();
  const bool writes = journal_.writes() && !replay;
  uint64_t position = 0;
  if (writes) position = journal_.AppendRoundEnd(version, OnDiskOf(++tickets_));
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  log_position_ = std::max(log_position_, position);
  rule_->EndRound();
  for (const auto& [member, sequence] : round_) {
    LastCommit& last = member->record.last;
    if (last.sequence != sequence) continue;
    last.version = version;
    if (writes) last.ticket = tickets_;
  }
  round_.clear();
  PublishLocked(&effects);
  WakeLocked(&effects);
  return true;
}

void Model::PostRoundIfDueLocked(Effects* effects) {
  if (rule_->RoundDue()) effects->Post([this] { strand_.Run([this] { FinishRoundIfDue(); }); });
}

void Model::BeginPull(const ExchangeCall& call, Done done) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  Waiter waiter{.call = call, .done = std::move(done)};
  waiter.call.sequence = 0;
  waiter.call.pull = true;
  if (!call.caller.worker.empty()) {
    auto member = TouchLocked(call.caller, Now(), &effects);
    if (!member.ok()) return effects.Answer(std::move(waiter.done), {.status = member.status()});
    waiter.member = *std::move(member);
  }
  SettleLocked(std::move(waiter), &effects);
}

void Model::Await(ExchangeCall call, Done done) {
  // On the strand, where the commit may still be: it was given to the model before.
  strand_.Run([this, call = std::move(call), done = std::move(done)]() mutable {
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    auto member = TouchLocked(call.caller, Now(), &effects);
    if (!member.ok()) return effects.Answer(std::move(done), {.status = member.status()});
    LastCommit& last = (*member)->record.last;
    if (call.sequence == 0 || call.sequence < last.sequence) {
      return effects.Answer(std::move(done), {.status = absl::FailedPreconditionError(absl::StrCat(
                                                  "worker '", call.caller.worker, "' asks for the answer to commit ",
                                                  call.sequence, ", but its last commit is ", last.sequence))});
    }
    if (call.sequence > last.sequence) {
      last.closed_sequence = std::max(last.closed_sequence, call.sequence);
      return effects.Answer(std::move(done), {.version = state_.version});
    }
    // Who does not want the center has no use for the one that is kept.
    if (!call.pull) effects.Drop(std::exchange((*member)->session.answer, nullptr));
    SettleLocked({.call = std::move(call),
                  .member = *std::move(member),
                  .answer = {.committed = true, .staleness = last.staleness},
                  .done = std::move(done)},
                 &effects);
  });
}

void Model::Pull(ExchangeCall call, Reservation room, Done done) {
  strand_.Run([this, call = std::move(call), room = std::move(room), done = std::move(done)]() mutable {
    const std::shared_ptr<const Snapshot> snapshot =
        call.state ? ledger_.TakeSnapshotWithState() : ledger_.TakeSnapshot();
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    ExchangeAnswer answer{.status = closed_, .committed = call.sequence != 0};
    Member* puller = nullptr;
    if (answer.status.ok() && !call.caller.worker.empty()) {
      const auto member = membership_.Find(call.caller);
      answer.status = member.status();
      if (answer.status.ok() && (*member)->left()) answer.status = LeftError(**member);
      // Its process may never read what would keep others waiting; if it lives, it asks again.
      if (answer.status.ok() && !(*member)->live()) {
        answer.status =
            absl::UnavailableError(absl::StrCat("the lease of worker '", call.caller.worker, "' of model '", name(),
                                                "' ran out while its pull waited for room; pull again"));
      }
      if (answer.status.ok()) answer.status = state_.problem;
      if (answer.status.ok() && call.sequence != 0 && call.sequence != (*member)->record.last.sequence) {
        answer.status = absl::FailedPreconditionError(
            absl::StrCat("worker '", call.caller.worker, "' has committed again, so the answer to its commit ",
                         call.sequence, " is of no use to it any more"));
      }
      if (answer.status.ok()) {
        if (call.sequence != 0) answer.staleness = (*member)->record.last.staleness;
        puller = member->get();
      }
    }
    if (answer.status.ok()) {
      NotePulledLocked(puller, call, snapshot, &effects);
      answer.version = snapshot->version;
      answer.center = std::make_shared<const HeldCenter>(HeldCenter{.snapshot = snapshot, .room = std::move(room)});
    }
    effects.Answer(std::move(done), std::move(answer));
  });
}

void Model::NotePulledLocked(Member* member, const ExchangeCall& call, const std::shared_ptr<const Snapshot>& center,
                             Effects* effects) {
  WatchLocked(member, call);
  if (member == nullptr) return;
  ++member->record.pulls;
  member->record.last.base_version = center->version;
  member->record.last.came_back_at.reset();
  // Nothing is kept for who is gone.
  if (!needs_base_ || !member->live()) return;
  HeldCenter base{.snapshot = center};
  if (options_.budget != nullptr) base.room = options_.budget->Count(BudgetKind::kBases, bytes());
  effects->Drop(std::exchange(member->session.base, std::make_shared<const HeldCenter>(std::move(base))));
}

// ---------------------------------------------------------------------------------------------------------------------
// Waiting

void Model::SettleLocked(Waiter waiter, Effects* effects) {
  const ExchangeCall& call = waiter.call;
  absl::Status status = closed_;
  uint64_t needed = 0;
  if (status.ok() && waiter.member != nullptr) {
    const Member& member = *waiter.member;
    status = membership_.Check(member, call.caller);
    if (status.ok() && member.left()) status = LeftError(member);
    if (waiter.begin && call.sequence == member.record.last.sequence) {
      waiter.answer.committed = true;
    } else {
      if (status.ok()) status = state_.problem;
      if (status.ok() && waiter.begin) {
        status = CheckCommit(spec_, state_, needs_base_, member, call);
        if (!status.ok()) RejectLocked(waiter.member.get(), status, effects);
      }
      needed = waiter.begin ? rule_->CommitsFrom(member.record.standing) : rule_->AnsweredFrom(member.record.standing);
    }
  }
  if (status.ok() && call.cancelled != nullptr && *call.cancelled) {
    status = absl::CancelledError("the exchange was cancelled");
  }
  const bool lacks_center = call.pull && !waiter.begin && !state_.initialized;
  if (status.ok() && (needed > rule_->progress() || lacks_center)) status = draining_;
  if (status.ok()) {
    if (needed > rule_->progress()) return waiters_.AwaitProgress(needed, std::move(waiter));
    if (lacks_center) return waiters_.AwaitCenter(std::move(waiter));
    if (const uint64_t ticket = TicketLocked(waiter); ticket > on_disk_) {
      return waiters_.AwaitDisk(ticket, std::move(waiter));
    }
    if (!waiter.begin) {
      CompleteLocked(&waiter, effects);
    } else if (!waiter.answer.committed) {
      WatchLocked(waiter.member.get(), call);
    }
  } else {
    waiter.answer.status = std::move(status);
  }
  effects->Answer(std::move(waiter.done), std::move(waiter.answer));
}

uint64_t Model::TicketLocked(const Waiter& waiter) const {
  if (waiter.begin || waiter.call.sequence == 0 || waiter.member == nullptr) return 0;
  return waiter.member->record.last.ticket;
}

void Model::CompleteLocked(Waiter* waiter, Effects* effects) {
  const ExchangeCall& call = waiter->call;
  ExchangeAnswer& answer = waiter->answer;
  answer.version = state_.version;
  if (waiter->member == nullptr || call.sequence == 0) return;
  Member* const member = waiter->member.get();
  const bool is_last = member->record.last.sequence == call.sequence;
  if (is_last) answer.version = member->record.last.version;
  if (!call.pull) return;
  if (keeps_answers_) {
    if (answer.center == nullptr && is_last) answer.center = member->session.answer;
    if (answer.center == nullptr) {
      const std::string lost =
          absl::StrCat("the answer to commit ", call.sequence, " of worker '", member->record.name,
                       "' is no longer held: it was acknowledged, the lease ran out, or the server "
                       "came back from disk; pull instead");
      answer.status =
          member->record.last.came_back_at.has_value() ? PullAgain(lost) : absl::FailedPreconditionError(lost);
      return;
    }
    answer.acknowledge = answer.center == member->session.answer;
    answer.center->room.Progress();
  }
  if (answer.center == nullptr) return;
  answer.version = answer.center->snapshot->version;
  NotePulledLocked(member, call, answer.center->snapshot, effects);
}

void Model::SettleAllLocked(Waiters::List waiters, Effects* effects) {
  for (Waiter& waiter : waiters) SettleLocked(std::move(waiter), effects);
}

void Model::WakeLocked(Effects* effects) { SettleAllLocked(waiters_.TakeUpTo(rule_->progress()), effects); }

absl::Status Model::WaitedTooLongLocked(const Waiter& waiter, std::map<uint64_t, std::string>* behind) const {
  if (!state_.initialized) {
    return absl::DeadlineExceededError(absl::StrCat("model '", name(),
                                                    "' has no center yet; initialize it with a "
                                                    "worker or `paramctl create --from`"));
  }
  const Standing& standing = waiter.member->record.standing;
  if (TicketLocked(waiter) > on_disk_ && rule_->AnsweredFrom(standing) <= rule_->progress()) {
    const absl::Status problem = options_.recorder->log()->state().problem;
    return absl::DeadlineExceededError(
        absl::StrCat("commit ", waiter.call.sequence, " of worker '", waiter.call.caller.worker, "' to model '", name(),
                     "' is in the center, but not on disk yet",
                     problem.ok() ? ", which is slow" : absl::StrCat(": ", problem.message())));
  }
  const auto [known, is_new] = behind->try_emplace(rule_->CommitsFrom(standing));
  std::string& names = known->second;
  if (is_new) {
    for (const Member* member : membership_.live()) {
      if (!rule_->HoldsUp(member->record.standing, standing)) continue;
      absl::StrAppend(&names, names.empty() ? "" : ", ", "'", member->record.name, "' (clock ",
                      rule_->Clock(member->record.standing), ")");
      if (names.size() > 200) {
        names += ", ...";
        break;
      }
    }
  }
  return absl::DeadlineExceededError(absl::StrCat("worker '", waiter.call.caller.worker, "' of model '", name(),
                                                  "' waits for ", names.empty() ? "other workers" : names,
                                                  " (consistency ", spec_.spec.consistency(), ")"));
}

void Model::CancelWait(const void* tag) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  for (Waiter& waiter : waiters_.TakeTagged(tag)) {
    waiter.answer.status = absl::CancelledError("the exchange was cancelled");
    effects.Answer(std::move(waiter.done), std::move(waiter.answer));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

absl::Status Model::Report(const v1::ReportHistoryRequest& request) {
  if (request.records_size() > kMaxReportRecords) {
    return absl::InvalidArgumentError(absl::StrCat("a report of worker '", request.participant().worker(), "' has ",
                                                   request.records_size(), " records; send at most ", kMaxReportRecords,
                                                   " in one"));
  }
  {
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    if (auto member = TouchLocked(CallerOf(request.participant()), Now(), &effects); !member.ok())
      return member.status();
  }
  const absl::Status status = targets_.histories->Report(id_, request);
  // Whoever is gone by now may have been forgotten before.
  absl::Status closed;
  absl::Status found;
  bool live = false;
  {
    MutexLock lock(&mutex_);
    closed = closed_;
    ++changes_;
    const auto member = membership_.Find(CallerOf(request.participant()));
    found = member.status();
    live = member.ok() && (*member)->live();
  }
  const std::string& worker = request.participant().worker();
  if (!closed.ok()) {
    targets_.histories->ForgetModel(id_);
  } else if (found.code() == absl::StatusCode::kNotFound) {
    targets_.histories->Forget(id_, worker);
  } else if (found.ok() && !live) {
    targets_.histories->Left(id_, worker);
  }
  return status;
}

v1::ModelInfo Model::Describe(bool workers) const {
  v1::ModelInfo info;
  *info.mutable_spec() = spec_.spec;
  info.set_parameters(spec_.floats);
  info.set_id(id_);
  {
    MutexLock lock(&mutex_);
    info.set_initialized(state_.initialized);
    info.set_version(state_.version);
    info.set_rounds(state_.rounds);
    info.set_state_vectors(static_cast<uint32_t>(state_vectors()));
    info.set_pinned_bytes(state_.pinned_bytes());
    info.set_problem(Repaired(state_.problem.message()));
    statistics_.Describe(&info);
    info.set_live_workers(membership_.live().size());
    info.set_known_workers(membership_.members().size());
    info.set_waiting_workers(waiters_.waiting_members());
  }
  const absl::Time now = Now();
  // Some at a time, so that nobody waits for a long list.
  std::string last;
  for (bool more = workers; more;) {
    MutexLock lock(&mutex_);
    auto it = membership_.members().upper_bound(last);
    for (size_t i = 0; i < kDescribedMembers && it != membership_.members().end(); ++i, ++it) {
      *info.add_workers() = DescribeMemberLocked(*it->second, now);
      last = it->first;
    }
    more = it != membership_.members().end();
  }
  return info;
}

v1::WorkerInfo Model::DescribeMemberLocked(const Member& member, absl::Time now) const {
  const MemberRecord& record = member.record;
  v1::WorkerInfo info;
  info.set_worker(record.name);
  info.set_incarnation(record.incarnation);
  info.set_state(member.state);
  info.set_message(member.message);
  info.set_clock(rule_->Clock(record.standing));
  info.set_commits(record.commits);
  info.set_pulls(record.pulls);
  info.set_rejected(record.rejected);
  info.set_base_version(record.last.base_version);
  if (record.commits > 0) info.set_mean_staleness(record.staleness_sum / static_cast<double>(record.commits));
  if (member.live()) {
    info.set_lease_remaining_s(absl::ToDoubleSeconds(options_.lease - (now - member.session.lease->renewed())));
  }
  info.set_waiting(waiters_.IsWaiting(&member));
  return info;
}

}  // namespace paramd
