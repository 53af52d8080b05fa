#include "server/model.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// Of what a worker says when it leaves.
constexpr size_t kMaxErrorLength = 4096;

// At most `max` bytes of UTF-8 text, not cut within a character.
std::string Shortened(const std::string& text, size_t max) {
  if (text.size() <= max) return text;
  while (max > 0 && (static_cast<unsigned char>(text[max]) & 0xc0) == 0x80) --max;
  return text.substr(0, max);
}

}  // namespace

class Model::Deferred {
 public:
  Deferred() = default;
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() {
    for (auto& [done, answer] : calls_) done(std::move(answer));
  }

  void Add(Done done, ExchangeAnswer answer) { calls_.emplace_back(std::move(done), std::move(answer)); }

 private:
  std::vector<std::pair<Done, ExchangeAnswer>> calls_;
};

Model::Model(CheckedSpec spec, ModelOptions options)
    : spec_(std::move(spec)),
      options_(options),
      id_(RandomId()),
      algorithm_(spec_.algorithm->make_server(spec_.hyperparameters)),
      state_vectors_(algorithm_->state_vectors()),
      needs_base_(algorithm_->needs_base()),
      answers_before_commit_(algorithm_->answers_before_commit()),
      own_centers_(algorithm_->own_centers()),
      histories_(options.histories != nullptr ? options.histories : std::make_shared<Histories>()) {}

Model::~Model() {
  Close(absl::UnavailableError("the server is shutting down; try again when it is back"));
  histories_->ForgetModel(id_);
}

absl::StatusOr<uint64_t> Model::Join(const std::string& worker, uint64_t incarnation, uint64_t nonce) {
  if (worker.empty() || worker.size() > 256) {
    return absl::InvalidArgumentError(absl::StrCat("a worker's name has ", worker.size(), " characters; use 1 to 256"));
  }
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  auto it = members_.find(worker);
  if (it == members_.end()) {
    if (auto status = MakeRoomLocked(); !status.ok()) return status;
    it = members_.emplace(worker, std::make_unique<Member>()).first;
    it->second->name = worker;
  }
  Member* member = it->second.get();
  const bool repeated = member->state == v1::WorkerInfo::LIVE && nonce != 0 && nonce == member->nonce;
  if (!repeated) {
    if (incarnation != 0 && incarnation < member->incarnation) {
      return absl::AbortedError(absl::StrCat("worker '", worker, "' of model '", name(), "': incarnation ", incarnation,
                                             " can't join because incarnation ", member->incarnation,
                                             " has; a later attempt has taken its place, so stop this one"));
    }
    const uint64_t next = incarnation != 0 ? incarnation : member->incarnation + 1;
    if (next != member->incarnation || nonce != member->nonce) {
      // Another process: sequences begin anew, and what was kept for the old one's retries goes. The incarnation comes
      // first, so that whoever waits for the old one learns that it was fenced.
      member->incarnation = next;
      RetireLocked(member, v1::WorkerInfo::EXPIRED, "", &deferred);
      member->state = v1::WorkerInfo::STATE_UNSPECIFIED;
      member->lease = std::make_shared<Lease>();
      member->sequence = 0;
      member->base_version = -1;
    }
    member->nonce = nonce;
  }
  if (member->state != v1::WorkerInfo::LIVE) BecomeLiveLocked(member);
  member->lease->Renew(options_.clock->Now());
  if (!first_join_.has_value()) first_join_ = options_.clock->Now();
  return member->incarnation;
}

absl::Status Model::MakeRoomLocked() {
  if (members_.size() < options_.max_workers) return absl::OkStatus();
  const auto idle = std::find_if(members_.begin(), members_.end(),
                                 [](const auto& m) { return m.second->state != v1::WorkerInfo::LIVE; });
  if (idle == members_.end()) {
    return absl::ResourceExhaustedError(absl::StrCat("model '", name(), "' has ", members_.size(),
                                                     " live workers, as many as this server allows; raise "
                                                     "--max_workers"));
  }
  histories_->Forget(id_, idle->first);
  members_.erase(idle);
  return absl::OkStatus();
}

