// Messages of the exchange stream as bytes, for tests of the codec.
#ifndef PARAMD_TESTS_PROTO_EXCHANGE_BYTES_H_
#define PARAMD_TESTS_PROTO_EXCHANGE_BYTES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/paramd.pb.h"
#include "proto/tensor_codec.h"

namespace paramd {

inline std::string Join(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string joined;
  if (!buffer.Dump(&slices).ok()) return joined;
  for (const grpc::Slice& slice : slices) joined.append(slice.begin(), slice.end());
  return joined;
}

// `bytes` in slices that end at the given places.
inline grpc::ByteBuffer Split(const std::string& bytes, const std::vector<size_t>& ends) {
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (const size_t end : ends) {
    slices.emplace_back(bytes.data() + begin, end - begin);
    begin = end;
  }
  slices.emplace_back(bytes.data() + begin, bytes.size() - begin);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// The chunks of a message; nothing if it is none.
inline std::optional<size_t> CountChunks(const std::string& bytes) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  size_t chunks = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == WireFormatLite::MakeTag(2, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) ++chunks;
    if (!WireFormatLite::SkipField(&in, tag)) return std::nullopt;
  }
  return chunks;
}

// A message as DecodeExchange found it.
struct Decoded {
  absl::Status status;
  v1::ExchangeHeader header;
  bool has_header = false;
  bool has_chunk = false;
  uint64_t offset = 0;
  uint64_t shared_begin = 0;
  uint64_t shared_floats = 0;
  std::string data;
};

inline Decoded Decode(grpc::ByteBuffer buffer) {
  Decoded decoded;
  DecodedExchange exchange;
  decoded.status = DecodeExchange(&buffer, &decoded.header, &exchange);
  // The bytes must not depend on the buffer.
  buffer.Clear();
  decoded.has_header = exchange.has_header;
  decoded.has_chunk = exchange.has_chunk;
  decoded.offset = exchange.offset;
  decoded.shared_begin = exchange.shared_begin;
  decoded.shared_floats = exchange.shared_floats;
  for (const std::string_view piece : exchange.data) decoded.data.append(piece);
  return decoded;
}

inline v1::ExchangeHeader SampleHeader() {
  v1::ExchangeHeader header;
  header.mutable_participant()->set_model("mnist");
  header.mutable_participant()->set_worker("worker-0");
  header.mutable_participant()->set_incarnation(3);
  header.mutable_participant()->set_model_id(~uint64_t{0});
  header.mutable_commit()->set_sequence(1'000'000);
  header.mutable_commit()->set_base_version(-1);
  header.mutable_commit()->set_floats(uint64_t{1} << 33);
  header.mutable_commit()->set_pull(true);
  return header;
}

}  // namespace paramd

#endif  // PARAMD_TESTS_PROTO_EXCHANGE_BYTES_H_
