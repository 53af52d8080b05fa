#include "server/models.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paramd {
namespace {

absl::Status Draining() { return absl::UnavailableError("the server is shutting down; try again when it is back"); }

}  // namespace

Models::Models(ModelsOptions options)
    : options_(options),
      budget_(options.budget),
      histories_(std::make_shared<Histories>(HistoriesOptions{
          .max_records = options.max_history_records, .max_bytes = options.max_history_bytes, .budget = &budget_})) {}

absl::StatusOr<v1::ModelInfo> Models::Create(const v1::ModelSpec& spec) {
  auto checked = CheckSpec(spec, options_.max_model_bytes);
  if (!checked.ok()) return checked.status();
  std::shared_ptr<Model> model;
  {
    MutexLock lock(&mutex_);
    if (draining_) return Draining();
    if (const auto it = models_.find(spec.name()); it != models_.end()) {
      const std::string difference = DescribeDifference(it->second->checked_spec().spec, checked->spec);
      if (!difference.empty()) {
        return absl::AlreadyExistsError(absl::StrCat("model '", spec.name(), "' exists with another specification: ",
                                                     difference, "; use another name, or delete it first"));
      }
      model = it->second;
    } else {
      auto inserted = InsertLocked(*std::move(checked));
      if (!inserted.ok()) return inserted.status();
      model = *std::move(inserted);
    }
  }
  v1::ModelInfo info = model->Describe();
  info.set_daemon_id(options_.daemon_id);
  return info;
}

absl::StatusOr<std::shared_ptr<Model>> Models::InsertLocked(CheckedSpec spec) {
  if (models_.size() >= options_.max_models) {
    return absl::ResourceExhaustedError(absl::StrCat("the server hosts ", models_.size(),
                                                     " models, as many as it allows; delete one or raise "
                                                     "--max_models"));
  }
  ModelOptions options = options_.model;
  options.budget = &budget_;
  options.histories = histories_;
  auto model = std::make_shared<Model>(std::move(spec), std::move(options));
  models_.emplace(model->name(), model);
  return model;
}

absl::StatusOr<std::shared_ptr<Model>> Models::Find(const std::string& name) const {
  MutexLock lock(&mutex_);
  return FindLocked(name);
}

absl::StatusOr<std::shared_ptr<Model>> Models::Find(const v1::Participant& participant) const {
  const bool reader = participant.worker().empty();
  if (!reader && (participant.daemon_id() == 0 || participant.model_id() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker '", participant.worker(),
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

absl::StatusOr<std::shared_ptr<Model>> Models::FindLocked(const std::string& name) const {
  if (draining_) return Draining();
  if (const auto it = models_.find(name); it != models_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [other, model] : models_) {
    names.push_back(other);
    if (names.size() == 5 && models_.size() > 5) {
      names.push_back("...");
      break;
    }
  }
  return absl::NotFoundError(absl::StrCat("there is no model '", name, "' on this server; ",
                                          names.empty() ? "it has none" : "it has " + absl::StrJoin(names, ", "),
                                          "; create it with `paramctl create`, or let a worker bring its "
                                          "specification"));
}

absl::Status Models::Delete(const std::string& name) {
  std::vector<std::shared_ptr<Model>> deleted;
  {
    MutexLock lock(&mutex_);
    auto model = FindLocked(name);
    if (!model.ok()) return model.status();
    deleted.push_back(*std::move(model));
    models_.erase(name);
    if (const auto it = ensembles_.find(name); it != ensembles_.end()) {
      for (size_t i = 0; i < it->second.size(); ++i) {
        if (const auto member = models_.find(absl::StrCat(name, "/", i)); member != models_.end()) {
          deleted.push_back(member->second);
          models_.erase(member);
        }
      }
      ensembles_.erase(it);
    }
  }
  for (const auto& model : deleted) {
    model->Close(absl::NotFoundError(absl::StrCat("model '", model->name(), "' was deleted")));
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<Model>> Models::List() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [name, model] : models_) models.push_back(model);
  return models;
}

absl::StatusOr<v1::ModelInfo> Models::Describe(const std::string& name) const {
  std::shared_ptr<Model> model;
  std::vector<std::shared_ptr<Model>> members;
  {
    MutexLock lock(&mutex_);
    auto found = FindLocked(name);
    if (!found.ok()) return found.status();
    model = *std::move(found);
    if (const auto it = ensembles_.find(name); it != ensembles_.end()) {
      for (size_t i = 0; i < it->second.size(); ++i) {
        if (const auto member = models_.find(absl::StrCat(name, "/", i)); member != models_.end()) {
          members.push_back(member->second);
        }
      }
    }
  }
  v1::ModelInfo info = model->Describe();
  info.set_daemon_id(options_.daemon_id);
  for (const auto& member : members) info.mutable_workers()->MergeFrom(member->Describe().workers());
  return info;
}

absl::StatusOr<v1::JoinReply> Models::Join(const v1::JoinRequest& request) {
  auto model = Find(request.model());
  if (!model.ok()) return model.status();
  if ((*model)->own_centers()) {
    model = FindOrCreateMember(**model, request.worker(), (*model)->TakeSnapshot());
    if (!model.ok()) return model.status();
  }
  auto incarnation = (*model)->Join(request.worker(), request.incarnation(), request.nonce());
  if (!incarnation.ok()) return incarnation.status();
  v1::JoinReply reply;
  *reply.mutable_model() = (*model)->Describe();
  reply.mutable_model()->clear_workers();
  reply.mutable_model()->set_daemon_id(options_.daemon_id);
  reply.set_daemon_id(options_.daemon_id);
  reply.set_incarnation(*incarnation);
  reply.set_lease_s(absl::ToDoubleSeconds(options_.model.lease));
  return reply;
}

absl::StatusOr<std::shared_ptr<Model>> Models::FindOrCreateMember(const Model& ensemble, const std::string& worker,
                                                                  std::shared_ptr<const Snapshot> initial) {
  std::shared_ptr<Model> member;
  {
    MutexLock lock(&mutex_);
    // It may have been deleted meanwhile.
    if (auto found = FindLocked(ensemble.name()); !found.ok()) return found.status();
    std::vector<std::string>& workers = ensembles_[ensemble.name()];
    const auto it = std::find(workers.begin(), workers.end(), worker);
    const bool known = it != workers.end();
    const std::string name = absl::StrCat(ensemble.name(), "/", it - workers.begin());
    if (known) {
      // Unless somebody deleted it alone.
      if (auto found = FindLocked(name); found.ok()) return found;
    }
    CheckedSpec spec = ensemble.checked_spec();
    spec.spec.set_name(name);
    if (models_.count(name) > 0) {
      return absl::AlreadyExistsError(absl::StrCat("model '", name, "' exists and is not a member of the ensemble '",
                                                   ensemble.name(), "'; delete it, or give the ensemble another name"));
    }
    auto inserted = InsertLocked(std::move(spec));
    if (!inserted.ok()) return inserted.status();
    member = *std::move(inserted);
    if (!known) workers.push_back(worker);
  }
  if (initial != nullptr) member->InitializeFrom(*initial);
  return member;
}

void Models::Tick(absl::Duration overslept) {
  for (const auto& model : List()) model->Tick();
  budget_.Tick(overslept);
}

void Models::Drain() {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  for (const auto& model : List()) model->Close(Draining());
}

}  // namespace paramd
