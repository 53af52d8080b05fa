#include "client/commit_sequence.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {

CommitSequence::CommitSequence(v1::Participant participant, uint64_t floats, v1::Encoding encoding,
                               ExchangeSender* sender)
    : participant_(std::move(participant)), floats_(floats), encoding_(encoding), sender_(sender) {}

absl::StatusOr<Exchanged> CommitSequence::Exchange(std::optional<absl::Span<const float>> update,
                                                   std::optional<absl::Span<float>> center, absl::Time deadline) {
  if (update.has_value()) Refuse();
  if ((update.has_value() && update->size() != floats_) || (center.has_value() && center->size() != floats_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", participant_.model(), "' has ", floats_, " parameters, but ",
                     update.has_value() ? absl::StrCat("the commit has ", update->size()) : "",
                     update.has_value() && center.has_value() ? " and " : "",
                     center.has_value() ? absl::StrCat("the center has ", center->size()) : "",
                     "; compare the network's layers with the model's tensors"));
  }
  CommitState unfinished = CommitState::kNone;
  const absl::Status finished = FinishPending(deadline, &unfinished);
  if (update.has_value()) Refuse();  // so far, and not the pending one's state
  if (!finished.ok()) return finished;

  v1::ExchangeHeader header = Header();
  header.set_encoding(encoding_);
  if (update.has_value()) {
    v1::Commit* const commit = header.mutable_commit();
    commit->set_floats(update->size());
    commit->set_sequence(++sequence_);
    commit->set_base_version(base_version_);
    commit->set_pull(center.has_value());
  } else {
    header.mutable_pull();
  }
  const ExchangeOutcome outcome = sender_->Send(std::move(header), update.value_or(absl::Span<const float>()),
                                                center.value_or(absl::Span<float>()), deadline);
  if (update.has_value()) {
    last_commit_ = outcome.commit;
    pending_ = outcome.pending;
  }
  if (outcome.pull_again) return PullAgain(outcome, center, deadline);
  if (absl::IsUnimplemented(outcome.status)) {
    return absl::UnimplementedError(absl::StrCat(outcome.status.message(), " Upgrade the daemon, or use the wire f32"));
  }
  if (!outcome.status.ok()) return outcome.status;
  if (center.has_value()) base_version_ = outcome.reply.version();
  return Exchanged{.version = outcome.reply.version(), .staleness = outcome.reply.staleness()};
}

absl::StatusOr<Exchanged> CommitSequence::PullAgain(const ExchangeOutcome& outcome,
                                                    std::optional<absl::Span<float>> center, absl::Time deadline) {
  CommitState commit = outcome.commit;
  // An earlier attempt whose answer was lost may have been applied all the same.
  if (auto status = FinishPending(deadline, &commit); !status.ok()) return status;
  Exchanged exchanged{.applied = commit == CommitState::kApplied};
  if (!center.has_value()) return exchanged;
  v1::ExchangeHeader header = Header();
  header.set_encoding(encoding_);
  header.mutable_pull();
  const ExchangeOutcome pulled = sender_->Send(std::move(header), {}, *center, deadline);
  if (!pulled.status.ok()) return pulled.status;
  exchanged.version = base_version_ = pulled.reply.version();
  return exchanged;
}

absl::Status CommitSequence::Initialize(absl::Span<const float> center, absl::Time deadline) {
  v1::ExchangeHeader header = Header();
  header.mutable_initialize()->set_floats(center.size());
  return sender_->Send(std::move(header), center, {}, deadline).status;
}

absl::Status CommitSequence::FinishPending(absl::Time deadline, CommitState* commit) {
  *commit = last_commit_;
  if (!pending_) return absl::OkStatus();
  v1::ExchangeHeader header = Header();
  // Nobody waits for its center any more.
  header.mutable_await()->set_sequence(sequence_);
  const ExchangeOutcome outcome = sender_->Send(std::move(header), {}, {}, deadline);
  *commit = outcome.commit;
  if (outcome.commit != CommitState::kUnknown) last_commit_ = outcome.commit;
  pending_ = outcome.pending;
  return outcome.status;
}

v1::ExchangeHeader CommitSequence::Header() const {
  v1::ExchangeHeader header;
  *header.mutable_participant() = participant_;
  return header;
}

}  // namespace paramd
