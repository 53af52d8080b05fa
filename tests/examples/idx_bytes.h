#ifndef PARAMD_TESTS_EXAMPLES_IDX_BYTES_H_
#define PARAMD_TESTS_EXAMPLES_IDX_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace paramd {

inline constexpr uint32_t kIdxLabels = 0x801;
inline constexpr uint32_t kIdxImages = 0x803;

inline std::string IdxHeader(uint32_t magic, const std::vector<uint32_t>& shape) {
  std::string bytes;
  const auto add = [&](uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
  };
  add(magic);
  for (const uint32_t size : shape) add(size);
  return bytes;
}

}  // namespace paramd

#endif  // PARAMD_TESTS_EXAMPLES_IDX_BYTES_H_