void Model::BecomeLiveLocked(Member* member) {
  const uint64_t slowest = SlowestLocked();
  if (spec_.consistency.mode == Consistency::kBounded && slowest != std::numeric_limits<uint64_t>::max()) {
    if (member->state == v1::WorkerInfo::STATE_UNSPECIFIED) {
      // A late joiner starts beside the slowest.
      member->arrived = member->clock = slowest;
    } else {
      // One that was away is where it was, so that it can't run further ahead by losing its lease; but nobody waits for
      // it, nor it for more than a window if the others began anew meanwhile.
      if (member->arrived > slowest && member->arrived - slowest > spec_.consistency.bound) {
        member->arrived = slowest + spec_.consistency.bound + 1;
      }
      member->arrived = std::max(member->arrived, slowest);
      member->clock = std::clamp(member->clock, slowest, member->arrived);
    }
  }
  member->state = v1::WorkerInfo::LIVE;
  member->message.clear();
  next_end_ = std::min(next_end_, options_.clock->Now() + options_.lease);
}

void Model::RetireLocked(Member* member, v1::WorkerInfo::State state, std::string message, Deferred* deferred) {
  const bool was_live = member->state == v1::WorkerInfo::LIVE;
  member->state = state;
  member->message = std::move(message);
  if (!was_live) return;
  histories_->Left(id_, member->name);
  member->answer.reset();
  member->base.reset();
  FinishRoundLocked();
  WakeLocked(deferred);
}

absl::StatusOr<Model::Member*> Model::FindLocked(const std::string& worker, uint64_t incarnation) {
  if (!closed_.ok()) return closed_;
  const auto it = members_.find(worker);
  if (it == members_.end()) {
    return absl::NotFoundError(absl::StrCat("worker '", worker, "' has not joined model '", name(), "'; join first"));
  }
  Member* member = it->second.get();
  if (member->incarnation != incarnation) {
    return absl::AbortedError(absl::StrCat("worker '", worker, "' of model '", name(), "': incarnation ", incarnation,
                                           " was fenced by incarnation ", member->incarnation,
                                           ", which joined under the same name; stop this one, or give it another "
                                           "name"));
  }
  return member;
}

absl::StatusOr<Model::Member*> Model::TouchLocked(const std::string& worker, uint64_t incarnation) {
  auto member = FindLocked(worker, incarnation);
  if (!member.ok()) return member;
  if ((*member)->state == v1::WorkerInfo::LEFT || (*member)->state == v1::WorkerInfo::FAILED) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", worker, "' has left model '", name(), "'; join again to go on"));
  }
  (*member)->lease->Renew(options_.clock->Now());
  if ((*member)->state != v1::WorkerInfo::LIVE) BecomeLiveLocked(*member);
  return member;
}

absl::Status Model::Heartbeat(const std::string& worker, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  return TouchLocked(worker, incarnation).status();
}

absl::Status Model::Leave(const std::string& worker, uint64_t incarnation, const std::string& error) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  auto member = FindLocked(worker, incarnation);
  if (!member.ok()) return member.status();
  if ((*member)->state == v1::WorkerInfo::LEFT || (*member)->state == v1::WorkerInfo::FAILED) return absl::OkStatus();
  RetireLocked(*member, error.empty() ? v1::WorkerInfo::LEFT : v1::WorkerInfo::FAILED,
               Shortened(error, kMaxErrorLength), &deferred);
  return absl::OkStatus();
}

std::shared_ptr<Lease> Model::FindLease(const std::string& worker, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  auto member = FindLocked(worker, incarnation);
  return member.ok() ? (*member)->lease : nullptr;
}

void Model::CountRejected(const std::string& worker, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  ++rejected_;
  if (auto member = FindLocked(worker, incarnation); member.ok()) ++(*member)->rejected;
}

uint64_t Model::SlowestLocked() const {
  uint64_t slowest = std::numeric_limits<uint64_t>::max();
  for (const auto& [worker, member] : members_) {
    if (member->state == v1::WorkerInfo::LIVE) slowest = std::min(slowest, member->arrived);
  }
  return slowest;
}

