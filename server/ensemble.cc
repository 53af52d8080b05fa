#include "server/ensemble.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {

Ensemble::Ensemble(std::shared_ptr<Model> whole, const std::vector<std::string>& workers)
    : whole_(std::move(whole)), members_(workers.size()) {
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].empty()) indices_.emplace(workers[i], i);
  }
}

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

bool Ensemble::TakePlace(const std::string& worker, size_t index, std::shared_ptr<Model> member) {
  if (const auto it = indices_.find(worker); it != indices_.end() && it->second != index) return false;
  if (index >= members_.size()) members_.resize(index + 1);
  if (members_[index] != nullptr) return false;
  indices_[worker] = index;
  members_[index] = std::move(member);
  return true;
}

std::vector<std::string> Ensemble::workers() const {
  std::vector<std::string> workers(members_.size());
  for (const auto& [worker, index] : indices_) workers[index] = worker;
  return workers;
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
