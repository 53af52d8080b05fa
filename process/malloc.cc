// For programs, which only need to link it: small allocations that would fail get the memory that was set aside.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "process/memory.h"

// A sanitizer has a malloc of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// glibc's, by the names that stay when malloc is somebody else's.
extern "C" void* __libc_malloc(size_t bytes) noexcept;
extern "C" void* __libc_calloc(size_t count, size_t bytes) noexcept;
extern "C" void* __libc_realloc(void* memory, size_t bytes) noexcept;

namespace {

// More is as large as its peer likes.
constexpr size_t kSmall = size_t{8} << 20;

template <typename Allocate>
void* Rescue(size_t bytes, const Allocate& allocate) {
  void* memory = allocate();
  if (memory != nullptr || bytes > kSmall || bytes == 0) return memory;
  const int error = errno;
  if (!paramd::MemoryReserve::GiveUp()) {
    errno = error;
    return nullptr;
  }
  return allocate();
}

}  // namespace

extern "C" void* malloc(size_t bytes) noexcept {
  return Rescue(bytes, [=] { return __libc_malloc(bytes); });
}

extern "C" void* calloc(size_t count, size_t bytes) noexcept {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) all = SIZE_MAX;
  return Rescue(all, [=] { return __libc_calloc(count, bytes); });
}

extern "C" void* realloc(void* memory, size_t bytes) noexcept {
  return Rescue(bytes, [=] { return __libc_realloc(memory, bytes); });
}

#endif