// ---------------------------------------------------------------------------------------------------------------------
// Initialization

namespace {

absl::Status NonFiniteInitial(const v1::ModelSpec& spec, int64_t index) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the initial center of model '", spec.name(), "' is NaN or infinite in ",
      DescribePosition(spec, static_cast<uint64_t>(index)), "; check the file or the initializer it comes from"));
}

absl::Status NotMadeStable() {
  return absl::InternalError("the floats may still change while they are read: they were not made stable first");
}

// The CRC-32 of each tensor.
std::vector<uint32_t> Checksums(const v1::ModelSpec& spec, const Snapshot& snapshot) {
  std::vector<uint32_t> checksums;
  size_t at = 0;
  for (const v1::Tensor& tensor : spec.tensors()) {
    uint32_t crc = 0;
    const size_t end = at + TensorFloats(tensor);
    while (at < end) {
      const absl::Span<const float> block = snapshot.blocks[at / kBlockFloats].floats();
      const size_t offset = at % kBlockFloats;
      const size_t n = std::min(end - at, block.size() - offset);
      crc = static_cast<uint32_t>(
          crc32(crc, reinterpret_cast<const Bytef*>(&block[offset]), static_cast<uInt>(n * sizeof(float))));
      at += n;
    }
    checksums.push_back(crc);
  }
  return checksums;
}

}  // namespace

absl::Status Model::Initialize(CommitBuffer* floats) {
  if (floats->floats() != spec_.floats || !floats->complete()) {
    return absl::InvalidArgumentError(absl::StrCat("the initial center of model '", name(), "' has ",
                                                   floats->received(), " floats where the model has ", spec_.floats));
  }
  if (floats->unstable()) return NotMadeStable();
  if (floats->first_non_finite() >= 0) return NonFiniteInitial(spec_.spec, floats->first_non_finite());
  // Built outside the lock; only the first one stays.
  Center center(spec_.floats, state_vectors_, options_.apply_pool);
  center.Set(floats);
  const std::vector<uint32_t> checksums = Checksums(spec_.spec, *center.TakeSnapshot());
  Reservation room = CountCenter();
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  if (!center_.has_value()) {
    center_.emplace(std::move(center));
    center_room_ = std::move(room);
    initial_checksums_ = checksums;
    WakeLocked(&deferred);
    return absl::OkStatus();
  }
  std::vector<std::string> differing;
  for (int i = 0; i < spec_.spec.tensors_size(); ++i) {
    if (checksums[i] == initial_checksums_[i]) continue;
    differing.push_back(absl::StrCat("'", spec_.spec.tensors(i).name(), "'"));
  }
  if (differing.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("model '", name(), "' was initialized before with other values of ",
                                               differing.size(), " of its ", spec_.spec.tensors_size(),
                                               " tensors, first of ", differing.front(),
                                               "; pull the center to go on from it, or delete the model"));
}

Reservation Model::CountCenter() const {
  return options_.budget != nullptr ? options_.budget->Count(BudgetKind::kCenters, bytes()) : Reservation();
}

void Model::InitializeFrom(const Snapshot& snapshot) {
  Reservation room = CountCenter();
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (center_.has_value()) return;
  center_.emplace(snapshot, state_vectors_, options_.apply_pool);
  center_room_ = std::move(room);
  initial_checksums_ = Checksums(spec_.spec, snapshot);
  WakeLocked(&deferred);
}

std::shared_ptr<const Snapshot> Model::TakeSnapshot() {
  MutexLock lock(&mutex_);
  return center_.has_value() ? center_->TakeSnapshot() : nullptr;
}

// ---------------------------------------------------------------------------------------------------------------------
// Exchanges

