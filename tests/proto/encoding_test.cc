#include "proto/encoding.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/seed.h"

namespace paramd {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// All at once, which a machine may do several at a time, and one by one, which it can't.
enum class Stride { kAll, kOne };

std::vector<uint16_t> NarrowAll(v1::Encoding encoding, const std::vector<float>& floats, Stride stride) {
  std::vector<uint16_t> narrow(floats.size());
  const size_t n = stride == Stride::kAll ? floats.size() : 1;
  for (size_t i = 0; i < floats.size(); i += n) Narrow(encoding, &floats[i], n, &narrow[i]);
  return narrow;
}

std::vector<float> WidenAll(v1::Encoding encoding, const std::vector<uint16_t>& narrow, Stride stride) {
  std::vector<float> floats(narrow.size());
  const size_t n = stride == Stride::kAll ? narrow.size() : 1;
  for (size_t i = 0; i < narrow.size(); i += n) Widen(encoding, &narrow[i], n, &floats[i]);
  return floats;
}

float EigenWiden(v1::Encoding encoding, uint16_t bits) {
  return encoding == v1::FLOAT16 ? static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits))
                                 : static_cast<float>(Eigen::numext::bit_cast<Eigen::bfloat16>(bits));
}

uint16_t EigenNarrow(v1::Encoding encoding, float value) {
  return encoding == v1::FLOAT16 ? Eigen::numext::bit_cast<uint16_t>(Eigen::half(value))
                                 : Eigen::numext::bit_cast<uint16_t>(Eigen::bfloat16(value));
}

TEST_CASE("a float has as many bytes as its encoding says, and none in an unknown one") {
  CHECK(FloatBytes(v1::FLOAT32) == 4);
  CHECK(FloatBytes(v1::FLOAT16) == 2);
  CHECK(FloatBytes(v1::BFLOAT16) == 2);
  CHECK(FloatBytes(static_cast<v1::Encoding>(3)) == 0);
  CHECK(FloatBytes(static_cast<v1::Encoding>(-1)) == 0);
}

TEST_CASE("every pattern of 16 bits becomes the float that Eigen makes of it, and itself again") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  const Stride stride = GENERATE(Stride::kAll, Stride::kOne);
  std::vector<uint16_t> patterns(65'536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  const std::vector<float> wide = WidenAll(encoding, patterns, stride);
  const std::vector<uint16_t> narrow = NarrowAll(encoding, wide, stride);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const float expected = EigenWiden(encoding, patterns[i]);
    const bool same = std::isnan(expected) ? std::isnan(wide[i]) && std::isnan(EigenWiden(encoding, narrow[i]))
                                           : Bits(wide[i]) == Bits(expected) && narrow[i] == patterns[i];
    if (!same) FAIL_CHECK(EncodingName(encoding) << " " << i << " became " << wide[i] << " and then " << narrow[i]);
  }
}

TEST_CASE("any float is rounded as Eigen rounds it") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT16, v1::BFLOAT16);
  const Stride stride = GENERATE(Stride::kAll, Stride::kOne);
  for (const uint64_t seed : testing::Seeds(10)) {
    std::mt19937_64 random(seed);
    std::vector<float> floats(100'003);
    for (float& f : floats) {
      // Half of them where f16 has something to round.
      uint32_t bits = static_cast<uint32_t>(random());
      if (random() % 2 == 0) bits = (bits & 0x807fffff) | ((100 + static_cast<uint32_t>(random() % 44)) << 23);
      f = FromBits(bits);
    }
    const std::vector<uint16_t> narrow = NarrowAll(encoding, floats, stride);
    for (size_t i = 0; i < floats.size(); ++i) {
      const bool same = std::isnan(floats[i]) ? std::isnan(EigenWiden(encoding, narrow[i]))
                                              : narrow[i] == EigenNarrow(encoding, floats[i]);
      if (!same) {
        FAIL_CHECK("PARAMD_SEED=" << seed << ": " << EncodingName(encoding) << " made " << narrow[i] << " of bits "
                                  << Bits(floats[i]));
      }
    }
  }
}

TEST_CASE("ties go to the even neighbour, subnormals stay, and zeros keep their sign") {
  const Stride stride = GENERATE(Stride::kAll, Stride::kOne);
  const float half_ulp = std::ldexp(1.0f, -11);
  const float least = std::ldexp(1.0f, -24);
  const std::vector<float> floats = {1 + half_ulp,
                                     1 + 3 * half_ulp,
                                     least,
                                     least / 2,
                                     std::nextafter(least / 2, 1.0f),
                                     3 * least / 2,
                                     -0.0f,
                                     -1e-30f,
                                     65'519.996f,
                                     -65'504,
                                     std::ldexp(1.0f, -14)};
  CHECK(NarrowAll(v1::FLOAT16, floats, stride) ==
        std::vector<uint16_t>{0x3c00, 0x3c02, 0x0001, 0x0000, 0x0001, 0x0002, 0x8000, 0x8000, 0x7bff, 0xfbff, 0x0400});
  const std::vector<float> brains = {FromBits(0x3f808000), FromBits(0x3f818000), FromBits(0x3f808001), 1e-40f, -0.0f,
                                     FromBits(0x7f7f7fff)};
  CHECK(NarrowAll(v1::BFLOAT16, brains, stride) ==
        std::vector<uint16_t>{0x3f80, 0x3f82, 0x3f81, 0x0001, 0x8000, 0x7f7f});
}

