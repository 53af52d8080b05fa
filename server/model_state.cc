// What a model is on disk: images, and the log.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/commit_check.h"
#include "server/model.h"

namespace paramd {

// ---------------------------------------------------------------------------------------------------------------------
// Images

void Model::TakeImage(ImageDone done) {
  strand_.Run([this, done = std::move(done)] {
    absl::StatusOr<ModelImage> taken;
    try {
      taken = TakeImageNow();
    } catch (const std::bad_alloc&) {
      taken = NoMemoryForImage();
    }
    done(std::move(taken));
  });
}

absl::StatusOr<ModelImage> Model::TakeImageNow() const {
  ModelImage taken;
  taken.image = ledger_.TakeImage();
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    taken.at = SavePointLocked();
  }
  taken.record = SaveRecord(taken.image, taken.at);
  ledger_.Save(&taken.record);
  if (options_.budget != nullptr) {
    const uint64_t center = taken.image.has_value() ? taken.image->bytes() : 0;
    taken.room = options_.budget->Count(BudgetKind::kImages, center + taken.record.ByteSizeLong());
  }
  return taken;
}

absl::Status Model::NoMemoryForImage() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("there is no memory for the record of model '", name(),
                   "', which holds its workers and histories; give the server more, or lower --max_history_bytes"));
}

state::Checkpoint Model::SaveRecord(const std::optional<Image>& image, const SavePoint& at) const {
  state::Checkpoint record;
  *record.mutable_spec() = spec_.spec.SerializeAsString();
  record.set_id(id_);
  record.set_position(at.position);
  record.set_initialized(image.has_value());
  if (image.has_value()) {
    record.set_version(image->version);
    record.set_rounds(image->rounds);
    record.set_folded(image->folded);
  }
  {
    MutexLock lock(&mutex_);
    if (rounds_) record.set_progress(rule_->progress());
    statistics_.Save(record.mutable_statistics());
  }
  Membership::SaveCursor cursor;
  for (bool more = true; more;) {
    MutexLock lock(&mutex_);
    more = membership_.Save(&cursor, &record);
  }
  return record;
}

void Model::SaveHistories(state::Checkpoint* record) const { targets_.histories->Save(id_, record); }

void Model::Restore(ModelImage image) {
  strand_.Run([&] {
    const state::Checkpoint& record = image.record;
    const bool in_round = record.folded() > 0;
    if (image.image.has_value()) ledger_.Restore(*std::move(image.image), record);
    targets_.histories->Restore(id_, record);
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    const absl::Time now = Now();
    rule_->Resume(record.progress(), in_round);
    membership_.Restore(record, now);
    statistics_.Restore(record.statistics(), now);
    next_lease_end_ = now + options_.lease;
    log_position_ = record.position();
    for (const auto& [name, member] : membership_.members()) {
      const bool committed = member->record.standing.last_round == record.progress();
      if (rounds_ && in_round && committed) round_.emplace_back(member, member->record.last.sequence);
    }
    PublishLocked(&effects);
    if (keeps_initial_center_ && state_.initialized) initial_center_ = ledger_.Initial();
  });
}

absl::Status Model::CheckImage(const ModelImage& image) const {
  if (!image.image.has_value()) return absl::OkStatus();
  if (image.image->state.size() != state_vectors()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model '", name(), "' was saved with ", image.image->state.size(),
                     " state vectors, and its algorithm '", spec_.spec.algorithm(), "' has ", state_vectors(),
                     "; start the server with the plugin that saved it, or move the model's folder away"));
  }
  if (image.image->folded > 0 && !rounds_) {
    return absl::FailedPreconditionError(
        absl::StrCat("model '", name(), "' was saved in the middle of a round, and has none"));
  }
  return absl::OkStatus();
}