absl::Status Model::CheckCommitLocked(const ExchangeCall& call, const Member& member) {
  if (call.commit_floats != spec_.floats) {
    return absl::InvalidArgumentError(absl::StrCat("a commit of worker '", call.worker, "' has ", call.commit_floats,
                                                   " floats where model '", name(), "' has ", spec_.floats,
                                                   "; the worker trains another network than the model's: compare "
                                                   "its layers with `paramctl show`"));
  }
  if (call.sequence == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a commit of worker '", call.worker, "' has sequence 0; count them from 1"));
  }
  if (call.sequence < member.sequence) {
    return absl::FailedPreconditionError(absl::StrCat("commit ", call.sequence, " of worker '", call.worker,
                                                      "' comes after its commit ", member.sequence,
                                                      "; sequences only grow"));
  }
  if (!center_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("model '", name(),
                                                      "' has no center yet; initialize it with a "
                                                      "worker or `paramctl create --from`"));
  }
  if (call.sequence == member.sequence) return absl::OkStatus();  // A retry: its base may be gone.
  if (call.base_version > center_->version()) {
    return absl::InvalidArgumentError(absl::StrCat("a commit of worker '", call.worker, "' has base version ",
                                                   call.base_version, ", but the center is only at version ",
                                                   center_->version()));
  }
  if (needs_base_ && (member.base == nullptr || member.base->version != call.base_version)) {
    return absl::FailedPreconditionError(absl::StrCat("the center of version ", call.base_version, " that worker '",
                                                      call.worker, "' trained from is no longer held (",
                                                      spec_.spec.algorithm(), " needs it); pull and train again"));
  }
  return absl::OkStatus();
}

absl::Status Model::NonFiniteError(const std::string& worker, const CommitBuffer& commit) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "a commit of worker '", worker, "' to model '", name(), "' is NaN or infinite in ",
      DescribePosition(spec_.spec, static_cast<uint64_t>(commit.first_non_finite())),
      ", so it was not applied; training has probably diverged: lower the learning rate or clip gradients"));
}

void Model::BeginCommit(const ExchangeCall& call, Done done) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  auto member = TouchLocked(call.worker, call.incarnation);
  absl::Status status = member.status();
  if (status.ok()) {
    status = CheckCommitLocked(call, **member);
    if (!status.ok()) {
      ++(*member)->rejected;
      ++rejected_;
    }
  }
  if (!status.ok()) {
    deferred.Add(std::move(done), {.status = status});
    return;
  }
  WaitLocked({.call = call, .begin = true, .member = *member, .done = std::move(done)}, &deferred);
}

void Model::Exchange(const ExchangeCall& call, std::optional<CommitBuffer> commit, Done done) {
  Deferred deferred;
  // Freed once the lock is released, but before the answer goes out.
  std::optional<CommitBuffer> consumed = std::move(commit);
  MutexLock lock(&mutex_);
  Waiter waiter{.call = call, .done = std::move(done)};
  const auto refuse = [&](const absl::Status& status) { deferred.Add(std::move(waiter.done), {.status = status}); };
  if (call.worker.empty() && !consumed.has_value()) {
    if (!closed_.ok()) return refuse(closed_);
    return WaitLocked(std::move(waiter), &deferred);
  }
  auto found = TouchLocked(call.worker, call.incarnation);
  if (!found.ok()) return refuse(found.status());
  Member* member = waiter.member = *found;
  if (call.commit_floats == 0 && call.sequence > member->sequence) {
    // It never came, as the answer says.
    return deferred.Add(std::move(waiter.done), {});
  }
  if (call.commit_floats == 0 && call.sequence != 0 && call.sequence != member->sequence) {
    return refuse(
        absl::FailedPreconditionError(absl::StrCat("worker '", call.worker, "' asks for the answer to commit ",
                                                   call.sequence, ", but its last commit is ", member->sequence)));
  }
  // `consumed` is absent for a retry, whose bytes were dropped.
  if (call.commit_floats > 0) {
    absl::Status status = CheckCommitLocked(call, *member);
    const bool retry = call.sequence == member->sequence;
    if (status.ok() && !retry) {
      status = consumed.has_value() ? ApplyLocked(call, member, &*consumed)
                                    : absl::InternalError("a commit without its bytes");
    }
    if (!status.ok()) {
      ++member->rejected;
      ++rejected_;
      return refuse(status);
    }
    if (!retry) {
      FinishRoundLocked();
      WakeLocked(&deferred);
    }
  }
  if (call.sequence != 0) {
    waiter.answer.committed = true;
    waiter.answer.staleness = member->staleness;
  }
  WaitLocked(std::move(waiter), &deferred);
}

