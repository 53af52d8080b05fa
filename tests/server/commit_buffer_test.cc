#include "server/commit_buffer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/block.h"

namespace paramd {
namespace {

using Catch::Matchers::Contains;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Ramp(size_t n) {
  std::vector<float> floats(n);
  for (size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(i) + 0.5f;
  return floats;
}

std::string Bytes(v1::Encoding encoding, const std::vector<float>& floats) {
  std::string bytes(floats.size() * FloatBytes(encoding), '\0');
  Narrow(encoding, floats.data(), floats.size(), bytes.data());
  return bytes;
}

// A message of `bytes`, cut at `cuts`, each piece `misalignment` bytes after an aligned address.
struct Message {
  Message(const std::string& bytes, std::vector<size_t> cuts, size_t misalignment) {
    cuts.push_back(bytes.size());
    size_t begin = 0;
    for (const size_t end : cuts) {
      auto memory = std::make_shared<std::vector<float>>((end - begin + misalignment) / sizeof(float) + 1);
      char* const to = reinterpret_cast<char*>(memory->data()) + misalignment;
      std::memcpy(to, bytes.data() + begin, end - begin);
      pieces.emplace_back(to, end - begin);
      owner->push_back(std::move(memory));
      begin = end;
    }
  }

  std::vector<std::string_view> pieces;
  std::shared_ptr<std::vector<std::shared_ptr<std::vector<float>>>> owner =
      std::make_shared<std::vector<std::shared_ptr<std::vector<float>>>>();
};

absl::Status Append(CommitBuffer* buffer, uint64_t offset, const std::vector<float>& floats,
                    std::vector<size_t> cuts = {}, size_t misalignment = 0) {
  const Message message(Bytes(v1::FLOAT32, floats), std::move(cuts), misalignment);
  return buffer->Append(offset, message.pieces, message.owner);
}

// Reads `n` floats, in steps that repeat `steps`.
std::vector<float> ReadAll(CommitBuffer* buffer, size_t n, const std::vector<size_t>& steps) {
  CommitBuffer::Reader reader(buffer);
  std::vector<float> floats;
  for (size_t i = 0; floats.size() < n; ++i) {
    const auto read = reader.Read(std::min(steps[i % steps.size()], n - floats.size()));
    floats.insert(floats.end(), read.begin(), read.end());
  }
  return floats;
}

TEST_CASE("Floats are read as they were sent, wherever two pieces split them and however they are aligned") {
  const std::vector<float> sent = Ramp(5);
  for (size_t misalignment = 0; misalignment < 4; ++misalignment) {
    for (size_t first = 0; first <= 20; ++first) {
      for (size_t second = first; second <= 20; ++second) {
        for (const std::vector<size_t>& steps : {std::vector<size_t>{1}, {2}, {5}, {3, 1}}) {
          INFO("misalignment " << misalignment << ", cut at " << first << " and " << second << ", steps of "
                               << steps[0]);
          CommitBuffer buffer(5);
          REQUIRE(Append(&buffer, 0, sent, {first, second}, misalignment).ok());
          REQUIRE(buffer.complete());
          REQUIRE(buffer.first_non_finite() == -1);
          REQUIRE(ReadAll(&buffer, 5, steps) == sent);
        }
      }
    }
  }
}

TEST_CASE("A float may come in four pieces, with empty ones between") {
  CommitBuffer buffer(2);
  REQUIRE(Append(&buffer, 0, {1.25f, -2.5f}, {0, 1, 1, 2, 3, 3, 3, 4, 8}, 1).ok());
  CHECK(ReadAll(&buffer, 2, {2}) == std::vector<float>{1.25f, -2.5f});
}

TEST_CASE("Aligned floats within a piece are read where they are, without a copy") {
  const std::vector<float> sent = Ramp(100);
  CommitBuffer buffer(100);
  const std::string_view bytes(reinterpret_cast<const char*>(sent.data()), 400);
  REQUIRE(buffer.Append(0, {bytes}, nullptr).ok());
  CommitBuffer::Reader reader(&buffer);
  CHECK(reader.Read(30).data() == sent.data());
  CHECK(reader.Read(70).data() == sent.data() + 30);
}

TEST_CASE("A long commit in many messages is read in pieces of any size") {
  const size_t n = 3 * kPieceFloats + 17;
  const std::vector<float> sent = Ramp(n);
  CommitBuffer buffer(n);
  for (size_t begin = 0; begin < n;) {
    const size_t count = std::min<size_t>(n - begin, 1000);
    CHECK_FALSE(buffer.complete());
    const std::vector<float> part(sent.begin() + begin, sent.begin() + begin + count);
    REQUIRE(Append(&buffer, begin, part, {count * 2 + 1}, begin % 4).ok());
    begin += count;
    CHECK(buffer.received() == begin);
  }
  CHECK(buffer.complete());
  CHECK(ReadAll(&buffer, n, {kPieceFloats, 1, 999}) == sent);
}

TEST_CASE("A chunk that is out of order, repeated or leaves a gap is refused and says what was due") {
  CommitBuffer buffer(10);
  REQUIRE(Append(&buffer, 0, Ramp(4)).ok());
  for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, uint64_t{5}, ~uint64_t{0}}) {
    const absl::Status status = Append(&buffer, offset, Ramp(2));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains("where float 4 was due") && Contains("in order"));
  }
  CHECK(buffer.received() == 4);
  CHECK(Append(&buffer, 4, Ramp(6)).ok());
}

