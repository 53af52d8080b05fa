// Exchanges with retries: what Worker and Admin have in common. Internal to the client.
#ifndef PARAMD_CLIENT_EXCHANGE_CLIENT_H_
#define PARAMD_CLIENT_EXCHANGE_CLIENT_H_

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "client/exchange_sender.h"
#include "client/exchange_stream.h"
#include "client/shared_memory.h"

namespace paramd {

// Thread-compatible.
class ExchangeClient : public ExchangeSender {
 public:
  // `rpc_timeout`: how long the server may be out of reach or silent. `cancellation` must outlive it.
  ExchangeClient(std::shared_ptr<Connection> connection, absl::Duration rpc_timeout, Cancellation* cancellation,
                 std::function<void(absl::string_view)> on_event);

  // What exchanges go through from now on where that is possible. It must outlive them.
  void set_shared_memory(SharedMemory* shared) { shared_ = shared; }

  // The header's encoding is that of floats that do not go through a segment.
  ExchangeOutcome Send(v1::ExchangeHeader header, absl::Span<const float> commit, absl::Span<float> center,
                       absl::Time deadline) override;

  // Closes its connection, until there is another exchange.
  void Disconnect() { stream_.Disconnect(); }

 private:
  absl::Status SendWithRetries(v1::ExchangeHeader header, absl::Span<const float> commit, absl::Span<float> center,
                               absl::Time deadline, ExchangeOutcome* outcome);
  // Gets a segment for the attempt, if exchanges go through one.
  absl::Status FindSegment(Retry* retry, v1::ExchangeHeader* header);
  void Tell(const absl::Status& error) const;
  // Waits until the next attempt, or says what the call returns.
  absl::Status Pause(const absl::Status& error, bool transient, Retry* retry);

  const std::shared_ptr<Connection> connection_;
  const absl::Duration rpc_timeout_;
  Cancellation* const cancellation_;
  const std::function<void(absl::string_view)> on_event_;
  SharedMemory* shared_ = nullptr;
  ExchangeStream stream_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_EXCHANGE_CLIENT_H_