absl::Status Model::ApplyLocked(const ExchangeCall& call, Member* member, CommitBuffer* commit) {
  if (commit->first_non_finite() >= 0) return NonFiniteError(call.worker, *commit);
  if (member->committed_round == round_) {
    return absl::FailedPreconditionError(absl::StrCat("worker '", call.worker, "' has committed in this round"));
  }
  // A commit that is not based on a pull counts as fresh.
  const int64_t version = center_->version();
  const CommitInfo info{.version = version,
                        .base_version = call.base_version < 0 ? version : call.base_version,
                        .staleness = call.base_version < 0 ? 0 : version - call.base_version};
  std::shared_ptr<const Snapshot> before;
  if (answers_before_commit_ && call.pull) before = center_->TakeSnapshot();
  if (spec_.consistency.mode == Consistency::kSync) {
    if (commit->unstable()) return NotMadeStable();
    center_->Fold(algorithm_.get(), info, commit, member->base.get());
    member->committed_round = round_;
  } else if (center_->Apply(algorithm_.get(), info, commit, member->base.get())) {
    member->version = center_->version();
  } else {
    return commit->first_non_finite() >= 0 ? NonFiniteError(call.worker, *commit) : CommitBuffer::ChangedError();
  }
  member->answer = std::move(before);
  member->sequence = call.sequence;
  member->staleness = info.staleness;
  member->staleness_sum += static_cast<double>(info.staleness);
  member->arrived = std::max(member->arrived, member->clock + 1);
  ++member->commits;
  ++commits_;
  ++staleness_histogram_[std::min<size_t>(static_cast<size_t>(info.staleness), staleness_histogram_.size() - 1)];
  staleness_sum_ += static_cast<double>(info.staleness);
  last_commit_ = options_.clock->Now();
  return absl::OkStatus();
}

void Model::FinishRoundLocked() {
  if (!center_.has_value() || center_->folded() == 0) return;
  for (const auto& [worker, member] : members_) {
    if (member->state == v1::WorkerInfo::LIVE && member->committed_round != round_) return;
  }
  center_->FinishRound(algorithm_.get());
  for (const auto& [worker, member] : members_) {
    if (member->committed_round == round_) member->version = center_->version();
  }
  ++round_;
}

void Model::Acknowledge(const std::string& worker, uint64_t incarnation, uint64_t sequence) {
  std::shared_ptr<const Snapshot> dropped;  // outside the lock
  MutexLock lock(&mutex_);
  auto member = TouchLocked(worker, incarnation);
  if (member.ok() && (*member)->sequence == sequence) dropped = std::move((*member)->answer);
}

// ---------------------------------------------------------------------------------------------------------------------
// Waiting