TEST_CASE("More floats than the model has are refused") {
  CommitBuffer buffer(3);
  REQUIRE(Append(&buffer, 0, Ramp(2)).ok());
  const absl::Status status = Append(&buffer, 2, Ramp(2));
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("more than the 3 floats") && Contains("paramctl show"));
  CHECK_FALSE(buffer.complete());
}

TEST_CASE("Bytes that are no whole number of floats are refused") {
  CommitBuffer buffer(3);
  const absl::Status status = buffer.Append(0, {"12345", "67"}, nullptr);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("7 bytes") && Contains("whole number"));
}

TEST_CASE("A message without floats changes nothing") {
  CommitBuffer buffer(1);
  CHECK(buffer.Append(0, {}, nullptr).ok());
  CHECK(buffer.Append(0, {"", ""}, nullptr).ok());
  CHECK(buffer.received() == 0);
  CHECK(Append(&buffer, 0, {2}).ok());
  CHECK(ReadAll(&buffer, 1, {1}) == std::vector<float>{2});
}

TEST_CASE("The first NaN or infinity is found wherever it is, also where two pieces split it") {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (size_t at = 0; at < 9; ++at) {
      for (size_t cut = 0; cut <= 20; ++cut) {
        INFO(bad << " at " << at << ", cut at " << cut);
        std::vector<float> sent = Ramp(9);
        sent[at] = bad;
        sent[8] = kNan;
        CommitBuffer buffer(9);
        // Two messages, of 4 and 5 floats.
        REQUIRE(Append(&buffer, 0, {sent.begin(), sent.begin() + 4}, {std::min<size_t>(cut, 16)}, 1).ok());
        CHECK(buffer.first_non_finite() == (at < 4 ? static_cast<int64_t>(at) : -1));
        REQUIRE(Append(&buffer, 4, {sent.begin() + 4, sent.end()}, {cut}, 2).ok());
        CHECK(buffer.first_non_finite() == static_cast<int64_t>(at));
      }
    }
  }
}

TEST_CASE("The first NaN is found beyond the first of the pieces that a message is searched in") {
  std::vector<float> sent = Ramp(3 * kPieceFloats);
  const size_t at = GENERATE(kPieceFloats - 1, kPieceFloats, 2 * kPieceFloats + 5);
  sent[at] = kNan;
  CommitBuffer buffer(sent.size());
  REQUIRE(Append(&buffer, 0, sent).ok());
  CHECK(buffer.first_non_finite() == static_cast<int64_t>(at));
}

TEST_CASE("Large, tiny, negative and denormal floats are finite") {
  const std::vector<float> floats = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 1e-45f,
                                     -0.0f, 0.0f};
  CHECK(FirstNonFinite(floats) == -1);
  CHECK(FirstNonFinite({}) == -1);
  CHECK(FirstNonFinite(std::vector<float>{0, -kNan}) == 1);
}

