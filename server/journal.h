// What a model writes to the log, so that an acknowledged commit is never lost.
#ifndef PARAMD_SERVER_JOURNAL_H_
#define PARAMD_SERVER_JOURNAL_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/algorithm.h"
#include "server/budget.h"
#include "server/center.h"
#include "server/commit_buffer.h"
#include "server/ledger.h"
#include "server/recorder.h"
#include "server/waiters.h"
#include "state/log.h"
#include "state/state.pb.h"

namespace paramd {

// The floats of a commit, which the log keeps although a Reader lets go of them. `room` is released with them.
LogPayload PayloadOf(const CommitBuffer& commit, Reservation room);
LogPayload PayloadOf(std::shared_ptr<const Snapshot> snapshot);

// Appends the records of one model, none of which may be missing: they wait for room on the disk. Each returns its
// position. `on_disk` as Log::Append's: an error only comes when the log ends. Thread-safe.
class Journal {
 public:
  using OnDisk = std::function<void(const absl::Status&)>;

  // `recorder` outlives it; null: nothing is written, and nothing may be appended.
  Journal(Recorder* recorder, uint64_t model_id) : recorder_(recorder), model_id_(model_id) {}

  bool writes() const { return recorder_ != nullptr; }

  uint64_t AppendInitialized(const FirstPoint& at, LogPayload center, OnDisk on_disk) const;
  // `contribution`: the floats are what Ledger::MakeContribution made.
  uint64_t AppendCommit(const ExchangeCall& call, const CommitInfo& info, v1::Encoding encoding, bool contribution,
                        LogPayload floats, OnDisk on_disk) const;
  uint64_t AppendRoundEnd(int64_t version, OnDisk on_disk) const;
  uint64_t AppendAcknowledged(const Caller& caller, uint64_t sequence) const;

 private:
  uint64_t Append(state::Record record, LogPayload payload, OnDisk on_disk) const;

  Recorder* const recorder_;
  const uint64_t model_id_;
};

// The floats of a record. INVALID_ARGUMENT: they are not `floats` of a known encoding.
absl::StatusOr<CommitBuffer> FloatsOf(const LogRecord& record, size_t floats, int32_t encoding);

}  // namespace paramd

#endif  // PARAMD_SERVER_JOURNAL_H_