bool Model::ReadyLocked(Waiter* waiter, uint64_t slowest) {
  ExchangeAnswer& answer = waiter->answer;
  if (!closed_.ok()) {
    answer.status = closed_;
    return true;
  }
  Member* member = waiter->member;
  if (member != nullptr) {
    if (member->incarnation != waiter->call.incarnation) {
      answer.status = FindLocked(waiter->call.worker, waiter->call.incarnation).status();
      return true;
    }
    if (member->state != v1::WorkerInfo::LIVE) {
      answer.status = absl::FailedPreconditionError(absl::StrCat("worker '", member->name,
                                                                 "' is no longer a live "
                                                                 "worker of model '",
                                                                 name(), "'"));
      return true;
    }
  }
  const bool bounded = spec_.consistency.mode == Consistency::kBounded;
  if (waiter->begin) {
    const bool retry = waiter->call.sequence == member->sequence;
    if (!retry) {
      // An answer that was pinned before the commit must not wait: the commit waits in its stead.
      if (bounded && answers_before_commit_) {
        member->arrived = member->clock + 1;
        if (member->arrived - std::min(slowest, member->arrived) > spec_.consistency.bound) return false;
      }
      if (member->committed_round == round_) return false;
    }
    answer.committed = retry;
    return true;
  }
  if (member != nullptr) {
    if (member->committed_round == round_) return false;
    if (bounded && member->arrived - std::min(slowest, member->arrived) > spec_.consistency.bound) return false;
  }
  if (waiter->call.pull && !center_.has_value()) return false;
  if (member != nullptr) {
    member->clock = member->arrived;
    if (answer.committed) answer.version = member->version;
  }
  return true;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Model::Pull(const ExchangeCall& call) {
  std::shared_ptr<const Snapshot> dropped;  // freed after the lock is released
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  if (call.worker.empty()) return center_->TakeSnapshot();
  auto found = FindLocked(call.worker, call.incarnation);
  if (!found.ok()) return found.status();
  Member* member = *found;
  std::shared_ptr<const Snapshot> center;
  if (call.sequence != 0 && call.sequence != member->sequence) {
    return absl::FailedPreconditionError(absl::StrCat("worker '", member->name,
                                                      "' has committed again, so the answer to its commit ",
                                                      call.sequence, " is of no use to it any more"));
  }
  if (!answers_before_commit_ || call.sequence == 0) {
    center = center_->TakeSnapshot();
  } else if (member->answer != nullptr) {
    center = member->answer;
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("the answer to commit ", call.sequence, " of worker '", member->name,
                     "' is no longer held: it was acknowledged, or the lease ran out; pull instead"));
  }
  ++member->pulls;
  member->base_version = center->version;
  if (needs_base_) {
    dropped = std::move(member->base);
    member->base = center;
  }
  return center;
}

void Model::WaitLocked(Waiter waiter, Deferred* deferred) {
  // SlowestLocked costs a walk over the members, which only bounded consistency needs.
  const uint64_t slowest = spec_.consistency.mode == Consistency::kBounded ? SlowestLocked() : 0;
  const bool moves_clock = waiter.begin && answers_before_commit_;
  if (ReadyLocked(&waiter, slowest)) {
    deferred->Add(std::move(waiter.done), std::move(waiter.answer));
  } else {
    next_end_ = std::min(next_end_, waiter.call.deadline);
    waiters_.push_back(std::move(waiter));
  }
  if (moves_clock) WakeLocked(deferred);
}

void Model::WakeLocked(Deferred* deferred) {
  if (waiters_.empty()) return;
  const uint64_t slowest = SlowestLocked();
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (ReadyLocked(&*it, slowest)) {
      deferred->Add(std::move(it->done), std::move(it->answer));
      it = waiters_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::Status Model::WaitedTooLongLocked(const Waiter& waiter) const {
  if (!center_.has_value()) {
    return absl::DeadlineExceededError(absl::StrCat("model '", name(),
                                                    "' has no center yet; initialize it with a "
                                                    "worker or `paramctl create --from`"));
  }
  std::string behind;
  for (const auto& [worker, member] : members_) {
    const bool holds_up = spec_.consistency.mode == Consistency::kSync
                              ? member->committed_round != round_
                              : member->arrived + spec_.consistency.bound < waiter.member->arrived;
    if (member->state != v1::WorkerInfo::LIVE || !holds_up) continue;
    absl::StrAppend(&behind, behind.empty() ? "" : ", ", "'", worker, "' (clock ", member->clock, ")");
    if (behind.size() > 200) {
      behind += ", ...";
      break;
    }
  }
  return absl::DeadlineExceededError(absl::StrCat("worker '", waiter.call.worker, "' of model '", name(),
                                                  "' waits for ", behind.empty() ? "other workers" : behind,
                                                  " (consistency ", spec_.spec.consistency(), ")"));
}

void Model::CancelWait(const void* tag) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (it->call.tag == tag) {
      it->answer.status = absl::CancelledError("the exchange was cancelled");
      deferred.Add(std::move(it->done), std::move(it->answer));
      it = waiters_.erase(it);
    } else {
      ++it;
    }
  }
}

