#include "proto/encoding.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/stream_copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace paramd {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian, and floats go as they are");

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;

uint16_t Load16(const char* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

void NarrowHalf(const float* from, size_t n, char* to) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t bits = Eigen::numext::bit_cast<uint16_t>(Eigen::half(from[i]));
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

void WidenHalf(const char* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(Load16(from + 2 * i)));
}

// Loops that the compiler vectorises, once for any processor and once for AVX2.
#define PARAMD_LOOP inline __attribute__((always_inline))

// bf16, which Eigen rounds a float at a time.
PARAMD_LOOP void NarrowBfloatLoop(const float* from, size_t n, char* to) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    // A NaN whose upper bits are all that of an infinity must not become one.
    const bool nan = (bits & kMagnitude) > kInfinity;
    const uint16_t upper = static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
    std::memcpy(to + 2 * i, &upper, sizeof(upper));
  }
}

void WidenBfloat(const char* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(uint32_t{Load16(from + 2 * i)} << 16);
}

// Whether the magnitude is finite, but `limit` or more.
PARAMD_LOOP bool Overflows(float value, uint32_t limit) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & kMagnitude;
  return (magnitude >= limit) & (magnitude < kInfinity);
}

PARAMD_LOOP bool AnyOverflowLoop(const float* floats, size_t n, uint32_t limit) {
  uint32_t any = 0;
  for (size_t i = 0; i < n; ++i) any |= static_cast<uint32_t>(Overflows(floats[i], limit));
  return any != 0;
}

void NarrowBfloat(const float* from, size_t n, char* to) { NarrowBfloatLoop(from, n, to); }
bool AnyOverflow(const float* floats, size_t n, uint32_t limit) { return AnyOverflowLoop(floats, n, limit); }

// ---------------------------------------------------------------------------------------------------------------------
// For newer processors.

#if defined(__x86_64__)

__attribute__((target("avx,f16c"))) void NarrowHalfF16c(const float* from, size_t n, char* to) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), halves);
  }
  if (i < n) NarrowHalf(from + i, n - i, to + 2 * i);
}

__attribute__((target("avx,f16c"))) void WidenHalfF16c(const char* from, size_t n, float* to) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  }
  if (i < n) WidenHalf(from + 2 * i, n - i, to + i);
}

__attribute__((target("avx2"))) void NarrowBfloatAvx2(const float* from, size_t n, char* to) {
  NarrowBfloatLoop(from, n, to);
}
__attribute__((target("avx2"))) bool AnyOverflowAvx2(const float* floats, size_t n, uint32_t limit) {
  return AnyOverflowLoop(floats, n, limit);
}

bool HasAvx2AndF16c() {
  // F16C is not among the features that every compiler's __builtin_cpu_supports knows.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

#endif

struct Kernels {
  void (*narrow_half)(const float* from, size_t n, char* to) = NarrowHalf;
  void (*widen_half)(const char* from, size_t n, float* to) = WidenHalf;
  void (*narrow_bfloat)(const float* from, size_t n, char* to) = NarrowBfloat;
  bool (*any_overflow)(const float* floats, size_t n, uint32_t limit) = AnyOverflow;
};

// The fastest that this processor has.
const Kernels& BestKernels() {
  static const Kernels kBest = [] {
    Kernels best;
#if defined(__x86_64__)
    if (HasAvx2AndF16c()) best = {NarrowHalfF16c, WidenHalfF16c, NarrowBfloatAvx2, AnyOverflowAvx2};
#endif
    return best;
  }();
  return kBest;
}

// The least magnitude that rounds to infinity, as bits.
uint32_t Overflow(v1::Encoding encoding) {
  switch (encoding) {
    case v1::FLOAT16:
      return 0x477ff000;
    case v1::BFLOAT16:
      return 0x7f7f8000;
    default:
      return kInfinity;
  }
}

}  // namespace

size_t FloatBytes(v1::Encoding encoding) {
  switch (encoding) {
    case v1::FLOAT32:
      return 4;
    case v1::FLOAT16:
    case v1::BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

const char* EncodingName(v1::Encoding encoding) {
  switch (encoding) {
    case v1::FLOAT16:
      return "f16";
    case v1::BFLOAT16:
      return "bf16";
    default:
      return "f32";
  }
}

void Narrow(v1::Encoding encoding, const float* from, size_t n, void* to) {
  switch (encoding) {
    case v1::FLOAT16:
      return BestKernels().narrow_half(from, n, static_cast<char*>(to));
    case v1::BFLOAT16:
      return BestKernels().narrow_bfloat(from, n, static_cast<char*>(to));
    default:
      std::memcpy(to, from, n * sizeof(float));
  }
}

void Widen(v1::Encoding encoding, const void* from, size_t n, float* to) {
  switch (encoding) {
    case v1::FLOAT16:
      return BestKernels().widen_half(static_cast<const char*>(from), n, to);
    case v1::BFLOAT16:
      return WidenBfloat(static_cast<const char*>(from), n, to);
    default:
      std::memcpy(to, from, n * sizeof(float));
  }
}

void Widen(v1::Encoding encoding, const std::vector<std::string_view>& pieces, float* to, bool large) {
  const size_t width = FloatBytes(encoding);
  // Others are as fast either way.
  const bool stream = large && encoding == v1::FLOAT32;
  char split[sizeof(float)];  // a float that pieces split, as far as it has come
  size_t have = 0;
  for (std::string_view piece : pieces) {
    if (have > 0) {
      const size_t n = std::min(width - have, piece.size());
      std::memcpy(split + have, piece.data(), n);
      piece.remove_prefix(n);
      have += n;
      if (have < width) continue;
      Widen(encoding, split, 1, to++);
    }
    const size_t whole = piece.size() / width;
    if (stream) {
      StreamCopy(piece.data(), whole, to);
    } else {
      Widen(encoding, piece.data(), whole, to);
    }
    to += whole;
    have = piece.size() - whole * width;
    std::memcpy(split, piece.data() + whole * width, have);
  }
  if (stream) EndStream();
}

int64_t FirstOverflow(v1::Encoding encoding, const float* floats, size_t n) {
  const uint32_t limit = Overflow(encoding);
  if (limit == kInfinity || !BestKernels().any_overflow(floats, n, limit)) return -1;
  return std::find_if(floats, floats + n, [limit](float value) { return Overflows(value, limit); }) - floats;
}

std::string DescribeOverflow(v1::Encoding encoding, uint64_t index, float value) {
  const bool half = encoding == v1::FLOAT16;
  return absl::StrCat("parameter ", index, " is ", value, ", and the largest that ", EncodingName(encoding),
                      " holds is ", half ? "65504" : "3.3895e+38", "; does training diverge? If not, use the wire ",
                      half ? "bf16, which has float32's range, or f32" : "f32");
}

}  // namespace paramd
