#include "server/ledger.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace paramd {
namespace {

absl::Status NonFiniteInitial(const CheckedSpec& spec, int64_t index) {
  const auto at = static_cast<uint64_t>(index);
  return absl::InvalidArgumentError(absl::StrCat("the initial center of model '", spec.spec.name(),
                                                 "' is NaN or infinite in ",
                                                 at < spec.floats ? DescribePosition(spec.spec, at) : "a state vector",
                                                 "; check the file or the initializer it comes from"));
}

// The CRC-32 of each tensor.
std::vector<uint32_t> Checksums(const v1::ModelSpec& spec, CommitBuffer* floats) {
  std::vector<uint32_t> checksums;
  CommitBuffer::Reader reader(floats, /*release=*/false);
  for (const v1::Tensor& tensor : spec.tensors()) {
    uLong crc = 0;
    for (size_t left = TensorFloats(tensor); left > 0;) {
      const absl::Span<const float> piece = reader.Read(std::min(left, kPieceFloats));
      crc = crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size() * sizeof(float)));
      left -= piece.size();
    }
    checksums.push_back(static_cast<uint32_t>(crc));
  }
  return checksums;
}

}  // namespace

size_t LedgerState::pinned_bytes() const {
  if (pool == nullptr) return 0;
  const size_t allocated = pool->allocated_bytes();
  return allocated - std::min(own_bytes, allocated);
}

Ledger::Ledger(const CheckedSpec* spec, const ServerHalf* algorithm, bool rounds, std::shared_ptr<ApplyPool> pool,
               Budget* budget)
    : spec_(*spec),
      algorithm_(*algorithm),
      sum_half_(algorithm),
      state_vectors_(std::max(0, algorithm->state_vectors())),
      rounds_(rounds),
      apply_pool_(std::move(pool)),
      budget_(budget) {}

LedgerState Ledger::state() const {
  if (!center_.has_value()) return {};
  return {.initialized = true,
          .version = center_->version(),
          .first_version = first_version_,
          .rounds = center_->rounds(),
          .problem = problem_,
          .pool = center_->pool(),
          .own_bytes = center_->own_bytes()};
}

Reservation Ledger::Count(BudgetKind kind) const {
  return budget_ != nullptr ? budget_->Count(kind, spec_.floats * sizeof(float)) : Reservation();
}

absl::StatusOr<bool> Ledger::Initialize(CommitBuffer* floats, const FirstPoint& at) {
  const std::string& name = spec_.spec.name();
  const bool with_state = floats->floats() == spec_.floats * static_cast<size_t>(1 + state_vectors_);
  if ((floats->floats() != spec_.floats && !with_state) || !floats->complete() || at.version < 0 || at.rounds < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the initial center of model '", name, "' has ", floats->received(),
                                                   " floats where the model has ", spec_.floats,
                                                   ", or begins at version ", at.version, " and round ", at.rounds));
  }
  if (floats->unstable()) {
    return absl::InternalError("the floats may still change while they are read: they were not made stable first");
  }
  if (floats->first_non_finite() >= 0) return NonFiniteInitial(spec_, floats->first_non_finite());
  std::vector<uint32_t> checksums = Checksums(spec_.spec, floats);
  if (!center_.has_value()) {
    try {
      Center center(spec_.floats, state_vectors_, apply_pool_);
      center.Set(floats, at.version, at.rounds);
      center_.emplace(std::move(center));
    } catch (const std::bad_alloc&) {
      return NoMemory();
    }
    center_room_ = Count(BudgetKind::kCenters);
    initial_checksums_ = std::move(checksums);
    first_version_ = at.version;
    return true;
  }
  std::vector<std::string> differing;
  for (int i = 0; i < spec_.spec.tensors_size(); ++i) {
    if (checksums[i] == initial_checksums_[i]) continue;
    differing.push_back(absl::StrCat("'", spec_.spec.tensors(i).name(), "'"));
  }
  if (differing.empty()) return false;
  return absl::AlreadyExistsError(absl::StrCat("model '", name, "' was initialized before with other values of ",
                                               differing.size(), " of its ", spec_.spec.tensors_size(),
                                               " tensors, first of ", differing.front(),
                                               "; pull the center to go on from it, or delete the model"));
}

absl::Status Ledger::InitializeFrom(const InitialCenter& initial) {
  if (center_.has_value()) return absl::OkStatus();
  try {
    center_.emplace(*initial.snapshot, state_vectors_, apply_pool_);
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
  center_room_ = Count(BudgetKind::kCenters);
  initial_checksums_ = initial.checksums;
  return absl::OkStatus();
}

absl::Status Ledger::NoMemory() const {
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory for the center of model '", spec_.spec.name(),
                                                   "', ", 1 + state_vectors_, " times ", spec_.floats * sizeof(float),
                                                   " bytes; give the server more, or delete models"));
}

InitialCenter Ledger::Initial() { return {center_->TakeSnapshot(), initial_checksums_}; }

