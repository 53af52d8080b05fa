// The stream that exchanges travel through. Internal to the client.
#ifndef PARAMD_CLIENT_EXCHANGE_STREAM_H_
#define PARAMD_CLIENT_EXCHANGE_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "client/retry.h"
#include "proto/chunk_pool.h"
#include "proto/paramd.pb.h"

namespace paramd {

class SharedMemory;

// The long-lived stream of one worker or reader. Thread-compatible.
class ExchangeStream {
 public:
  ExchangeStream(std::shared_ptr<Connection> connection, Cancellation* cancellation);
  ~ExchangeStream();

  ExchangeStream(const ExchangeStream&) = delete;
  ExchangeStream& operator=(const ExchangeStream&) = delete;

  // One attempt of one exchange: sends the header and `commit` (empty: none), receives the reply and the pulled floats
  // into `center`. Both travel in the header's encoding, or through `shared` if the header names a segment. An error is
  // the transport's, with its explanation, and the stream begins anew with the next attempt; the server's own answer is
  // in the reply. Returns soon after `retry`'s deadlines, and then nothing refers to the spans any more.
  // `*commit_sent`: the server may have the whole commit.
  absl::StatusOr<v1::ReplyHeader> Run(const v1::ExchangeHeader& header, absl::Span<const float> commit,
                                      absl::Span<float> center, const SharedMemory* shared, Retry* retry,
                                      bool* commit_sent);

  // Tells the server that an answer arrived; nothing comes back.
  void Acknowledge(const v1::ExchangeHeader& header);

  // Between attempts: as Connection::Pause, of this stream's connection.
  absl::Status Pause(absl::Time until);

  // Closes the stream and its TCP connection, until there is another attempt.
  void Disconnect();

 private:
  struct Call;
  class Transfer;

  // Unless there is one that still has the client's certificates.
  void OpenChannel();
  absl::Status Start(absl::Time deadline);
  // Waits for one operation and returns whether it succeeded; DEADLINE_EXCEEDED at `deadline`.
  absl::StatusOr<bool> Step(absl::Time deadline);
  void Write(const grpc::ByteBuffer& message);
  void Read();
  // Ends the stream, whatever state it is in. `broken`: it has ended by itself, and what is returned is why.
  absl::Status Close(bool broken);

  const std::shared_ptr<Connection> connection_;
  Cancellation* const cancellation_;
  const std::shared_ptr<ChunkPool> chunks_;
  std::shared_ptr<grpc::Channel> channel_;  // null: to be opened
  uint64_t channel_generation_ = 0;
  std::unique_ptr<Call> call_;  // null: to be started
  bool writing_ = false;
  bool reading_ = false;
  bool arrived_ = false;  // the call's `in` holds a message
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_EXCHANGE_STREAM_H_
