#include "client/exchange_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/encoding.h"
#include "proto/status.h"

namespace paramd {
namespace {

// Rounded up, so that the server's answer does not come before the deadline.
uint64_t WaitMs(absl::Duration wait) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))));
}

}  // namespace

ExchangeClient::ExchangeClient(std::shared_ptr<Connection> connection, absl::Duration rpc_timeout,
                               Cancellation* cancellation, std::function<void(absl::string_view)> on_event)
    : connection_(std::move(connection)),
      rpc_timeout_(rpc_timeout),
      cancellation_(cancellation),
      on_event_(std::move(on_event)),
      stream_(connection_, cancellation) {}

ExchangeOutcome ExchangeClient::Send(v1::ExchangeHeader header, absl::Span<const float> commit,
                                     absl::Span<float> center, absl::Time deadline) {
  ExchangeOutcome outcome;
  if (header.has_commit()) outcome.commit = CommitState::kNotApplied;
  if (header.has_await()) {
    outcome.commit = CommitState::kUnknown;
    outcome.pending = true;
  }
  outcome.status = SendWithRetries(std::move(header), commit, center, deadline, &outcome);
  if (!outcome.status.ok() && shared_ != nullptr) shared_->TakeBack();
  return outcome;
}

absl::Status ExchangeClient::SendWithRetries(v1::ExchangeHeader header, absl::Span<const float> commit,
                                             absl::Span<float> center, absl::Time deadline, ExchangeOutcome* outcome) {
  Retry retry(connection_->clock(), deadline, rpc_timeout_);
  const v1::Encoding encoding = header.encoding();
  const uint64_t sequence = header.has_await() ? header.await().sequence() : header.commit().sequence();
  while (true) {
    if (auto cancelled = cancellation_->status(); !cancelled.ok()) return cancelled;
    // The server's "still waiting", which says for whom, is to come before the client calls it silent.
    header.set_wait_ms(WaitMs(std::min(deadline - retry.Now(), rpc_timeout_ / 2)));
    header.set_encoding(encoding);
    if (auto status = FindSegment(&retry, &header); !status.ok()) return status;
    if (const int64_t i = FirstOverflow(header.encoding(), commit.data(), commit.size()); i >= 0) {
      const auto index = static_cast<size_t>(i);
      return absl::InvalidArgumentError(
          absl::StrCat("the commit was not sent: ", DescribeOverflow(header.encoding(), index, commit[index])));
    }
    bool commit_sent = false;
    auto reply = stream_.Run(header, commit, center, shared_, &retry, &commit_sent);
    // Nor is it the same server, maybe.
    if (shared_ != nullptr && (!reply.ok() || reply->code() == static_cast<int>(absl::StatusCode::kUnavailable))) {
      shared_->Distrust();
    }
    if (!reply.ok()) {
      if (commit_sent && header.has_commit() && outcome->commit == CommitState::kNotApplied) {
        outcome->commit = CommitState::kUnknown;
        outcome->pending = true;
      }
      const bool transient = IsUnreachable(reply.status());
      if (transient && cancellation_->status().ok() && retry.IsNews(reply.status())) Tell(reply.status());
      if (auto status = Pause(reply.status(), transient, &retry); !status.ok()) return status;
      continue;
    }
    const absl::Status answer = FromWireStatus(reply->code(), reply->message());
    const bool news = retry.Answered(answer);
    const bool transient = absl::IsUnavailable(answer);
    if (reply->committed()) {
      outcome->commit = CommitState::kApplied;
      outcome->pending = absl::IsDeadlineExceeded(answer) || transient;
    } else if (answer.ok() && sequence != 0) {
      outcome->commit = CommitState::kNotApplied;
      outcome->pending = false;
    }
    if (answer.ok()) {
      // An answer that nobody waits for any more need not be kept either.
      const bool given_up = reply->committed() && header.has_await() && !header.await().pull();
      if (reply->acknowledge() || given_up) {
        v1::ExchangeHeader acknowledge;
        *acknowledge.mutable_participant() = header.participant();
        acknowledge.mutable_acknowledge()->set_sequence(sequence);
        stream_.Acknowledge(acknowledge);
      }
      outcome->reply = *std::move(reply);
      return absl::OkStatus();
    }
    // Only its answer is still to come.
    if (reply->committed() && header.has_commit()) {
      const bool pull = header.commit().pull();
      header.mutable_await()->set_sequence(sequence);
      header.mutable_await()->set_pull(pull);
      commit = {};
    }
    outcome->pull_again = reply->pull_again();
    if (outcome->pull_again) Tell(answer);
    if (absl::IsDeadlineExceeded(answer)) {
      if (retry.Now() >= deadline) return answer;
      continue;  // Others, or room, are being waited for.
    }
    if (transient && news) Tell(answer);
    if (auto status = Pause(answer, transient, &retry); !status.ok()) return status;
  }
}

absl::Status ExchangeClient::FindSegment(Retry* retry, v1::ExchangeHeader* header) {
  // The initial center has no sequence, by which a commit in shared memory is known to be whole.
  while (shared_ != nullptr && !header->has_initialize()) {
    const absl::Status found = shared_->Begin(header, retry->attempt_deadline());
    if (found.ok()) {
      if (header->segment() != 0) header->set_encoding(v1::FLOAT32);
      return found;
    }
    if (retry->IsNews(found)) Tell(found);
    // Another daemon, or room for another segment, takes a moment to come.
    const bool transient = IsUnreachable(found) || absl::IsResourceExhausted(found);
    if (auto status = Pause(found, transient, retry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void ExchangeClient::Tell(const absl::Status& error) const {
  if (on_event_ != nullptr) on_event_(absl::StrCat("exchange: ", error.message()));
}

absl::Status ExchangeClient::Pause(const absl::Status& error, bool transient, Retry* retry) {
  if (auto cancelled = cancellation_->status(); !cancelled.ok()) return cancelled;
  const absl::StatusOr<absl::Time> next = retry->Next(error, transient);
  return next.ok() ? stream_.Pause(*next) : next.status();
}

}  // namespace paramd
