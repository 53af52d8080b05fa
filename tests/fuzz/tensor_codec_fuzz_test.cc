// The codec and the generated classes on the same damaged bytes: neither crashes, and both find the same.
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/mutation.h"
#include "tests/proto/exchange_bytes.h"
#include "tests/support/seed.h"

namespace paramd {
namespace {

TEST_CASE("damaged messages are decoded as protobuf has it, or refused") {
  v1::ExchangeRequest request;
  *request.mutable_header() = SampleHeader();
  request.mutable_chunk()->set_offset(1000);
  request.mutable_chunk()->set_data(std::string(60, 'x'));
  const std::string good = request.SerializeAsString();
  const std::vector<uint64_t> seeds = testing::Seeds(50'000);
  size_t parsed_well = 0;
  for (const uint64_t seed : seeds) {
    std::mt19937_64 random(seed);
    std::string bytes = good;
    Mutate(&random, &bytes);
    const size_t cut = bytes.empty() ? 0 : random() % bytes.size();
    const Decoded decoded = Decode(Split(bytes, {cut}));
    v1::ExchangeRequest expected;
    const bool parsed = expected.ParseFromString(bytes);
    // The one thing that is refused beyond protobuf is a second chunk: the generated classes see but the last.
    const std::optional<size_t> chunks = CountChunks(bytes);
    REQUIRE((!parsed || chunks.has_value()));
    const bool valid = parsed && *chunks <= 1;
    if (!valid && !decoded.status.ok()) continue;
    ++parsed_well;
    const bool same = valid == decoded.status.ok() && decoded.has_header == expected.has_header() &&
                      decoded.has_chunk == expected.has_chunk() && decoded.offset == expected.chunk().offset() &&
                      decoded.data == expected.chunk().data() &&
                      decoded.shared_begin == expected.chunk().shared_begin() &&
                      decoded.shared_floats == expected.chunk().shared_floats() &&
                      decoded.header.SerializeAsString() == expected.header().SerializeAsString();
    if (!same) FAIL_CHECK("PARAMD_SEED=" << seed << ": valid: " << valid << ", the codec: " << decoded.status);
  }
  // About one in four.
  CHECK(parsed_well >= seeds.size() / 100);
}

}  // namespace
}  // namespace paramd
