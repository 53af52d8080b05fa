#include "server/commit_check.h"

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// Of the status' payload.
constexpr char kPullAgain[] = "paramd.pull_again";

}  // namespace

absl::Status PullAgain(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kPullAgain, absl::Cord("1"));
  return status;
}

bool IsPullAgain(const absl::Status& status) { return status.GetPayload(kPullAgain).has_value(); }

absl::Status PullAgainSinceRestored(const CheckedSpec& spec, const Member& member) {
  return PullAgain(absl::StrCat("model '", spec.spec.name(), "' was brought back to a checkpoint since worker '",
                                member.record.name, "' pulled; pull, and go on from there"));
}

absl::Status CheckCommit(const CheckedSpec& spec, const LedgerState& state, bool needs_base, const Member& member,
                         const ExchangeCall& call) {
  const std::string& worker = call.caller.worker;
  const LastCommit& last = member.record.last;
  if (call.floats != spec.floats) {
    return absl::InvalidArgumentError(absl::StrCat("a commit of worker '", worker, "' has ", call.floats,
                                                   " floats where model '", spec.spec.name(), "' has ", spec.floats,
                                                   "; the worker trains another network than the model's: compare "
                                                   "its layers with `paramctl show`"));
  }
  if (call.sequence == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a commit of worker '", worker, "' has sequence 0; count them from 1"));
  }
  if (call.sequence < last.sequence) {
    return absl::FailedPreconditionError(absl::StrCat("commit ", call.sequence, " of worker '", worker,
                                                      "' comes after its commit ", last.sequence,
                                                      "; sequences only grow"));
  }
  if (!state.initialized) {
    return absl::FailedPreconditionError(absl::StrCat("model '", spec.spec.name(),
                                                      "' has no center yet; initialize it with a "
                                                      "worker or `paramctl create --from`"));
  }
  if (call.sequence == last.sequence) return absl::OkStatus();  // A retry: its base may be gone.
  if (!state.problem.ok()) return state.problem;
  if (call.sequence <= last.closed_sequence) {
    return absl::FailedPreconditionError(absl::StrCat("commit ", call.sequence, " of worker '", worker,
                                                      "' comes after the worker was told that it had not been "
                                                      "applied; send it as a later sequence"));
  }
  if (last.came_back_at == -1 && call.base_version >= 0) return PullAgainSinceRestored(spec, member);
  if (last.came_back_at.has_value() && call.base_version > *last.came_back_at) {
    return PullAgain(absl::StrCat("worker '", worker, "' trained from version ", call.base_version, " of model '",
                                  spec.spec.name(),
                                  "', which this server does not know since it came back from disk at "
                                  "version ",
                                  *last.came_back_at, "; the commit was not applied: pull, and go on from there"));
  }
  if (call.base_version > state.version) {
    return absl::InvalidArgumentError(absl::StrCat("a commit of worker '", worker, "' has base version ",
                                                   call.base_version, ", but the center is only at version ",
                                                   state.version));
  }
  const HeldCenter* const base = member.session.base.get();
  if (needs_base && last.came_back_at.has_value() && base == nullptr) {
    return PullAgain(absl::StrCat("the center that worker '", worker,
                                  "' trained from is not held since the server came "
                                  "back from disk (",
                                  spec.spec.algorithm(),
                                  " needs it); the commit was not applied: pull, "
                                  "and go on from there"));
  }
  if (needs_base && (base == nullptr || base->snapshot->version != call.base_version)) {
    return absl::FailedPreconditionError(absl::StrCat("the center of version ", call.base_version, " that worker '",
                                                      worker, "' trained from is no longer held (",
                                                      spec.spec.algorithm(), " needs it); pull and train again"));
  }
  return absl::OkStatus();
}

absl::Status NonFiniteError(const CheckedSpec& spec, const std::string& worker, const CommitBuffer& commit) {
  return absl::InvalidArgumentError(
      absl::StrCat("a commit of worker '", worker, "' to model '", spec.spec.name(), "' is NaN or infinite in ",
                   DescribePosition(spec.spec, static_cast<uint64_t>(commit.first_non_finite())),
                   ", so it was not applied; if this is what training made, it has diverged: lower the learning rate "
                   "or clip gradients"));
}

}  // namespace paramd
