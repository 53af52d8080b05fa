#ifndef PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_
#define PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>

namespace paramd::testing {

// Sanitizers need all of the address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMemoryCanBeLimited = false;
#else
inline constexpr bool kMemoryCanBeLimited = true;
#endif

// Leaves the process so much more address space, until its end.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    const rlimit now{.rlim_cur = pages * static_cast<uint64_t>(getpagesize()) + more, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_
