#include "examples/mpi/launch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paramd {
namespace {

bool Live(const v1::WorkerInfo* worker) { return worker != nullptr && worker->state() == v1::WorkerInfo::LIVE; }
bool Left(const v1::WorkerInfo* worker) { return worker != nullptr && worker->state() == v1::WorkerInfo::LEFT; }

// Of a rank that has not left; null: it never came.
std::string Problem(const v1::WorkerInfo* worker) {
  if (worker == nullptr) return " never came";
  switch (worker->state()) {
    case v1::WorkerInfo::FAILED:
      return absl::StrCat(" failed: ", absl::Utf8SafeCEscape(worker->message()));
    case v1::WorkerInfo::EXPIRED:
      return "'s lease ran out: it was killed, or hangs";
    default:
      return " has lost its connection: it was killed, or can't reach the daemon";
  }
}

}  // namespace

std::string RankName(int rank) { return absl::StrCat("rank-", rank); }

Launch::Launch(std::string model, int size, bool own_centers, const v1::ServerStatus& earlier)
    : model_(std::move(model)), size_(size), own_centers_(own_centers), earlier_(size), ranks_(size) {
  const std::vector<Found> found = Find(earlier);
  if (found[0].worker == nullptr) return;
  for (int rank = 0; rank < size; ++rank) {
    if (found[rank].worker != nullptr && !Live(found[rank].worker)) earlier_[rank] = found[rank].worker->incarnation();
  }
  for (const v1::ModelInfo& info : earlier.models()) earlier_totals_[info.spec().name()] = Count(info);
}

std::vector<Launch::Found> Launch::Find(const v1::ServerStatus& status) const {
  std::map<std::string, Found> by_name;
  for (const v1::ModelInfo& model : status.models()) {
    const std::string& name = model.spec().name();
    if (own_centers_ ? !absl::StartsWith(name, absl::StrCat(model_, "/")) : name != model_) continue;
    for (const v1::WorkerInfo& worker : model.workers()) by_name[worker.worker()] = {&model, &worker};
  }
  std::vector<Found> found(size_);
  for (int rank = 0; rank < size_; ++rank) {
    if (const auto it = by_name.find(RankName(rank)); it != by_name.end()) found[rank] = it->second;
  }
  return found;
}

void Launch::Update(const v1::ServerStatus& now) {
  status_ = now;
  ranks_ = Find(status_);
  for (int rank = 0; rank < size_; ++rank) {
    if (ranks_[rank].worker != nullptr && ranks_[rank].worker->incarnation() <= earlier_[rank]) ranks_[rank] = {};
  }
}

bool Launch::all_came() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Found& found) { return found.worker != nullptr; });
}

bool Launch::any_live() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Found& found) { return Live(found.worker); });
}

int Launch::finished() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Found& found) { return Left(found.worker); }));
}

std::vector<const v1::ModelInfo*> Launch::Trained() const {
  std::vector<const v1::ModelInfo*> trained;
  for (const Found& found : ranks_) {
    if (Left(found.worker) && (own_centers_ || trained.empty())) trained.push_back(found.model);
  }
  return trained;
}

std::vector<std::string> Launch::centers() const {
  std::vector<std::string> names;
  for (const v1::ModelInfo* model : Trained()) names.push_back(model->spec().name());
  return names;
}

Launch::Totals Launch::Count(const v1::ModelInfo& model) {
  const auto commits = static_cast<double>(model.commits());
  return {.updates = static_cast<uint64_t>(model.version()),
          .commits = commits,
          .staleness = model.mean_staleness() * commits};
}

Launch::Totals Launch::Sum() const {
  Totals sum;
  for (const v1::ModelInfo* model : Trained()) {
    const Totals totals = Count(*model);
    const auto it = earlier_totals_.find(model->spec().name());
    const Totals earlier = it == earlier_totals_.end() ? Totals() : it->second;
    sum.updates += totals.updates - earlier.updates;
    sum.commits += totals.commits - earlier.commits;
    sum.staleness += totals.staleness - earlier.staleness;
  }
  return sum;
}

uint64_t Launch::updates() const { return Sum().updates; }

double Launch::mean_staleness() const {
  const Totals sum = Sum();
  return sum.commits > 0 ? sum.staleness / sum.commits : 0;
}

std::string Launch::Problems() const {
  std::vector<std::string> problems;
  for (int rank = 0; rank < size_; ++rank) {
    if (!Left(ranks_[rank].worker)) problems.push_back(absl::StrCat("rank ", rank, Problem(ranks_[rank].worker)));
  }
  return absl::StrJoin(problems, "; ");
}

}  // namespace paramd