void Ledger::Restore(Image image, const state::Checkpoint& record) {
  before_round_.reset();
  sum_room_ = image.folded > 0 ? Count(BudgetKind::kRounds) : Reservation();
  center_.emplace(std::move(image), apply_pool_);
  center_room_ = Count(BudgetKind::kCenters);
  initial_checksums_.assign(record.initial_checksums().begin(), record.initial_checksums().end());
  first_version_ = record.first_version();
  problem_ = record.problem().empty() ? absl::OkStatus() : absl::FailedPreconditionError(record.problem());
}

void Ledger::Save(state::Checkpoint* record) const {
  record->mutable_initial_checksums()->Add(initial_checksums_.begin(), initial_checksums_.end());
  record->set_first_version(first_version_);
  record->set_problem(Repaired(problem_.message()));
}

absl::Status Ledger::Merge(const CommitInfo& info, CommitBuffer* commit, const Snapshot* base) {
  return MergeBy(&algorithm_, info, commit, base);
}

absl::Status Ledger::MakeContribution(const CommitInfo& info, CommitBuffer* commit, const Snapshot* base) {
  if (commit->unstable()) return absl::InternalError("a contribution of a commit that was not made stable first");
  try {
    if (auto contribution = center_->Contribution(&algorithm_, info, commit, base); contribution.has_value()) {
      *commit = *std::move(contribution);
    }
  } catch (const std::bad_alloc&) {
    return NoMemoryToMerge();
  }
  NoteProblem();
  return center_->failure().empty() ? absl::OkStatus() : problem_;
}

absl::Status Ledger::MergeContribution(const CommitInfo& info, CommitBuffer* contribution) {
  return MergeBy(&sum_half_, info, contribution, nullptr);
}

absl::Status Ledger::MergeBy(const ServerHalf* algorithm, const CommitInfo& info, CommitBuffer* commit,
                             const Snapshot* base) {
  try {
    if (rounds_) {
      if (commit->unstable()) return absl::InternalError("a commit of a round that was not made stable first");
      center_->Fold(algorithm, info, commit, base);
      if (sum_room_.empty()) sum_room_ = Count(BudgetKind::kRounds);
    } else if (!center_->Apply(algorithm, info, commit, base) && center_->failure().empty()) {
      return commit->first_non_finite() >= 0 ? absl::InvalidArgumentError("NaN or infinite")
                                             : CommitBuffer::ChangedError();
    }
  } catch (const std::bad_alloc&) {
    return NoMemoryToMerge();
  }
  NoteProblem();
  return center_->failure().empty() ? absl::OkStatus() : problem_;
}

absl::Status Ledger::NoMemoryToMerge() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "there is no memory to apply a commit to model '", spec_.spec.name(), "' of ", spec_.floats * sizeof(float),
      " bytes, so it was not; send it again later, give the server more memory, or delete models"));
}

bool Ledger::FinishRound() {
  before_round_.reset();
  try {
    center_->FinishRound(&algorithm_);
  } catch (const std::bad_alloc&) {
    return false;
  }
  NoteProblem();
  return true;
}

void Ledger::NoteProblem() {
  if (!problem_.ok()) return;
  const std::string& name = spec_.spec.name();
  if (!center_->failure().empty()) {
    problem_ = absl::FailedPreconditionError(
        absl::StrCat("model '", name, "' can't be trained further: its algorithm '", spec_.spec.algorithm(),
                     "' threw in version ", center_->version(), ": ", center_->failure(),
                     "; mend it, delete the model and begin anew from the last good parameters"));
  } else if (center_->first_non_finite() >= 0) {
    problem_ = absl::FailedPreconditionError(absl::StrCat(
        "model '", name, "' can't be trained further: its center is NaN or infinite since version ", center_->version(),
        ", first in ", DescribePosition(spec_.spec, static_cast<uint64_t>(center_->first_non_finite())),
        ", although every commit was finite: what they add up to is not, as where training diverges; delete the model "
        "and "
        "begin anew, with a lower learning rate"));
  }
}

std::shared_ptr<const Snapshot> Ledger::TakeSnapshot() {
  return center_.has_value() ? center_->TakeSnapshot() : nullptr;
}

std::shared_ptr<const Snapshot> Ledger::TakeSnapshotWithState() const {
  return center_.has_value() ? std::make_shared<const Snapshot>(center_->TakeSnapshotWithState()) : nullptr;
}

std::shared_ptr<const HeldCenter> Ledger::BeforeRound() {
  if (before_round_ == nullptr) {
    before_round_ = std::make_shared<const HeldCenter>(
        HeldCenter{.snapshot = center_->TakeSnapshot(), .room = Count(BudgetKind::kRounds)});
  }
  return before_round_;
}

std::optional<Image> Ledger::TakeImage() const {
  if (!center_.has_value()) return std::nullopt;
  return center_->TakeImage();
}

void Ledger::Free() {
  before_round_.reset();
  center_.reset();
  center_room_.Release();
  sum_room_.Release();
}

}  // namespace paramd