TEST_CASE("Bytes are let go of as they are read") {
  CommitBuffer buffer(6);
  std::vector<std::weak_ptr<const void>> owners;
  for (int i = 0; i < 3; ++i) {
    auto floats = std::make_shared<std::vector<float>>(2, 1.0f);
    owners.push_back(floats);
    const std::string_view bytes(reinterpret_cast<const char*>(floats->data()), 8);
    REQUIRE(buffer.Append(2 * i, {bytes}, floats).ok());
  }
  CommitBuffer::Reader reader(&buffer);
  reader.Read(2);
  CHECK_FALSE(owners[0].expired());  // what was read is still in use
  reader.Read(2);
  CHECK(owners[0].expired());
  CHECK_FALSE(owners[1].expired());
  reader.Read(2);
  CHECK(owners[1].expired());
  CHECK_FALSE(owners[2].expired());
  buffer = CommitBuffer(6);
  CHECK(owners[2].expired());
}

TEST_CASE("A reader that keeps the bytes can be followed by another one") {
  CommitBuffer buffer(5);
  REQUIRE(Append(&buffer, 0, Ramp(5), {6}).ok());
  {
    CommitBuffer::Reader reader(&buffer, /*release=*/false);
    reader.Read(3);
    reader.Read(2);
  }
  CHECK(ReadAll(&buffer, 5, {2}) == Ramp(5));
}

TEST_CASE("Floats in fewer bytes are widened as they are read, wherever pieces split them") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  const std::vector<float> sent = {1, -2.5f, 3.5f, 0.25f, -96};
  for (size_t first = 0; first <= 10; ++first) {
    for (size_t second = first; second <= 10; ++second) {
      for (const std::vector<size_t>& steps : {std::vector<size_t>{1}, {2}, {5}, {3, 1}}) {
        INFO(EncodingName(encoding) << ", cut at " << first << " and " << second << ", steps of " << steps[0]);
        CommitBuffer buffer(5, encoding);
        const Message message(Bytes(encoding, sent), {first, second}, 1);
        REQUIRE(buffer.Append(0, message.pieces, message.owner).ok());
        REQUIRE(buffer.complete());
        REQUIRE(buffer.first_non_finite() == -1);
        REQUIRE(ReadAll(&buffer, 5, steps) == sent);
      }
    }
  }
}

TEST_CASE("A reader begins at any block of floats in fewer bytes") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  constexpr size_t kFloats = 2 * kBlockFloats + 3;
  std::vector<float> sent(kFloats);
  for (size_t i = 0; i < kFloats; ++i) sent[i] = static_cast<float>(i % 251);
  const std::string bytes = Bytes(encoding, sent);
  CommitBuffer buffer(kFloats, encoding);
  // Messages that end in the middle of a block.
  for (size_t begin = 0; begin < kFloats;) {
    const size_t n = std::min<size_t>(100'001, kFloats - begin);
    REQUIRE(buffer.Append(begin, {std::string_view(bytes).substr(2 * begin, 2 * n)}, nullptr).ok());
    begin += n;
  }
  for (const size_t block : {2, 0, 1}) {
    CommitBuffer::Reader reader(&buffer, /*release=*/true, block);
    const size_t begin = block * kBlockFloats, end = std::min(kFloats, begin + kBlockFloats);
    for (size_t i = begin; i < end; i += kPieceFloats) {
      const absl::Span<const float> read = reader.Read(std::min(kPieceFloats, end - i));
      if (!std::equal(read.begin(), read.end(), &sent[i])) FAIL_CHECK("block " << block << ", float " << i);
    }
  }
}

TEST_CASE("The first NaN or infinity in fewer bytes is found") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    INFO(EncodingName(encoding) << " " << bad);
    std::vector<float> sent(kPieceFloats + 9, 1);
    sent[kPieceFloats + 3] = bad;
    CommitBuffer buffer(sent.size(), encoding);
    const Message message(Bytes(encoding, sent), {1}, 0);
    REQUIRE(buffer.Append(0, message.pieces, message.owner).ok());
    CHECK(buffer.first_non_finite() == kPieceFloats + 3);
  }
}

