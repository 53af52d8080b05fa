// Messages of the exchange stream: the codec finds in them what the generated classes find.
#include <string>
#include <string_view>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/exchange_bytes.h"

namespace paramd {
namespace {

// In a message that protobuf parses.
size_t CountChunks(const std::string& bytes) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  size_t chunks = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == WireFormatLite::MakeTag(2, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) ++chunks;
    FUZZ_CHECK(WireFormatLite::SkipField(&in, tag));
  }
  return chunks;
}

// Its first byte says where it is cut in two.
void FuzzWire(std::string_view input) {
  if (input.empty()) return;
  const std::string bytes(input.substr(1));
  const size_t cut = static_cast<unsigned char>(input[0]) * bytes.size() / 255;
  const Decoded decoded = Decode(Split(bytes, {cut}));
  v1::ExchangeRequest expected;
  const bool valid = expected.ParseFromString(bytes) && CountChunks(bytes) <= 1;
  FUZZ_CHECK(valid == decoded.status.ok());
  if (!valid) return;
  FUZZ_CHECK(decoded.has_header == expected.has_header());
  FUZZ_CHECK(decoded.has_chunk == expected.has_chunk());
  FUZZ_CHECK(decoded.offset == expected.chunk().offset());
  FUZZ_CHECK(decoded.data == expected.chunk().data());
  FUZZ_CHECK(decoded.shared_begin == expected.chunk().shared_begin());
  FUZZ_CHECK(decoded.shared_floats == expected.chunk().shared_floats());
  FUZZ_CHECK(decoded.header.SerializeAsString() == expected.header().SerializeAsString());
}

const FuzzTargetRegistration registration("wire", FuzzWire);

}  // namespace
}  // namespace paramd
