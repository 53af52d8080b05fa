#include "server/journal.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {

LogPayload PayloadOf(const CommitBuffer& commit, Reservation room) {
  LogPayload payload;
  for (const CommitBuffer::Piece& piece : commit.pieces()) payload.pieces.push_back({piece.bytes, piece.owner});
  payload.pieces.push_back({"", std::make_shared<const Reservation>(std::move(room))});
  return payload;
}

LogPayload PayloadOf(std::shared_ptr<const Snapshot> snapshot) {
  LogPayload payload;
  for (const BlockRef& block : snapshot->blocks) {
    const absl::Span<const float> floats = block.floats();
    payload.pieces.push_back({{reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)}, snapshot});
  }
  return payload;
}

uint64_t Journal::Append(state::Record record, LogPayload payload, OnDisk on_disk) const {
  record.set_model(model_id_);
  return recorder_->log()->Append(record.SerializeAsString(), std::move(payload), std::move(on_disk),
                                  AppendMode::kUntilWritten);
}

uint64_t Journal::AppendInitialized(const FirstPoint& at, LogPayload center, OnDisk on_disk) const {
  state::Record record;
  record.mutable_initialized()->set_version(at.version);
  record.mutable_initialized()->set_rounds(at.rounds);
  return Append(std::move(record), std::move(center), std::move(on_disk));
}

uint64_t Journal::AppendCommit(const ExchangeCall& call, const CommitInfo& info, v1::Encoding encoding,
                               bool contribution, LogPayload floats, OnDisk on_disk) const {
  state::Record record;
  state::Commit* const commit = record.mutable_commit();
  commit->set_worker(call.caller.worker);
  commit->set_incarnation(call.caller.incarnation);
  commit->set_nonce(call.caller.nonce);
  commit->set_sequence(call.sequence);
  commit->set_base_version(info.base_version);
  commit->set_version(info.version);
  commit->set_staleness(info.staleness);
  commit->set_encoding(encoding);
  commit->set_contribution(contribution);
  commit->set_pull(call.pull);
  return Append(std::move(record), std::move(floats), std::move(on_disk));
}

uint64_t Journal::AppendRoundEnd(int64_t version, OnDisk on_disk) const {
  state::Record record;
  record.mutable_round_end()->set_version(version);
  return Append(std::move(record), {}, std::move(on_disk));
}

uint64_t Journal::AppendAcknowledged(const Caller& caller, uint64_t sequence) const {
  state::Record record;
  state::Acknowledged* const acknowledged = record.mutable_acknowledged();
  acknowledged->set_worker(caller.worker);
  acknowledged->set_incarnation(caller.incarnation);
  acknowledged->set_sequence(sequence);
  return Append(std::move(record), {}, nullptr);
}

absl::StatusOr<CommitBuffer> FloatsOf(const LogRecord& record, size_t floats, int32_t encoding) {
  const size_t float_bytes = FloatBytes(static_cast<v1::Encoding>(encoding));
  if (float_bytes == 0 || record.payload.size() % float_bytes != 0 || record.payload.size() / float_bytes != floats) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record has ", record.payload.size(), " bytes where ", floats, " floats are due"));
  }
  CommitBuffer buffer(floats, static_cast<v1::Encoding>(encoding));
  if (auto status = buffer.Append(0, {record.payload}, record.owner); !status.ok()) return status;
  return buffer;
}

}  // namespace paramd