void Model::GoBack(ModelImage to, GoBackSave save, StatusDone done) {
  strand_.Run([this, to = std::move(to), save = std::move(save), done = std::move(done)]() mutable {
    if (options_.step_aside) options_.step_aside();
    // The round that was under way then has nobody to end it, and the one that is now is of another center.
    to.image->sum.clear();
    to.image->folded = 0;
    absl::Status closed;
    const bool in_round = ledger_.HasSum();
    {
      MutexLock lock(&mutex_);
      closed = closed_;
      to.at = SavePointLocked();
    }
    if (!closed.ok()) return done(closed);
    to.at.initialized = true;
    to.at.version = to.image->version;
    state::Checkpoint record;
    try {
      record = SaveRecord(to.image, to.at);
    } catch (const std::bad_alloc&) {
      return done(NoMemoryForImage());
    }
    record.mutable_initial_checksums()->Swap(to.record.mutable_initial_checksums());
    record.set_first_version(to.record.first_version());
    record.set_problem(to.record.problem());
    if (in_round) record.set_progress(record.progress() + 1);
    for (state::Member& member : *record.mutable_members()) member.set_came_back_at(-1);
    to.record = std::move(record);
    if (auto status = save(&to); !status.ok()) return done(status);

    ledger_.Restore(*std::move(to.image), to.record);
    {
      Effects effects(&targets_);
      MutexLock lock(&mutex_);
      if (in_round) rule_->EndRound();
      round_.clear();
      round_overdue_ = false;
      for (const auto& [name, member] : membership_.members()) {
        member->record.last.ComeBackAt(-1);
        effects.Drop(std::exchange(member->session.answer, nullptr));
        effects.Drop(std::exchange(member->session.base, nullptr));
      }
      PublishLocked(&effects);
      TellLocked(ModelEvent::Kind::kRestored, nullptr, &effects);
      for (Waiter& waiter : waiters_.TakeAll()) {
        if (waiter.member != nullptr && waiter.answer.committed) {
          waiter.answer.status = PullAgainSinceRestored(spec_, *waiter.member);
          effects.Drop(std::exchange(waiter.answer.center, nullptr));
          effects.Answer(std::move(waiter.done), std::move(waiter.answer));
        } else {
          SettleLocked(std::move(waiter), &effects);
        }
      }
    }
    done(absl::OkStatus());
  });
}

absl::Status Model::AddPast(const state::Checkpoint& past) {
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  if (state_.initialized) {
    return absl::FailedPreconditionError(
        absl::StrCat("model '", name(), "' has a center already, and so a past of its own; delete it first"));
  }
  if (membership_.members().size() + static_cast<size_t>(past.members_size()) > options_.max_workers) {
    return absl::ResourceExhaustedError(absl::StrCat("the past of model '", name(), "' has ", past.members_size(),
                                                     " workers more than there is room for; raise --max_workers"));
  }
  if (auto status = targets_.histories->AddPast(id_, past); !status.ok()) return status;
  membership_.Restore(past, Now());
  if (past.has_statistics()) statistics_.Restore(past.statistics(), Now());
  ++changes_;
  return absl::OkStatus();
}

void Model::RecordLocked(state::Record record) {
  record.set_model(id_);
  recorded_ = options_.recorder->Record(record);
  log_position_ = std::max(log_position_, recorded_);
}

SavePoint Model::save_point() const {
  MutexLock lock(&mutex_);
  return SavePointLocked();
}

SavePoint Model::SavePointLocked() const {
  return {.changes = changes_,
          .position = log_position_,
          .recorded = recorded_,
          .initialized = state_.initialized,
          .version = state_.version};
}

// ---------------------------------------------------------------------------------------------------------------------
// The log

Journal::OnDisk Model::OnDiskOf(uint64_t ticket) {
  return [model = weak_from_this(), ticket](const absl::Status& status) {
    if (const auto self = model.lock(); self != nullptr) self->OnDisk(ticket, status);
  };
}

void Model::OnDisk(uint64_t ticket, const absl::Status& status) {
  std::vector<StatusDone> initializing;
  {
    Effects effects(&targets_, /*quick=*/true);
    MutexLock lock(&mutex_);
    if (ticket >= initialized_ticket_) initializing.swap(initializing_);
    if (status.ok()) {
      on_disk_ = ticket;
      SettleAllLocked(waiters_.TakeOnDisk(ticket), &effects);
    } else {
      for (Waiter& waiter : waiters_.TakeOnDisk(ticket)) {
        waiter.answer.status = absl::UnavailableError(
            absl::StrCat("the commit is in the center, but could not be written to disk: ", status.message()));
        effects.Answer(std::move(waiter.done), std::move(waiter.answer));
      }
    }
  }
  if (initializing.empty()) return;
  targets_.post([initializing = std::move(initializing), status] {
    for (const StatusDone& done : initializing) done(status);
  });
}

