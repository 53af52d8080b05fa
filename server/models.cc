#include "server/models.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/text.h"

namespace paramd {
namespace {

// Names in an error, at most.
constexpr size_t kNamed = 5;

std::string Named(std::vector<std::string> names) {
  if (names.size() > kNamed) {
    names.resize(kNamed);
    names.push_back("...");
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

Models::Models(ModelsOptions options)
    : options_(std::move(options)),
      budget_(options_.budget),
      histories_(std::make_shared<Histories>(HistoriesOptions{
          .max_records = options_.max_history_records, .max_bytes = options_.max_history_bytes, .budget = &budget_})) {}

// Whoever still holds a model holds nothing of the budget any more.
Models::~Models() { Close(); }

absl::StatusOr<std::shared_ptr<Model>> Models::MakeModel(CheckedSpec spec, bool whole, uint64_t id) const {
  const std::string name = spec.spec.name();
  const std::string algorithm = spec.spec.algorithm();
  ModelOptions options = options_.model;
  options.budget = &budget_;
  options.histories = histories_;
  std::string what;
  try {
    auto model = std::make_shared<Model>(std::move(spec), std::move(options), id);
    if (whole && model->own_centers()) model->KeepInitialCenter();
    return model;
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
    what = "something that is no std::exception";
  }
  return absl::InternalError(absl::StrCat("algorithm '", algorithm, "' could not be made for model '", name,
                                          "': it threw ", what, "; mend its make_server"));
}

void Models::Tell(ModelEvent::Kind kind, const Model& model) const {
  EventSink* const events = options_.model.events;
  if (events == nullptr || !events->Wants(kind)) return;
  events->Tell({.kind = kind,
                .model = model.name(),
                .model_id = model.id(),
                .version = model.Describe(/*workers=*/false).version()});
}

absl::Status Models::CheckRoomLocked() const {
  if (models_.size() < options_.max_models) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the server hosts ", models_.size(),
                                                   " models, as many as it allows; delete one or raise --max_models"));
}

absl::StatusOr<v1::ModelInfo> Models::Create(const v1::ModelSpec& spec) {
  auto checked = CheckSpec(spec, options_.max_model_bytes);
  if (!checked.ok()) return checked.status();
  std::shared_ptr<Model> made;
  while (true) {
    std::shared_ptr<Model> model;
    {
      MutexLock lock(&mutex_);
      if (draining_) return ShuttingDown();
      if (const auto it = models_.find(spec.name()); it != models_.end()) {
        model = it->second.model;
      } else {
        if (auto status = CheckRoomLocked(); !status.ok()) return status;
        if (made != nullptr) {
          model = made;
          models_[spec.name()] = {.model = made,
                                  .ensemble = made->own_centers() ? std::make_shared<Ensemble>(made) : nullptr};
        }
      }
    }
    if (model == nullptr) {
      auto fresh = MakeModel(*checked, /*whole=*/true);
      if (!fresh.ok()) return fresh.status();
      made = *std::move(fresh);
      continue;
    }
    if (model == made) Tell(ModelEvent::Kind::kCreated, *model);
    const std::string difference = DescribeDifference(model->checked_spec().spec, checked->spec);
    if (!difference.empty()) {
      return absl::AlreadyExistsError(absl::StrCat("model '", spec.name(), "' exists with another specification: ",
                                                   difference, "; use another name, or delete it first"));
    }
    v1::ModelInfo info = model->Describe(/*workers=*/false);
    info.set_daemon_id(options_.daemon_id);
    return info;
  }
}

absl::StatusOr<std::shared_ptr<Model>> Models::Find(const std::string& name) const {
  MutexLock lock(&mutex_);
  auto entry = FindLocked(name);
  if (!entry.ok()) return entry.status();
  return std::move(entry->model);
}

absl::StatusOr<std::shared_ptr<Model>> Models::Find(const v1::Participant& participant) const {
  const bool reader = participant.worker().empty();
  if (!reader && (participant.daemon_id() == 0 || participant.model_id() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker '", Quoted(participant.worker()),
                     "' does not say which daemon and which model it has joined; give the daemon_id and model.id that "
                     "the join returned"));
  }
  if (participant.daemon_id() != 0 && participant.daemon_id() != options_.daemon_id) {
    return absl::AbortedError(
        "this is another daemon than the one joined: it was restarted without its state, or the address leads "
        "elsewhere by now; join again");
  }
  auto model = Find(participant.model());
  if (model.ok() && participant.model_id() != 0 && participant.model_id() != (*model)->id()) {
    return absl::AbortedError(absl::StrCat("model '", participant.model(),
                                           "' was deleted and created again since this worker joined; join again"));
  }
  return model;
}

absl::StatusOr<Models::Entry> Models::FindLocked(const std::string& name) const {
  if (draining_) return ShuttingDown();
  if (const auto it = models_.find(name); it != models_.end()) return it->second;
  // Which others there are is not for everybody to know who asks.
  return absl::NotFoundError(absl::StrCat("there is no model '", Quoted(name),
                                          "' on this server; `paramctl list` shows which there are; create it with "
                                          "`paramctl create`, or let a worker bring its specification"));
}

absl::Status Models::CheckPull(const Model& model) const {
  if (!model.own_centers()) return absl::OkStatus();
  std::vector<std::string> names;
  {
    MutexLock lock(&mutex_);
    const auto it = models_.find(model.name());
    if (it == models_.end() || it->second.model.get() != &model || it->second.ensemble == nullptr) {
      return absl::OkStatus();
    }
    for (const auto& member : it->second.ensemble->members()) names.push_back(member->name());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "model '", model.name(), "' is an ensemble, whose own center is only what its members begin with; ",
      names.empty() ? "no worker has joined yet that would have one" : "take theirs: " + Named(std::move(names))));
}

