// The worker's end of its exchanges. Internal to the client.
#ifndef PARAMD_CLIENT_COMMIT_SEQUENCE_H_
#define PARAMD_CLIENT_COMMIT_SEQUENCE_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/exchange_sender.h"
#include "client/exchanger.h"
#include "proto/paramd.pb.h"

namespace paramd {

// Numbers a worker's commits, knows which version they are based on, and what became of the last one. While that is
// pending, the next call finishes it first: so no worker is ahead by more than its model allows, however its calls end.
// Externally synchronized but for Refuse() and last_commit().
class CommitSequence {
 public:
  // `sender` must outlive it. `encoding`: of floats on the wire.
  CommitSequence(v1::Participant participant, uint64_t floats, v1::Encoding encoding, ExchangeSender* sender);

  // Either half may be absent. Errors: as Exchanger's.
  absl::StatusOr<Exchanged> Exchange(std::optional<absl::Span<const float>> update,
                                     std::optional<absl::Span<float>> center, absl::Time deadline);

  absl::Status Initialize(absl::Span<const float> center, absl::Time deadline);

  // Asks what became of the last commit that was sent, while its answer is pending, and waits for that. Errors: as
  // Exchange's; `commit` may be known all the same, and is kUnknown else.
  absl::Status FinishPending(absl::Time deadline, CommitState* commit);

  // A commit was given that nobody tried to send. Thread-safe.
  void Refuse() { last_commit_ = CommitState::kNotApplied; }

  // Thread-safe.
  CommitState last_commit() const { return last_commit_; }

 private:
  v1::ExchangeHeader Header() const;
  // What an exchange comes to that was told to.
  absl::StatusOr<Exchanged> PullAgain(const ExchangeOutcome& outcome, std::optional<absl::Span<float>> center,
                                      absl::Time deadline);

  const v1::Participant participant_;
  const uint64_t floats_;
  const v1::Encoding encoding_;
  ExchangeSender* const sender_;

  uint64_t sequence_ = 0;
  int64_t base_version_ = -1;
  bool pending_ = false;  // the commit of `sequence_`
  std::atomic<CommitState> last_commit_{CommitState::kNone};
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_COMMIT_SEQUENCE_H_