TEST_CASE("Bytes that are no whole number of narrow floats, or too many, are refused") {
  CommitBuffer odd(3, v1::BFLOAT16);
  const absl::Status status = odd.Append(0, {"1234", "5"}, nullptr);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("5 bytes") && Contains("bf16"));
  CommitBuffer full(3, v1::FLOAT16);
  CHECK(full.Append(0, {"12345678"}, nullptr).code() == absl::StatusCode::kInvalidArgument);
  CHECK(full.Append(0, {"1234", "56"}, nullptr).ok());
  CHECK(full.complete());
}

TEST_CASE("Of many small pieces only a few are kept where they are, and all are read as they were sent") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::BFLOAT16);
  const size_t width = FloatBytes(encoding);
  constexpr size_t kFloats = kBlockFloats + 40'000;
  std::vector<float> sent(kFloats);
  for (size_t i = 0; i < kFloats; ++i) sent[i] = static_cast<float>(i % 251);
  const std::string bytes = Bytes(encoding, sent);
  CommitBuffer buffer(kFloats, encoding);
  std::vector<std::weak_ptr<const void>> owners;
  for (size_t i = 0; i < kFloats; ++i) {
    auto owner = std::make_shared<std::string>(bytes.substr(i * width, width));
    owners.push_back(owner);
    if (!buffer.Append(i, {std::string_view(*owner)}, owner).ok()) FAIL("float " << i);
  }
  const auto kept = std::count_if(owners.begin(), owners.end(), [](const auto& owner) { return !owner.expired(); });
  CHECK(kept <= static_cast<int64_t>(16 + bytes.size() / 4096 + 1));
  CHECK(buffer.first_non_finite() == -1);
  for (const size_t block : {1, 0}) {
    CommitBuffer::Reader reader(&buffer, /*release=*/true, block);
    const size_t begin = block * kBlockFloats, end = std::min(kFloats, begin + kBlockFloats);
    for (size_t i = begin; i < end; i += kPieceFloats) {
      const absl::Span<const float> read = reader.Read(std::min(kPieceFloats, end - i));
      if (!std::equal(read.begin(), read.end(), &sent[i])) FAIL_CHECK("block " << block << ", float " << i);
    }
  }
}

TEST_CASE("Small pieces between large ones are read in their place, and NaN is found among them") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::FLOAT16);
  const size_t width = FloatBytes(encoding);
  constexpr size_t kFloats = 100'000;
  std::vector<float> sent(kFloats);
  for (size_t i = 0; i < kFloats; ++i) sent[i] = static_cast<float>(i % 251);
  const size_t bad = GENERATE(30, 31, 50'000, 99'999);
  sent[bad] = kNan;
  const std::string bytes = Bytes(encoding, sent);
  CommitBuffer buffer(kFloats, encoding);
  size_t at = 0;
  for (int message = 0; at < kFloats; ++message) {
    const size_t n = std::min<size_t>(message % 50 == 49 ? 5000 : 1 + message % 3, kFloats - at);
    REQUIRE(buffer.Append(at, {std::string_view(bytes).substr(at * width, n * width)}, nullptr).ok());
    at += n;
  }
  CHECK(buffer.first_non_finite() == static_cast<int64_t>(bad));
  std::vector<float> read = ReadAll(&buffer, kFloats, {kPieceFloats, 7});
  CHECK(std::isnan(read[bad]));
  read[bad] = sent[bad] = 0;
  CHECK(read == sent);
}

TEST_CASE("An owner that keeps much more than its floats is not kept") {
  CommitBuffer buffer(2);
  auto owner = std::make_shared<std::vector<float>>(2, 1.5f);
  const std::string_view bytes(reinterpret_cast<const char*>(owner->data()), 8);
  const std::weak_ptr<const void> kept = owner;
  REQUIRE(buffer.Append(0, {bytes}, std::move(owner), size_t{1} << 20).ok());
  CHECK(kept.expired());
  CHECK(ReadAll(&buffer, 2, {2}) == std::vector<float>{1.5f, 1.5f});
}

}  // namespace
}  // namespace paramd