absl::Status Models::Delete(const std::string& name, Deleted* told) {
  std::vector<std::shared_ptr<Model>> deleted;
  {
    MutexLock lock(&mutex_);
    auto entry = FindLocked(name);
    if (!entry.ok()) return entry.status();
    if (entry->member_of != nullptr) {
      entry->member_of->Forget(entry->model.get());
      if (told != nullptr) told->ensemble = entry->member_of->whole();
    }
    if (entry->ensemble != nullptr) deleted = entry->ensemble->members();
    deleted.push_back(entry->model);
    for (const auto& model : deleted) models_.erase(model->name());
  }
  for (const auto& model : deleted) {
    if (told != nullptr) told->ids.push_back(model->id());
    Tell(ModelEvent::Kind::kDeleted, *model);
    model->Close(absl::NotFoundError(absl::StrCat("model '", model->name(), "' was deleted")));
  }
  return absl::OkStatus();
}

absl::Status Models::Adopt(CheckedSpec spec, ModelImage image) {
  const std::string name = spec.spec.name();
  const state::Checkpoint record = image.record;
  auto model = MakeModel(std::move(spec), /*whole=*/!record.has_member_of(), record.id());
  if (!model.ok()) return model.status();
  if (auto status = (*model)->CheckImage(image); !status.ok()) return status;
  (*model)->Restore(std::move(image));
  {
    MutexLock lock(&mutex_);
    if (auto status = CheckRoomLocked(); !status.ok()) return status;
    if (models_.count(name) > 0) {
      return absl::AlreadyExistsError(absl::StrCat("there are two models of the name '", name, "'"));
    }
    Entry entry{.model = *model};
    if (record.has_member_of()) {
      const auto whole = std::find_if(models_.begin(), models_.end(), [&](const auto& other) {
        return other.second.model->id() == record.member_of().ensemble();
      });
      if (whole == models_.end() || whole->second.ensemble == nullptr ||
          !whole->second.ensemble->TakePlace(record.member_of().worker(), record.member_of().index(), *model)) {
        return absl::NotFoundError(
            absl::StrCat("model '", name, "' is a member of an ensemble that has no place for it"));
      }
      entry.member_of = whole->second.ensemble;
    } else if ((*model)->own_centers()) {
      entry.ensemble = std::make_shared<Ensemble>(
          *model, std::vector<std::string>(record.ensemble().begin(), record.ensemble().end()));
    }
    models_[name] = std::move(entry);
  }
  Tell(ModelEvent::Kind::kRestored, **model);
  return absl::OkStatus();
}

void Models::Save(const Model& model, state::Checkpoint* record) const {
  MutexLock lock(&mutex_);
  const auto it = models_.find(model.name());
  if (it == models_.end() || it->second.model.get() != &model) return;
  if (it->second.ensemble != nullptr) {
    for (std::string& worker : it->second.ensemble->workers()) record->add_ensemble(std::move(worker));
  }
  if (it->second.member_of == nullptr) return;
  const std::vector<std::string> workers = it->second.member_of->workers();
  for (size_t i = 0; i < workers.size(); ++i) {
    if (it->second.member_of->Find(workers[i]).member.get() != &model) continue;
    record->mutable_member_of()->set_ensemble(it->second.member_of->whole()->id());
    record->mutable_member_of()->set_worker(workers[i]);
    record->mutable_member_of()->set_index(i);
  }
}

std::vector<std::shared_ptr<Model>> Models::List() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [name, entry] : models_) models.push_back(entry.model);
  return models;
}

absl::StatusOr<v1::ModelInfo> Models::Describe(const std::string& name, bool workers) const {
  std::shared_ptr<Model> model;
  std::vector<std::shared_ptr<Model>> members;
  {
    MutexLock lock(&mutex_);
    auto entry = FindLocked(name);
    if (!entry.ok()) return entry.status();
    model = entry->model;
    if (entry->ensemble != nullptr) members = entry->ensemble->members();
  }
  v1::ModelInfo info = model->Describe(workers);
  info.set_daemon_id(options_.daemon_id);
  for (const auto& member : members) {
    v1::ModelInfo other = member->Describe(workers);
    info.set_live_workers(info.live_workers() + other.live_workers());
    info.set_known_workers(info.known_workers() + other.known_workers());
    info.set_waiting_workers(info.waiting_workers() + other.waiting_workers());
    for (v1::WorkerInfo& worker : *other.mutable_workers()) *info.add_workers() = std::move(worker);
  }
  return info;
}

