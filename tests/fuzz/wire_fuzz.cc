// Messages of the exchange stream: the codec finds in them what the generated classes find.
#include <optional>
#include <string>
#include <string_view>

#include "tests/fuzz/targets.h"
#include "tests/proto/exchange_bytes.h"

namespace paramd {
namespace {

// Its first byte says where it is cut in two.
void FuzzWire(std::string_view input) {
  if (input.empty()) return;
  const std::string bytes(input.substr(1));
  const size_t cut = static_cast<unsigned char>(input[0]) * bytes.size() / 255;
  const Decoded decoded = Decode(Split(bytes, {cut}));
  v1::ExchangeRequest expected;
  const bool parsed = expected.ParseFromString(bytes);
  const std::optional<size_t> chunks = CountChunks(bytes);
  FUZZ_CHECK(!parsed || chunks.has_value());
  const bool valid = parsed && *chunks <= 1;
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
