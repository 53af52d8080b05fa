// Floats as they travel: see Encoding in paramd.proto. Little-endian machines only.
#ifndef PARAMD_PROTO_ENCODING_H_
#define PARAMD_PROTO_ENCODING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/paramd.pb.h"

namespace paramd {

// Bytes of one float; 0 for an encoding that this version does not know. All functions below want one that it knows.
size_t FloatBytes(v1::Encoding encoding);

// "f32", "f16" or "bf16".
const char* EncodingName(v1::Encoding encoding);

// Writes `n` floats to `to`, n × FloatBytes, rounded to the nearest, of two equally near ones to the even. NaN stays
// NaN; what is too large becomes infinite. `to` may have any alignment.
void Narrow(v1::Encoding encoding, const float* from, size_t n, void* to);

// The way back, which is exact.
void Widen(v1::Encoding encoding, const void* from, size_t n, float* to);

// The same for bytes in pieces that end anywhere; together they are a whole number of floats. `large`: `to` is in a
// vector that does not stay in the cache (kLargeFloats).
void Widen(v1::Encoding encoding, const std::vector<std::string_view>& pieces, float* to, bool large = false);

// Index of the first finite float that Narrow would make infinite (f16: from ±65,520 on), or -1.
int64_t FirstOverflow(v1::Encoding encoding, const float* floats, size_t n);

// What is wrong with such a float, parameter `index` of the center or of a commit, and what to do.
std::string DescribeOverflow(v1::Encoding encoding, uint64_t index, float value);

}  // namespace paramd

#endif  // PARAMD_PROTO_ENCODING_H_