std::vector<v1::ModelInfo> Models::DescribeAll(bool workers) const {
  std::vector<v1::ModelInfo> infos;
  for (const auto& model : List()) {
    infos.push_back(model->Describe(workers));
    infos.back().set_daemon_id(options_.daemon_id);
  }
  return infos;
}

absl::StatusOr<v1::GetHistoryReply> Models::ReadHistory(const v1::GetHistoryRequest& request) const {
  std::vector<std::shared_ptr<Model>> models;
  {
    MutexLock lock(&mutex_);
    auto entry = FindLocked(request.model());
    if (!entry.ok()) return entry.status();
    if (entry->ensemble != nullptr) models = entry->ensemble->members();
    models.insert(models.begin(), entry->model);
  }
  std::vector<uint64_t> ids;
  for (const auto& model : models) ids.push_back(model->id());
  v1::GetHistoryReply reply;
  if (auto status = histories_->Read(ids, request, &reply); !status.ok()) return status;
  v1::ModelInfo info = models.front()->Describe(/*workers=*/false);
  reply.set_updates(info.version());
  reply.set_training_time_s(info.training_time_s());
  reply.mutable_staleness_histogram()->Swap(info.mutable_staleness_histogram());
  return reply;
}

absl::StatusOr<v1::JoinReply> Models::Join(const v1::JoinRequest& request) {
  // First, so that a join that is refused leaves nothing behind.
  if (auto status = Membership::CheckJoin(request.worker(), request.incarnation(), request.nonce()); !status.ok()) {
    return status;
  }
  std::shared_ptr<Model> model;
  std::shared_ptr<Ensemble> ensemble;
  {
    MutexLock lock(&mutex_);
    auto entry = FindLocked(request.model());
    if (!entry.ok()) return entry.status();
    model = entry->model;
    ensemble = entry->ensemble;
  }
  if (ensemble != nullptr) {
    auto member = FindOrCreateMember(ensemble, request.worker());
    if (!member.ok()) return member.status();
    model = *std::move(member);
  }
  const auto incarnation = model->Join(request.worker(), request.incarnation(), request.nonce());
  if (!incarnation.ok()) return incarnation.status();
  v1::JoinReply reply;
  *reply.mutable_model() = model->Describe(/*workers=*/false);
  reply.mutable_model()->set_daemon_id(options_.daemon_id);
  reply.set_daemon_id(options_.daemon_id);
  reply.set_incarnation(*incarnation);
  reply.set_lease_s(absl::ToDoubleSeconds(options_.model.lease));
  return reply;
}

absl::StatusOr<std::shared_ptr<Model>> Models::FindMemberLocked(const std::shared_ptr<Ensemble>& ensemble,
                                                                const std::string& worker, std::string* place) const {
  const std::string& whole = ensemble->whole()->name();
  auto entry = FindLocked(whole);
  if (!entry.ok()) return entry.status();
  if (entry->ensemble != ensemble) {
    return absl::NotFoundError(absl::StrCat("ensemble '", whole, "' was deleted; join again"));
  }
  Ensemble::Place found = ensemble->Find(worker);
  if (found.member != nullptr) return found.member;
  if (models_.count(found.name) > 0) {
    return absl::AlreadyExistsError(absl::StrCat("model '", found.name,
                                                 "' exists and is not a member of the ensemble '", whole,
                                                 "'; delete it, or give the ensemble another name"));
  }
  if (auto status = CheckRoomLocked(); !status.ok()) return status;
  *place = std::move(found.name);
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Model>> Models::FindOrCreateMember(const std::shared_ptr<Ensemble>& ensemble,
                                                                  const std::string& worker) {
  std::shared_ptr<Model> made;
  std::string place;
  while (true) {
    {
      MutexLock lock(&mutex_);
      auto member = FindMemberLocked(ensemble, worker, &place);
      if (!member.ok() || *member != nullptr) return member;
      if (made != nullptr && made->name() == place) {
        ensemble->Take(worker, made);
        models_[place] = {.model = made, .member_of = ensemble};
        break;
      }
    }
    CheckedSpec spec = ensemble->whole()->checked_spec();
    spec.spec.set_name(place);
    auto fresh = MakeModel(std::move(spec), /*whole=*/false);
    if (!fresh.ok()) return fresh.status();
    made = *std::move(fresh);
    if (const auto initial = ensemble->whole()->initial_center(); initial.has_value()) {
      if (auto status = made->InitializeFrom(*initial); !status.ok()) return status;
    }
  }
  Tell(ModelEvent::Kind::kCreated, *made);
  return made;
}

void Models::Tick(absl::Duration overslept) {
  for (const auto& model : List()) model->Tick(overslept);
  budget_.Tick(overslept);
}

void Models::Drain() {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  for (const auto& model : List()) model->Drain(ShuttingDown());
}

void Models::Close() {
  Drain();
  for (const auto& model : List()) model->Close(ShuttingDown());
}

}  // namespace paramd
