// Copies past the cache, for what is too large to stay in it: that spares reading what is overwritten.
#ifndef PARAMD_PROTO_STREAM_COPY_H_
#define PARAMD_PROTO_STREAM_COPY_H_

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paramd {

// A vector of so many floats does not stay in the cache from one exchange to the next.
inline constexpr size_t kLargeFloats = size_t{4} << 20;

// Writes `n` floats to `to`; `from` may have any alignment. Other threads see them after EndStream.
inline void StreamCopy(const void* from, size_t n, float* to) {
  const char* const bytes = static_cast<const char*>(from);
  size_t i = 0;
#ifdef __SSE2__
  while (i < n && reinterpret_cast<uintptr_t>(to + i) % sizeof(__m128i) != 0) ++i;
  std::memcpy(to, bytes, i * sizeof(float));
  for (; i + 4 <= n; i += 4) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i * sizeof(float))));
  }
#endif
  std::memcpy(to + i, bytes + i * sizeof(float), (n - i) * sizeof(float));
}

inline void EndStream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace paramd

#endif  // PARAMD_PROTO_STREAM_COPY_H_
