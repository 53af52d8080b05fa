#include "server/membership.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace paramd {
namespace {

// Names; each takes some 50 bytes.
constexpr size_t kMaxForgotten = size_t{1} << 20;
// Members, or forgotten names, without a break.
constexpr size_t kSavedAtOnce = 256;
// Of each name: as many joins may be under way at once, or repeated late.
constexpr size_t kFormerNonces = 4;
constexpr uint64_t kMaxIncarnation = std::numeric_limits<int64_t>::max();

// FNV-1a: it is kept on disk, where std::hash has no place.
uint64_t NameHash(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

void SaveMember(const Member& member, state::Member* saved) {
  const MemberRecord& record = member.record;
  saved->set_name(record.name);
  saved->set_incarnation(record.incarnation);
  saved->set_nonce(record.nonce);
  saved->mutable_former_nonces()->Add(record.former_nonces.begin(), record.former_nonces.end());
  saved->set_state(member.state);
  saved->set_message(Repaired(member.message));
  saved->set_sequence(record.last.sequence);
  saved->set_closed_sequence(record.last.closed_sequence);
  saved->set_version(record.last.version);
  saved->set_staleness(record.last.staleness);
  saved->set_base_version(record.last.base_version);
  saved->set_windows(record.standing.windows);
  saved->set_at_door(record.standing.at_door);
  saved->set_last_round(record.standing.last_round.has_value() ? *record.standing.last_round + 1 : 0);
  saved->set_commits(record.commits);
  saved->set_pulls(record.pulls);
  saved->set_rejected(record.rejected);
  saved->set_staleness_sum(record.staleness_sum);
  saved->set_gone(member.gone);
  if (record.last.came_back_at.has_value()) saved->set_came_back_at(*record.last.came_back_at);
}

MemberRecord RestoredRecord(const state::Member& saved) {
  MemberRecord record{.name = saved.name(), .incarnation = saved.incarnation(), .nonce = saved.nonce()};
  const auto& former = saved.former_nonces();
  record.former_nonces.assign(former.end() - std::min<int>(former.size(), kFormerNonces), former.end());
  record.last = {.sequence = saved.sequence(),
                 .closed_sequence = saved.closed_sequence(),
                 .version = saved.version(),
                 .staleness = saved.staleness(),
                 .base_version = saved.base_version()};
  if (saved.has_came_back_at()) record.last.came_back_at = saved.came_back_at();
  record.standing.known = true;
  record.standing.windows = saved.windows();
  record.standing.at_door = saved.at_door();
  if (saved.last_round() > 0) record.standing.last_round = saved.last_round() - 1;
  record.commits = saved.commits();
  record.pulls = saved.pulls();
  record.rejected = saved.rejected();
  record.staleness_sum = saved.staleness_sum();
  return record;
}

}  // namespace

absl::Status Membership::CheckJoin(const std::string& worker, uint64_t incarnation, uint64_t nonce) {
  if (worker.empty() || worker.size() > 256) {
    return absl::InvalidArgumentError(absl::StrCat("a worker's name has ", worker.size(), " characters; use 1 to 256"));
  }
  if (nonce == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker '", worker, "' joins with the nonce 0; a join needs a random one that its retries repeat"));
  }
  if (incarnation > kMaxIncarnation) {
    return absl::InvalidArgumentError(absl::StrCat("worker '", worker, "' joins as incarnation ", incarnation,
                                                   "; the highest is ", kMaxIncarnation,
                                                   ", and 0 lets the server "
                                                   "count"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Membership::Joined> Membership::Join(const std::string& worker, uint64_t incarnation, uint64_t nonce,
                                                    absl::Time now, bool make_room) {
  if (auto status = CheckJoin(worker, incarnation, nonce); !status.ok()) return status;
  const auto it = members_.find(worker);
  Member* const known = it == members_.end() ? nullptr : it->second.get();
  Joined joined;
  if (known != nullptr && !known->left() && known->record.nonce == nonce &&
      (incarnation == 0 || incarnation == known->record.incarnation)) {
    joined.repeated = true;
    joined.member = it->second;
    Touch(known, now);
    return joined;
  }
  if (known != nullptr &&
      std::count(known->record.former_nonces.begin(), known->record.former_nonces.end(), nonce) > 0) {
    return absl::AbortedError(absl::StrCat("worker '", worker, "' of model '", model_,
                                           "': this join was done before, and incarnation ", known->record.incarnation,
                                           " has joined since; a later attempt has taken its place, so stop this one"));
  }
  const auto next = ChooseIncarnation(worker, incarnation, known);
  if (!next.ok()) return next.status();
  if (known != nullptr) {
    joined.member = it->second;
    if (!known->left()) joined.fenced = known->record.incarnation;
    joined.dropped.push_back(Retire(known, v1::WorkerInfo::EXPIRED, ""));
  } else {
    if (make_room && members_.size() >= max_workers_) {
      joined.forgotten = ForgetOne();
      if (joined.forgotten == nullptr) {
        return absl::ResourceExhaustedError(absl::StrCat("model '", model_, "' has ", members_.size(),
                                                         " live workers, as many as this server allows; raise "
                                                         "--max_workers"));
      }
      joined.dropped.push_back(std::exchange(joined.forgotten->session, {}));
    }
    joined.member = std::make_shared<Member>();
    joined.member->record.name = worker;
    members_.emplace(worker, joined.member);
    joined.member->place = gone_.insert(gone_.end(), joined.member.get());
  }
  Member* const member = joined.member.get();
  member->record.incarnation = *next;
  if (std::vector<uint64_t>& former = member->record.former_nonces; known != nullptr && member->record.nonce != nonce) {
    former.push_back(member->record.nonce);
    if (former.size() > kFormerNonces) former.erase(former.begin());
  }
  member->record.nonce = nonce;
  member->record.last = {};
  member->session = {};
  BecomeLive(member);
  member->session.lease->Renew(now);
  return joined;
}

std::shared_ptr<Member> Membership::ForgetOne() {
  const auto it = std::find_if(gone_.begin(), gone_.end(),
                               [this](const Member* member) { return rule_.MayForget(member->record.standing); });
  return it == gone_.end() ? nullptr : Forget(it);
}

std::shared_ptr<Member> Membership::Forget(const std::string& worker) {
  const auto it =
      std::find_if(gone_.begin(), gone_.end(), [&](const Member* member) { return member->record.name == worker; });
  return it == gone_.end() ? nullptr : Forget(it);
}

std::shared_ptr<Member> Membership::Forget(std::list<Member*>::iterator it) {
  const MemberRecord& record = (*it)->record;
  const uint64_t hash = NameHash(record.name);
  const auto [last, is_new] = forgotten_.try_emplace(hash, 0);
  last->second = std::max(last->second, record.incarnation);
  if (is_new) forgotten_order_.push_back(hash);
  if (forgotten_.size() > kMaxForgotten) {
    forgotten_.erase(forgotten_order_.front());
    forgotten_order_.pop_front();
    ++forgotten_dropped_;
  }
  std::shared_ptr<Member> member = members_.at(record.name);
  member->forgotten = true;
  members_.erase(record.name);
  gone_.erase(it);
  return member;
}

absl::StatusOr<uint64_t> Membership::ChooseIncarnation(const std::string& worker, uint64_t asked,
                                                       const Member* known) const {
  uint64_t last = 0;
  if (known != nullptr) {
    last = known->record.incarnation;
  } else if (const auto it = forgotten_.find(NameHash(worker)); it != forgotten_.end()) {
    last = it->second;
  }
  if (asked == 0) {
    if (last < kMaxIncarnation) return last + 1;
    return absl::ResourceExhaustedError(absl::StrCat("worker '", worker, "' of model '", model_,
                                                     "' has had the highest incarnation that there is; give it another "
                                                     "name"));
  }
  if (known != nullptr && asked < last) {
    return absl::AbortedError(absl::StrCat("worker '", worker, "' of model '", model_, "': incarnation ", asked,
                                           " can't join because incarnation ", last,
                                           " has; a later attempt has taken its place, so stop this one"));
  }
  if (known == nullptr && asked <= last) {
    return absl::AbortedError(absl::StrCat("worker '", worker, "' of model '", model_, "': incarnation ", asked,
                                           " can't join because incarnation ", last,
                                           " has, which was forgotten since (--max_workers); stop this one, or join as "
                                           "incarnation 0, which lets the server count"));
  }
  return asked;
}

absl::StatusOr<std::shared_ptr<Member>> Membership::Find(const Caller& caller) const {
  const auto it = members_.find(caller.worker);
  if (it == members_.end()) {
    return absl::NotFoundError(
        absl::StrCat("worker '", Quoted(caller.worker), "' has not joined model '", model_, "'; join first"));
  }
  if (auto status = Check(*it->second, caller); !status.ok()) return status;
  return it->second;
}

absl::Status Membership::Check(const Member& member, const Caller& caller) const {
  const MemberRecord& record = member.record;
  const auto who = [&] {
    return absl::StrCat("worker '", record.name, "' of model '", model_, "': incarnation ", caller.incarnation);
  };
  if (member.forgotten) {
    return absl::NotFoundError(absl::StrCat(who(),
                                            " was forgotten after its lease had run out, to make room for "
                                            "others (--max_workers); join again"));
  }
  if (caller.incarnation > record.incarnation) {
    return absl::AbortedError(
        absl::StrCat(who(), " has never joined; the last one that has is ", record.incarnation, "; join again"));
  }
  if (caller.incarnation < record.incarnation) {
    return absl::AbortedError(absl::StrCat(who(), " was fenced by incarnation ", record.incarnation,
                                           ", which joined under the same name; stop this one, or give it another "
                                           "name"));
  }
  if (caller.nonce != record.nonce) {
    return absl::AbortedError(absl::StrCat(who(),
                                           " was fenced by another process, which joined as the same "
                                           "incarnation (its nonce differs); stop this one, or give it another name"));
  }
  return absl::OkStatus();
}

bool Membership::Save(SaveCursor* cursor, state::Checkpoint* record) const {
  if (!cursor->members_saved) {
    auto it = members_.upper_bound(cursor->member);
    for (size_t i = 0; i < kSavedAtOnce && it != members_.end(); ++i, ++it) {
      SaveMember(*it->second, record->add_members());
      cursor->member = it->first;
    }
    cursor->members_saved = it == members_.end();
    return true;
  }
  cursor->forgotten = std::max(cursor->forgotten, forgotten_dropped_);
  for (size_t i = 0; i < kSavedAtOnce; ++i, ++cursor->forgotten) {
    const uint64_t next = cursor->forgotten - forgotten_dropped_;
    if (next >= forgotten_order_.size()) return false;
    state::Forgotten* const forgotten = record->add_forgotten();
    forgotten->set_hash(forgotten_order_[next]);
    forgotten->set_incarnation(forgotten_.at(forgotten_order_[next]));
  }
  return true;
}

void Membership::Restore(const state::Checkpoint& record, absl::Time now) {
  std::vector<Member*> live;
  std::vector<const state::Member*> in_order;
  for (const state::Member& saved : record.members()) in_order.push_back(&saved);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const state::Member* a, const state::Member* b) { return a->gone() < b->gone(); });
  for (const state::Member* const next : in_order) {
    const state::Member& saved = *next;
    auto member = std::make_shared<Member>();
    member->record = RestoredRecord(saved);
    member->message = saved.message();
    member->gone = saved.gone();
    gone_count_ = std::max(gone_count_, saved.gone());
    member->state = v1::WorkerInfo::State_IsValid(saved.state()) ? static_cast<v1::WorkerInfo::State>(saved.state())
                                                                 : v1::WorkerInfo::EXPIRED;
    if (!members_.emplace(saved.name(), member).second) continue;
    member->place = gone_.insert(gone_.end(), member.get());
    if (member->live()) live.push_back(member.get());
  }
  std::stable_sort(live.begin(), live.end(), [](const Member* a, const Member* b) {
    return a->record.standing.windows < b->record.standing.windows;
  });
  for (Member* member : live) {
    member->session.lease->Renew(now);
    BecomeLive(member);
  }
  for (const state::Forgotten& forgotten : record.forgotten()) {
    if (forgotten_.emplace(forgotten.hash(), forgotten.incarnation()).second) {
      forgotten_order_.push_back(forgotten.hash());
    }
  }
}

bool Membership::Touch(Member* member, absl::Time now) {
  member->session.lease->Renew(now);
  if (member->state != v1::WorkerInfo::EXPIRED) return false;
  BecomeLive(member);
  return true;
}

void Membership::BecomeLive(Member* member) {
  rule_.Enter(&member->record.standing);
  member->state = v1::WorkerInfo::LIVE;
  member->message.clear();
  live_.splice(live_.end(), gone_, member->place);
}

MemberSession Membership::Retire(Member* member, v1::WorkerInfo::State state, std::string message) {
  if (member->live()) {
    rule_.Exit(&member->record.standing);
    member->gone = ++gone_count_;
    gone_.splice(gone_.end(), live_, member->place);
  }
  member->state = state;
  member->message = std::move(message);
  return std::exchange(member->session, {});
}

}  // namespace paramd
