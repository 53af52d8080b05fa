#ifndef PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_
#define PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <utility>

namespace paramd::testing {

// Sanitizers need all of the address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMemoryCanBeLimited = false;
#else
inline constexpr bool kMemoryCanBeLimited = true;
#endif

// Leaves the process so much more address space, until its end. What its heap has free is not to be had either.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const uint64_t used = pages * static_cast<uint64_t>(getpagesize());
    Limit(used);
    for (const size_t bytes : {size_t{1} << 20, size_t{1} << 16}) {
      while (auto* const hold = static_cast<Held*>(std::malloc(bytes))) held_ = new (hold) Held{held_};
    }
    Limit(used + more);
  }
  ~MemoryLimit() {
    setrlimit(RLIMIT_AS, &before_);
    while (held_ != nullptr) std::free(std::exchange(held_, held_->next));
  }

  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  struct Held {
    Held* next;
  };

  void Limit(uint64_t bytes) const {
    const rlimit now{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }

  rlimit before_{};
  Held* held_ = nullptr;
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_MEMORY_LIMIT_H_
