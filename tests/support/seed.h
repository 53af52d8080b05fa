// Where random tests begin.
#ifndef PARAMD_TESTS_SUPPORT_SEED_H_
#define PARAMD_TESTS_SUPPORT_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace paramd::testing {

// Seeds of `count` runs, others in every process, which says on stderr where they begin. Only that of the environment's
// PARAMD_SEED if it is set: say the seed with every failure.
inline std::vector<uint64_t> Seeds(int count) {
  if (const char* const one = std::getenv("PARAMD_SEED"); one != nullptr) return {std::stoull(one)};
  static const uint64_t first = [] {
    const uint64_t fresh = std::random_device()();
    std::cerr << "seeds from " << fresh << " on; PARAMD_SEED=N repeats one" << std::endl;
    return fresh;
  }();
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(first + static_cast<uint64_t>(i));
  return seeds;
}

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_SEED_H_