absl::Status Model::Replay(const state::Record& what, const LogRecord& record) {
  absl::Status status;
  strand_.Run([&] {
    switch (what.kind_case()) {
      case state::Record::kCommit:
        status = ReplayCommit(what.commit(), record);
        break;
      case state::Record::kRoundEnd:
        if (!ledger_.state().initialized || !rounds_ || !ledger_.HasSum()) {
          status = absl::DataLossError("a round ends that has not begun");
        } else if (!FinishRound(/*replay=*/true)) {
          status = absl::ResourceExhaustedError("there is no memory to finish a round");
        } else if (ledger_.version() != what.round_end().version()) {
          status = absl::DataLossError(absl::StrCat("a round ended with version ", what.round_end().version(),
                                                    ", but now with ", ledger_.version()));
        }
        break;
      case state::Record::kInitialized: {
        const size_t whole = spec_.floats * (1 + state_vectors());
        const bool with_state = record.payload.size() == whole * sizeof(float);
        auto center = FloatsOf(record, with_state ? whole : spec_.floats, v1::FLOAT32);
        status = center.status();
        const FirstPoint at{.version = what.initialized().version(), .rounds = what.initialized().rounds()};
        if (status.ok()) status = ledger_.Initialize(&*center, at).status();
        Effects effects(&targets_);
        MutexLock lock(&mutex_);
        if (status.ok()) NoteInitializedLocked(&effects);
        break;
      }
      case state::Record::kAcknowledged: {
        const state::Acknowledged& acknowledged = what.acknowledged();
        Effects effects(&targets_);
        MutexLock lock(&mutex_);
        const auto member = membership_.members().find(acknowledged.worker());
        if (member == membership_.members().end()) break;
        const MemberRecord& known = member->second->record;
        if (known.incarnation == acknowledged.incarnation() && known.last.sequence == acknowledged.sequence()) {
          effects.Drop(std::exchange(member->second->session.answer, nullptr));
        }
        break;
      }
      case state::Record::kJoined:
      case state::Record::kLeft:
      case state::Record::kExpired:
      case state::Record::kReturned: {
        Effects effects(&targets_);
        MutexLock lock(&mutex_);
        status = ReplayMemberLocked(what, &effects);
        break;
      }
      case state::Record::KIND_NOT_SET:
        status = absl::InvalidArgumentError("a record of a kind that this version does not know");
        break;
    }
    MutexLock lock(&mutex_);
    ++changes_;
    if (status.ok()) log_position_ = std::max(log_position_, record.position);
  });
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("model '", name(), "': ", status.message()));
}

void Model::PassOver(uint64_t position) {
  MutexLock lock(&mutex_);
  ++changes_;
  log_position_ = std::max(log_position_, position);
}

void Model::ComeBack() {
  MutexLock lock(&mutex_);
  for (const auto& [name, member] : membership_.members()) member->record.last.ComeBackAt(state_.version);
  // Its end may not have got to the disk: the next Tick sees to it.
  round_overdue_ = rule_->RoundDue();
}

void Model::ReplayRetireLocked(const std::string& worker, v1::WorkerInfo::State state, const std::string& message,
                               Effects* effects) {
  const auto member = membership_.members().find(worker);
  if (member == membership_.members().end() || member->second->left()) return;
  effects->Drop(membership_.Retire(member->second.get(), state, message), absl::OkStatus());
  effects->Leave(worker);
}

