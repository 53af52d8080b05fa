// The hand-written codec against the generated classes.
#include "proto/tensor_codec.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/proto/exchange_bytes.h"

namespace paramd {
namespace {

// Tags of ExchangeRequest and Chunk.
const std::string kHeaderTag = "\x0a";
const std::string kChunkTag = "\x12";
const std::string kDataTag = "\x12";

std::string Data(size_t bytes) {
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + i / 251);
  return data;
}

v1::ExchangeRequest Request(const v1::ExchangeHeader* header, uint64_t offset, const std::string* data) {
  v1::ExchangeRequest request;
  if (header != nullptr) *request.mutable_header() = *header;
  if (data != nullptr) {
    request.mutable_chunk()->set_offset(offset);
    request.mutable_chunk()->set_data(*data);
  }
  return request;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Delimited(const std::string& tag, const std::string& bytes) { return tag + Varint(bytes.size()) + bytes; }

void CheckDecoded(const Decoded& decoded, const v1::ExchangeRequest& expected) {
  INFO(decoded.status);
  CHECK(decoded.status.ok());
  CHECK(decoded.has_header == expected.has_header());
  CHECK(decoded.has_chunk == expected.has_chunk());
  CHECK(decoded.header.SerializeAsString() == expected.header().SerializeAsString());
  CHECK(decoded.offset == expected.chunk().offset());
  CHECK(decoded.shared_begin == expected.chunk().shared_begin());
  CHECK(decoded.shared_floats == expected.chunk().shared_floats());
  CHECK((decoded.data == expected.chunk().data()));
}

TEST_CASE("what is encoded by hand is what the generated classes parse, and the other way round") {
  const v1::ExchangeHeader sample = SampleHeader();
  const v1::ExchangeHeader empty;
  for (const v1::ExchangeHeader* header : {static_cast<const v1::ExchangeHeader*>(nullptr), &sample, &empty}) {
    for (const size_t size : {size_t{0}, size_t{4}, size_t{128}, kChunkFloats * sizeof(float), size_t{4} << 20}) {
      for (const uint64_t offset : {uint64_t{0}, uint64_t{127}, uint64_t{128}, ~uint64_t{0}}) {
        INFO("header " << (header == &sample) << ", " << size << " bytes at " << offset);
        const std::string data = Data(size);
        const grpc::Slice slice(data);
        const std::string bytes = Join(EncodeExchange(header, offset, &slice));
        const v1::ExchangeRequest expected = Request(header, offset, &data);
        v1::ExchangeRequest parsed;
        REQUIRE(parsed.ParseFromString(bytes));
        CHECK((parsed.SerializeAsString() == expected.SerializeAsString()));
        CheckDecoded(Decode(Split(expected.SerializeAsString(), {})), expected);
        CheckDecoded(Decode(Split(bytes, {})), expected);
      }
    }
  }
}

TEST_CASE("chunks in shared memory are what the generated classes make of them") {
  const v1::ExchangeHeader sample = SampleHeader();
  for (const v1::ExchangeHeader* header : {static_cast<const v1::ExchangeHeader*>(nullptr), &sample}) {
    for (const uint64_t number : {uint64_t{1}, uint64_t{127}, uint64_t{128}, ~uint64_t{0}}) {
      v1::ExchangeRequest expected;
      if (header != nullptr) *expected.mutable_header() = *header;
      expected.mutable_chunk()->set_offset(number);
      expected.mutable_chunk()->set_shared_begin(number - 1);
      expected.mutable_chunk()->set_shared_floats(number);
      v1::ExchangeRequest parsed;
      REQUIRE(parsed.ParseFromString(Join(EncodeSharedExchange(header, number, number - 1, number))));
      CHECK(parsed.SerializeAsString() == expected.SerializeAsString());
      CheckDecoded(Decode(Split(expected.SerializeAsString(), {})), expected);
    }
  }
}

TEST_CASE("a header alone and nothing at all") {
  const v1::ExchangeHeader header = SampleHeader();
  const std::string bytes = Join(EncodeExchange(&header, 17, nullptr));
  CHECK(bytes == Request(&header, 0, nullptr).SerializeAsString());
  CheckDecoded(Decode(Split(bytes, {})), Request(&header, 0, nullptr));
  CHECK(Join(EncodeExchange(nullptr, 0, nullptr)).empty());
  CheckDecoded(Decode(Split("", {})), v1::ExchangeRequest());
}

TEST_CASE("a reply goes the same way") {
  v1::ReplyHeader header;
  header.set_code(3);
  header.set_message("what happened");
  header.set_version(-1);
  const std::string data = Data(64);
  const grpc::Slice slice(data);
  grpc::ByteBuffer buffer = EncodeExchange(&header, 5, &slice);
  v1::ExchangeReply parsed;
  REQUIRE(parsed.ParseFromString(Join(buffer)));
  CHECK(parsed.header().SerializeAsString() == header.SerializeAsString());
  CHECK(parsed.chunk().offset() == 5);
  CHECK(parsed.chunk().data() == data);
  v1::ReplyHeader decoded_header;
  DecodedExchange decoded;
  REQUIRE(DecodeExchange(&buffer, &decoded_header, &decoded).ok());
  CHECK(decoded_header.SerializeAsString() == header.SerializeAsString());
}

TEST_CASE("the floats are not copied on their way out, nor in") {
  const std::vector<float> floats(1000, 1.5f);
  const grpc::Slice slice(floats.data(), floats.size() * sizeof(float), grpc::Slice::STATIC_SLICE);
  grpc::ByteBuffer buffer = EncodeExchange(nullptr, 0, &slice);
  v1::ExchangeHeader header;
  DecodedExchange decoded;
  REQUIRE(DecodeExchange(&buffer, &header, &decoded).ok());
  REQUIRE(decoded.data.size() == 1);
  CHECK(static_cast<const void*>(decoded.data[0].data()) == floats.data());
  CHECK(decoded.data[0].size() == floats.size() * sizeof(float));
}

TEST_CASE("slices may end anywhere") {
  const v1::ExchangeHeader header = SampleHeader();
  const std::string data = Data(300);
  const v1::ExchangeRequest request = Request(&header, 1000, &data);
  const std::string bytes = request.SerializeAsString();
  for (size_t first = 0; first <= bytes.size(); ++first) {
    INFO(first);
    CheckDecoded(Decode(Split(bytes, {first})), request);
    CheckDecoded(Decode(Split(bytes, {first / 2, first, first, (first + bytes.size()) / 2})), request);
  }
  std::vector<size_t> every;
  for (size_t i = 1; i < bytes.size(); ++i) every.push_back(i);
  CheckDecoded(Decode(Split(bytes, every)), request);
}

TEST_CASE("fields may come in any order, and unknown ones are passed over") {
  const v1::ExchangeHeader header = SampleHeader();
  const std::string data = Data(20);
  const v1::ExchangeRequest expected = Request(&header, 77, &data);
  const std::string header_field = Delimited(kHeaderTag, header.SerializeAsString());
  const std::string offset = "\x08" + Varint(77);
  const std::string data_field = Delimited(kDataTag, data);
  // Fields 5 to 9, of every wire type.
  const std::string unknown = std::string("\x40\x96\x01", 3) + std::string("\x49") + std::string(8, 'x') +
                              Delimited("\x2a", "text") + std::string("\x35") + std::string(4, 'x') +
                              "\x3b\x08\x01\x3c";
  for (const std::string& chunk :
       {offset + data_field, data_field + offset, unknown + data_field + unknown + offset + unknown}) {
    const std::string chunk_field = Delimited(kChunkTag, chunk);
    for (const std::string& bytes : {header_field + chunk_field, chunk_field + header_field,
                                     unknown + chunk_field + unknown + header_field + unknown}) {
      v1::ExchangeRequest parsed;
      REQUIRE(parsed.ParseFromString(bytes));
      CheckDecoded(Decode(Split(bytes, {bytes.size() / 2})), expected);
    }
  }
}

TEST_CASE("a chunk without an offset or without data") {
  CheckDecoded(Decode(Split(Delimited(kChunkTag, Delimited(kDataTag, "data")), {})), [] {
    const std::string data = "data";
    return Request(nullptr, 0, &data);
  }());
  const std::string none;
  CheckDecoded(Decode(Split(Delimited(kChunkTag, ""), {})), Request(nullptr, 0, &none));
  CheckDecoded(Decode(Split(Delimited(kChunkTag, "\x08" + Varint(9)), {})), Request(nullptr, 9, &none));
}

TEST_CASE("a second chunk in one message is refused") {
  const std::string chunk = Delimited(kChunkTag, Delimited(kDataTag, "data"));
  const Decoded decoded = Decode(Split(chunk + chunk, {}));
  CHECK(decoded.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(decoded.status.message()), Catch::Contains("not valid protobuf"));
}

TEST_CASE("a header in two parts is one, as protobuf has it") {
  v1::ExchangeHeader first;
  first.mutable_participant()->set_model("m");
  v1::ExchangeHeader second;
  second.mutable_participant()->set_worker("w");
  const std::string bytes =
      Delimited(kHeaderTag, first.SerializeAsString()) + Delimited(kHeaderTag, second.SerializeAsString());
  first.MergeFrom(second);
  CheckDecoded(Decode(Split(bytes, {})), Request(&first, 0, nullptr));
}

TEST_CASE("lengths that lie are refused") {
  for (const std::string& bytes : {
           kHeaderTag + Varint(5) + "abc",
           kHeaderTag + Varint(0x7fffffff),
           kHeaderTag + Varint(0xffffffff),
           kHeaderTag + Varint(~uint64_t{0}),
           // More than 32 bits of it.
           kHeaderTag + Varint(uint64_t{1} << 33),
           kChunkTag + Varint(uint64_t{1} << 33),
           Delimited(kChunkTag, kDataTag + Varint(uint64_t{1} << 33)),
           "\x2a" + Varint(uint64_t{1} << 33),
           "\x3b\x2a" + Varint(uint64_t{1} << 33) + "\x3c",
           kChunkTag + Varint(5) + "abc",
           kChunkTag + Varint(0x7fffffff) + "abc",
           kChunkTag + Varint(0x80000000) + "abc",
           kChunkTag + Varint(0xffffffff),
           Delimited(kChunkTag, kDataTag + Varint(5) + "abc"),
           Delimited(kChunkTag, kDataTag + Varint(0x7fffffff) + "abc"),
           Delimited(kChunkTag, kDataTag + Varint(0x80000000) + "abc"),
           Delimited(kChunkTag, kDataTag + Varint(0xffffffff) + "abc"),
           // The data goes beyond its chunk, though not beyond the message.
           kChunkTag + Varint(4) + kDataTag + Varint(6) + "abcdef",
           // A group that ends what it did not begin, within the header and without.
           Delimited(kHeaderTag, "\x0c"),
           Delimited(kChunkTag, "\x0c"),
           std::string("\x0c"),
           // Field number 0.
           std::string("\x00", 1),
           Delimited(kHeaderTag, std::string("\x00", 1)),
           Delimited(kChunkTag, std::string("\x00", 1)),
           "\x02" + Varint(0),
           "\x3b\x02" + Varint(0) + "\x3c",
           // A tag of more than 32 bits.
           Varint((uint64_t{1} << 35) | 0x08) + Varint(0),
           // A varint without an end.
           std::string(11, '\xff'),
       }) {
    INFO(Catch::StringMaker<std::string>::convert(bytes));
    CHECK_FALSE(v1::ExchangeRequest().ParseFromString(bytes));
    CHECK(Decode(Split(bytes, {})).status.code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a message that ends early is refused where protobuf refuses it") {
  const v1::ExchangeHeader header = SampleHeader();
  const std::string data = Data(40);
  const std::string bytes = Request(&header, 1000, &data).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    const std::string cut = bytes.substr(0, size);
    CHECK(Decode(Split(cut, {size / 3})).status.ok() == v1::ExchangeRequest().ParseFromString(cut));
  }
}

}  // namespace
}  // namespace paramd
