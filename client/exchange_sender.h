// One exchange, as those who make its header hand it to those who carry it. Internal to the client.
#ifndef PARAMD_CLIENT_EXCHANGE_SENDER_H_
#define PARAMD_CLIENT_EXCHANGE_SENDER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/exchanger.h"
#include "proto/paramd.pb.h"

namespace paramd {

struct ExchangeOutcome {
  absl::Status status;    // the server's, INVALID_ARGUMENT for a commit that the encoding can't hold, or as Retry's
  v1::ReplyHeader reply;  // if the status is OK
  // What became of the commit that was sent or asked for.
  CommitState commit = CommitState::kNone;
  // Its answer is still to come: it may be applied, or it is, and others are waited for.
  bool pending = false;
  // With FAILED_PRECONDITION: the server came back from disk and lacks the center that this needed; pull, and go on.
  bool pull_again = false;
};

// Thread-compatible.
class ExchangeSender {
 public:
  virtual ~ExchangeSender() = default;

  // Sends `header`, which has everything but wait_ms and segment, with the floats of its commit or initial center, and
  // receives the center that it asks for into `center`: `deadline` bounds that, and what the server waits for.
  virtual ExchangeOutcome Send(v1::ExchangeHeader header, absl::Span<const float> commit, absl::Span<float> center,
                               absl::Time deadline) = 0;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_EXCHANGE_SENDER_H_
