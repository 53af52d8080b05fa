// Where random tests begin.
#ifndef PARAMD_TESTS_SUPPORT_SEED_H_
#define PARAMD_TESTS_SUPPORT_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace paramd::testing {

// The seeds `first`, `first` + 1, ... of `count` runs, or only that in the environment's PARAMD_SEED if it is set.
inline std::vector<uint64_t> Seeds(uint64_t first, int count) {
  if (const char* const one = std::getenv("PARAMD_SEED"); one != nullptr) return {std::stoull(one)};
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(first + static_cast<uint64_t>(i));
  return seeds;
}

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_SEED_H_
