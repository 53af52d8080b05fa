#include "server/ensemble.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {

Ensemble::Place Ensemble::Find(const std::string& worker) const {
  const auto it = indices_.find(worker);
  const size_t index = it == indices_.end() ? members_.size() : it->second;
  return {.name = absl::StrCat(whole_->name(), "/", index), .member = it == indices_.end() ? nullptr : members_[index]};
}

void Ensemble::Take(const std::string& worker, std::shared_ptr<Model> member) {
  const auto [it, is_new] = indices_.try_emplace(worker, members_.size());
  if (is_new) members_.emplace_back();
  members_[it->second] = std::move(member);
}

void Ensemble::Forget(const Model* member) {
  for (std::shared_ptr<Model>& model : members_) {
    if (model.get() == member) model = nullptr;
  }
}

std::vector<std::shared_ptr<Model>> Ensemble::members() const {
  std::vector<std::shared_ptr<Model>> members;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(members),
               [](const auto& member) { return member != nullptr; });
  return members;
}

}  // namespace paramd