TEST_CASE("NaN stays NaN, whatever its bits, and infinities stay infinite") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16);
  const size_t at_once = GENERATE(1, 8);
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f80ffffu}) {
    INFO(EncodingName(encoding) << " " << bits);
    const std::vector<float> nan(at_once, FromBits(bits));
    std::vector<char> bytes(at_once * FloatBytes(encoding));
    std::vector<float> back(at_once);
    Narrow(encoding, nan.data(), at_once, bytes.data());
    Widen(encoding, bytes.data(), at_once, back.data());
    for (const float f : back) CHECK(std::isnan(f));
  }
  for (const float infinity : {kInfinity, -kInfinity}) {
    const std::vector<float> from(at_once, infinity);
    std::vector<char> bytes(at_once * FloatBytes(encoding));
    std::vector<float> back(at_once);
    Narrow(encoding, from.data(), at_once, bytes.data());
    Widen(encoding, bytes.data(), at_once, back.data());
    CHECK(back == from);
  }
}

TEST_CASE("bytes are written and read at any alignment") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16);
  std::vector<float> floats(37);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i) - 18.5f;
  const size_t bytes = floats.size() * FloatBytes(encoding);
  for (size_t misalignment = 0; misalignment < 9; ++misalignment) {
    std::vector<char> narrow(misalignment + bytes + 1, 'x');
    Narrow(encoding, floats.data(), floats.size(), narrow.data() + misalignment);
    CHECK(narrow.back() == 'x');
    std::vector<float> back(floats.size());
    Widen(encoding, narrow.data() + misalignment, back.size(), back.data());
    CHECK(back == floats);
  }
}

TEST_CASE("pieces may end anywhere, in the middle of a float too") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16);
  const bool large = GENERATE(false, true);
  const std::vector<float> floats = {1, -2.5f, 3, 0.125f, -5};
  std::string bytes(floats.size() * FloatBytes(encoding), '\0');
  Narrow(encoding, floats.data(), floats.size(), bytes.data());
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      INFO(EncodingName(encoding) << " cut at " << first << " and " << second);
      // Not beside one another.
      const std::string parts[] = {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)};
      std::vector<float> back(floats.size());
      Widen(encoding, {parts[0], parts[1], "", parts[2]}, back.data(), large);
      CHECK(back == floats);
    }
  }
  std::vector<std::string_view> single;
  for (size_t i = 0; i < bytes.size(); ++i) single.push_back(std::string_view(bytes).substr(i, 1));
  std::vector<float> back(floats.size());
  Widen(encoding, single, back.data(), large);
  CHECK(back == floats);
}

TEST_CASE("floats that go past the cache arrive where they should, at any alignment") {
  const v1::Encoding encoding = GENERATE(v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16);
  // Multiples of 1/4 that all encodings have, in more than one piece of the conversion.
  std::vector<float> floats(10'007);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i % 253) / 4 - 30;
  std::string bytes(floats.size() * FloatBytes(encoding), '\0');
  Narrow(encoding, floats.data(), floats.size(), bytes.data());
  for (size_t from = 0; from < 5; ++from) {
    for (size_t to = 0; to < 5; ++to) {
      INFO(EncodingName(encoding) << " from byte " << from << " to float " << to);
      const std::string moved = std::string(from, 'x') + bytes;
      std::vector<float> back(to + floats.size() + 1, -99);
      Widen(encoding, {std::string_view(moved).substr(from)}, &back[to], /*large=*/true);
      CHECK(std::vector<float>(back.begin() + static_cast<ptrdiff_t>(to), back.end() - 1) == floats);
      CHECK(std::count(back.begin(), back.end(), -99) == static_cast<ptrdiff_t>(to + 1));
    }
  }
}

TEST_CASE("the first finite float that would become infinite is found") {
  struct Limit {
    v1::Encoding encoding;
    float fits;
    float overflows;
  };
  for (const Limit& limit : {Limit{v1::FLOAT16, std::nextafter(65'520.0f, 0.0f), 65'520.0f},
                             Limit{v1::BFLOAT16, FromBits(0x7f7f7fff), FromBits(0x7f7f8000)}}) {
    INFO(EncodingName(limit.encoding));
    uint16_t narrow[2];
    const float both[] = {limit.fits, limit.overflows};
    Narrow(limit.encoding, both, 2, narrow);
    CHECK(std::isfinite(EigenWiden(limit.encoding, narrow[0])));
    CHECK(std::isinf(EigenWiden(limit.encoding, narrow[1])));
    std::vector<float> floats(50, limit.fits);
    floats[3] = -limit.fits;
    floats[5] = kInfinity;
    floats[6] = -kInfinity;
    floats[7] = kNan;
    CHECK(FirstOverflow(limit.encoding, floats.data(), floats.size()) == -1);
    floats[41] = kMax;
    floats[40] = -limit.overflows;
    CHECK(FirstOverflow(limit.encoding, floats.data(), floats.size()) == 40);
    CHECK(FirstOverflow(limit.encoding, floats.data(), 40) == -1);
  }
  CHECK(FirstOverflow(v1::FLOAT32, &kMax, 1) == -1);
}

}  // namespace
}  // namespace paramd
