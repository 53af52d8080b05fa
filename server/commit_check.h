// What can be wrong with a commit, in words that say what happened, the likely cause and the next step.
#ifndef PARAMD_SERVER_COMMIT_CHECK_H_
#define PARAMD_SERVER_COMMIT_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "server/commit_buffer.h"
#include "server/ledger.h"
#include "server/membership.h"
#include "server/spec.h"
#include "server/waiters.h"

namespace paramd {

// FAILED_PRECONDITION that says to a worker: this server came back from disk, or the model to a checkpoint, and lacks
// the center that the commit or its answer needs; pull again.
absl::Status PullAgain(absl::string_view message);
bool IsPullAgain(const absl::Status& status);

// To a worker whose model was brought back to a checkpoint since it pulled.
absl::Status PullAgainSinceRestored(const CheckedSpec& spec, const Member& member);

// As far as that can be known without its floats. INVALID_ARGUMENT, FAILED_PRECONDITION.
absl::Status CheckCommit(const CheckedSpec& spec, const LedgerState& state, bool needs_base, const Member& member,
                         const ExchangeCall& call);

// INVALID_ARGUMENT of one that is NaN or infinite, where its first_non_finite() says.
absl::Status NonFiniteError(const CheckedSpec& spec, const std::string& worker, const CommitBuffer& commit);

}  // namespace paramd

#endif  // PARAMD_SERVER_COMMIT_CHECK_H_