void Model::Tick() {
  Deferred deferred;
  MutexLock lock(&mutex_);
  const absl::Time now = options_.clock->Now();
  if (now < next_end_) return;
  next_end_ = absl::InfiniteFuture();
  for (const auto& [worker, member] : members_) {
    if (member->state != v1::WorkerInfo::LIVE) continue;
    const absl::Time end = member->lease->renewed() + options_.lease;
    if (end < now) {
      RetireLocked(member.get(), v1::WorkerInfo::EXPIRED,
                   absl::StrCat("no sign of life for ", absl::FormatDuration(options_.lease)), &deferred);
    } else {
      next_end_ = std::min(next_end_, end);
    }
  }
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (it->call.deadline <= now) {
      it->answer.status = WaitedTooLongLocked(*it);
      deferred.Add(std::move(it->done), std::move(it->answer));
      it = waiters_.erase(it);
    } else {
      next_end_ = std::min(next_end_, it->call.deadline);
      ++it;
    }
  }
}

void Model::Close(absl::Status why) {
  Reservation room;
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return;
  closed_ = std::move(why);
  room = std::move(center_room_);
  histories_->ForgetModel(id_);
  WakeLocked(&deferred);
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

absl::Status Model::Report(const v1::ReportHistoryRequest& request) {
  {
    MutexLock lock(&mutex_);
    if (auto member = TouchLocked(request.participant().worker(), request.participant().incarnation()); !member.ok())
      return member.status();
  }
  return histories_->Report(id_, request);
}

absl::StatusOr<v1::GetHistoryReply> Model::ReadHistory(const v1::GetHistoryRequest& request) const {
  v1::GetHistoryReply reply;
  if (auto status = histories_->Read({id_}, request, &reply); !status.ok()) return status;
  const v1::ModelInfo info = Describe();
  reply.set_updates(info.version());
  reply.set_training_time_s(info.training_time_s());
  *reply.mutable_staleness_histogram() = info.staleness_histogram();
  return reply;
}

v1::ModelInfo Model::Describe() const {
  v1::ModelInfo info;
  *info.mutable_spec() = spec_.spec;
  info.set_parameters(spec_.floats);
  info.set_id(id_);
  MutexLock lock(&mutex_);
  info.set_initialized(center_.has_value());
  if (center_.has_value()) {
    info.set_version(center_->version());
    info.set_pinned_bytes(center_->pinned_bytes());
  }
  info.set_rejected(rejected_);
  info.set_commits(commits_);
  info.set_known_workers(members_.size());
  info.set_live_workers(static_cast<uint64_t>(std::count_if(members_.begin(), members_.end(), [](const auto& member) {
    return member.second->state == v1::WorkerInfo::LIVE;
  })));
  if (commits_ > 0) {
    info.set_mean_staleness(staleness_sum_ / static_cast<double>(commits_));
    info.set_training_time_s(absl::ToDoubleSeconds(last_commit_ - *first_join_));
    const auto last =
        std::find_if(staleness_histogram_.rbegin(), staleness_histogram_.rend(), [](uint64_t n) { return n > 0; });
    for (auto it = staleness_histogram_.begin(); it != last.base(); ++it) info.add_staleness_histogram(*it);
  }
  const absl::Time now = options_.clock->Now();
  for (const auto& [worker, member] : members_) {
    v1::WorkerInfo* out = info.add_workers();
    out->set_worker(worker);
    out->set_incarnation(member->incarnation);
    out->set_state(member->state);
    out->set_message(member->message);
    out->set_clock(member->clock);
    out->set_commits(member->commits);
    out->set_pulls(member->pulls);
    out->set_rejected(member->rejected);
    out->set_base_version(member->base_version);
    if (member->commits > 0) {
      out->set_mean_staleness(member->staleness_sum / static_cast<double>(member->commits));
    }
    if (member->state == v1::WorkerInfo::LIVE) {
      out->set_lease_remaining_s(absl::ToDoubleSeconds(options_.lease - (now - member->lease->renewed())));
    }
    const Member* self = member.get();
    out->set_waiting(
        std::any_of(waiters_.begin(), waiters_.end(), [self](const Waiter& waiter) { return waiter.member == self; }));
    if (out->waiting()) info.set_waiting_workers(info.waiting_workers() + 1);
  }
  return info;
}

}  // namespace paramd
