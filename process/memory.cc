#include "process/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

namespace paramd {
namespace {

constexpr size_t kReserveBytes = size_t{64} << 20;
// Of less, the reserve is enough for many.
constexpr uint64_t kSmallPromise = uint64_t{256} << 10;

std::atomic<void*> reserve{nullptr};
std::atomic<bool> wanted{false};  // somebody gives it up in need
std::atomic<uint64_t> promised{0};
thread_local int untouched = 0;

bool MayBeShort() {
  static const bool strict = [] {
    int mode = 0;
    std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
    return mode == 2;
  }();
  rlimit space{};
  return strict || (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY);
}

}  // namespace

bool MemoryReserve::Hold() {
  wanted = true;
  if (reserve != nullptr) return true;
  void* const memory = mmap(nullptr, kReserveBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, memory)) munmap(memory, kReserveBytes);
  return true;
}

bool MemoryReserve::GiveUp() {
  if (untouched > 0) return false;
  void* const memory = reserve.exchange(nullptr);
  return memory != nullptr && munmap(memory, kReserveBytes) == 0;
}

void MemoryReserve::Release() {
  wanted = false;
  GiveUp();
}

MemoryReserve::Untouched::Untouched() {
  if (wanted && reserve == nullptr && !Hold()) throw std::bad_alloc();
  ++untouched;
}

MemoryReserve::Untouched::~Untouched() { --untouched; }

std::optional<MemoryPromise> MemoryPromise::Make(uint64_t bytes) {
  MemoryPromise promise;
  if (wanted && reserve == nullptr && !MemoryReserve::Hold()) return std::nullopt;
  if (bytes < kSmallPromise || !MayBeShort()) return promise;
  promise.bytes_ = bytes;
  const uint64_t all = promised.fetch_add(bytes) + bytes;
  try {
    const MemoryReserve::Untouched guard;
    void* const memory = std::malloc(all);
    // Or the compiler takes it for unused.
    static std::atomic<void*> looked_for;
    looked_for = memory;
    std::free(memory);
    if (memory != nullptr) return promise;
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

void MemoryPromise::Keep(uint64_t bytes) {
  const uint64_t kept = std::min(bytes, bytes_);
  bytes_ -= kept;
  if (kept > 0) promised -= kept;
}

}  // namespace paramd
