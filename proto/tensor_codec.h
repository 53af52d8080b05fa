// The messages of an exchange, encoded and decoded by hand so that the floats are never copied. The bytes are plain
// protobuf: see ExchangeRequest and ExchangeReply in paramd.proto, which have the same field numbers.
#ifndef PARAMD_PROTO_TENSOR_CODEC_H_
#define PARAMD_PROTO_TENSOR_CODEC_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace paramd {

// Floats in a chunk that we send.
inline constexpr size_t kChunkFloats = size_t{256} << 10;  // 1 MiB

// A larger chunk must not come with its exchange's header: the server does not keep it while there is no room in
// flight.
inline constexpr size_t kMaxHeaderChunkBytes = size_t{64} << 10;

// What gRPC reads from a socket at once, at least. In its own 8 KiB every second exchange of 4 kB comes in two pieces.
inline constexpr int kMinReadBytes = 32 << 10;

// The longest message that either side accepts: a chunk of 4 MiB, and room for headers and for large specifications.
inline constexpr int kMaxMessageBytes = 8 << 20;

// One message: a header (ExchangeHeader or ReplyHeader) if not null, and a chunk if `data` is not null. The slice's
// memory must stay as it is until the slice is destroyed.
grpc::ByteBuffer EncodeExchange(const google::protobuf::MessageLite* header, uint64_t offset, const grpc::Slice* data);

// One message with a chunk that is in shared memory, and a header if not null.
grpc::ByteBuffer EncodeSharedExchange(const google::protobuf::MessageLite* header, uint64_t offset, uint64_t begin,
                                      uint64_t floats);

// A message as it arrived.
struct DecodedExchange {
  bool has_header = false;
  bool has_chunk = false;
  uint64_t offset = 0;
  std::vector<std::string_view> data;  // the chunk's bytes, in order
  std::shared_ptr<const void> owner;   // of those bytes
  size_t owner_bytes = 0;              // that it keeps: those, and what came in the same pieces of the transport
  // Of a chunk in shared memory; 0 floats: it is none.
  uint64_t shared_begin = 0;
  uint64_t shared_floats = 0;
};

// Parses `buffer`; the header goes to `header`. INVALID_ARGUMENT for bytes that are no such message.
absl::Status DecodeExchange(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* header, DecodedExchange* decoded);

}  // namespace paramd

#endif  // PARAMD_PROTO_TENSOR_CODEC_H_