absl::Status Model::ReplayMemberLocked(const state::Record& what, Effects* effects) {
  if (what.has_expired()) {
    ReplayRetireLocked(what.expired().worker(), v1::WorkerInfo::EXPIRED, "no sign of life", effects);
  } else if (what.has_returned()) {
    const auto member = membership_.members().find(what.returned().worker());
    if (member != membership_.members().end()) membership_.Touch(member->second.get(), Now());
  } else if (what.has_left()) {
    const state::Left& left = what.left();
    const Caller caller{.worker = left.worker(), .incarnation = left.incarnation(), .nonce = left.nonce()};
    if (!membership_.Find(caller).ok()) return absl::OkStatus();
    ReplayRetireLocked(left.worker(), left.error().empty() ? v1::WorkerInfo::LEFT : v1::WorkerInfo::FAILED,
                       left.error(), effects);
  } else {
    const state::Joined& joined = what.joined();
    if (!joined.forgotten().empty()) {
      ReplayRetireLocked(joined.forgotten(), v1::WorkerInfo::EXPIRED, "", effects);
      if (membership_.Forget(joined.forgotten()) != nullptr) effects->Forget(joined.forgotten());
    }
    const auto member = ReplayJoinLocked(
        {.worker = joined.worker(), .incarnation = joined.incarnation(), .nonce = joined.nonce()}, effects);
    // The image has a later one.
    if (absl::IsAborted(member.status())) return absl::OkStatus();
    if (!member.ok()) return member.status();
    statistics_.CountJoin(Now());
  }
  next_lease_end_ = std::min(next_lease_end_, Now() + options_.lease);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Member>> Model::ReplayJoinLocked(const Caller& caller, Effects* effects) {
  // Who had to be forgotten then is named by the record.
  auto joined = membership_.Join(caller.worker, caller.incarnation, caller.nonce, Now(), /*make_room=*/false);
  if (!joined.ok()) return joined.status();
  for (MemberSession& session : joined->dropped) effects->Drop(std::move(session), absl::OkStatus());
  return std::move(joined->member);
}

absl::Status Model::ReplayCommit(const state::Commit& what, const LogRecord& record) {
  auto commit = FloatsOf(record, spec_.floats, what.encoding());
  if (!commit.ok()) return commit.status();
  const CommitInfo info{.version = what.version(), .base_version = what.base_version(), .staleness = what.staleness()};
  const Caller caller{.worker = what.worker(), .incarnation = what.incarnation(), .nonce = what.nonce()};
  if (!ledger_.state().initialized || ledger_.version() != info.version || what.contribution() != needs_base_) {
    return absl::DataLossError(absl::StrCat("commit ", what.sequence(), " of worker '", caller.worker,
                                            "' was merged into version ", info.version, ", but the center is at ",
                                            ledger_.state().version));
  }
  std::shared_ptr<Member> member;
  {
    Effects effects(&targets_);
    MutexLock lock(&mutex_);
    const auto known = membership_.members().find(caller.worker);
    if (known != membership_.members().end() && known->second->record.incarnation >= caller.incarnation) {
      member = known->second;
    } else {
      // That it joined could not be written.
      auto joined = ReplayJoinLocked(caller, &effects);
      if (!joined.ok()) return joined.status();
      member = *std::move(joined);
      next_lease_end_ = std::min(next_lease_end_, Now() + options_.lease);
    }
    rule_->Arrive(&member->record.standing, what.sequence());
  }
  std::shared_ptr<const HeldCenter> center;
  if (keeps_answers_ && what.pull()) {
    Reservation room;
    if (!rounds_ && options_.budget != nullptr) room = options_.budget->TryReserve(bytes(), weak_from_this());
    if (rounds_) {
      center = ledger_.BeforeRound();
    } else if (options_.budget == nullptr || !room.empty()) {
      center =
          std::make_shared<const HeldCenter>(HeldCenter{.snapshot = ledger_.TakeSnapshot(), .room = std::move(room)});
    }
  }
  absl::Status merged =
      what.contribution() ? ledger_.MergeContribution(info, &*commit) : ledger_.Merge(info, &*commit, nullptr);
  if (!merged.ok()) return merged;
  Effects effects(&targets_);
  MutexLock lock(&mutex_);
  PublishLocked(&effects);
  AcceptLocked(caller, what.sequence(), info, member, Now(), &effects);
  if (membership_.Check(*member, caller).ok()) {
    LastCommit& last = member->record.last;
    last.base_version = what.base_version();
    // It had pulled since.
    if (last.came_back_at.has_value() && what.base_version() > *last.came_back_at) last.came_back_at.reset();
    if (member->live()) effects.Drop(std::exchange(member->session.answer, std::move(center)));
  }
  return absl::OkStatus();
}

}  // namespace paramd
