// Memory where there may be none: under a limit of the address space (`ulimit -v`), or on a system that promises no
// more than it has.
#ifndef PARAMD_PROCESS_MEMORY_H_
#define PARAMD_PROCESS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace paramd {

// What libraries that end the process without memory (gRPC) ask for is little, but comes at any time: so a program that
// links process/malloc.cc holds some back, which small allocations get when there is no other. Whatever is as large as
// its peer likes must do without, and is refused. Thread-safe.
class MemoryReserve {
 public:
  // Sets it aside, if it is not. False: there is no memory for it.
  static bool Hold();

  // Lets it go; false: it is gone already, or is not for this thread.
  static bool GiveUp();

  // Lets it go for good: what the end of the program needs has it.
  static void Release();

  // While one lives, its thread's allocations fail where there is only the reserve. Throws std::bad_alloc if that is in
  // use.
  class Untouched {
   public:
    Untouched();
    ~Untouched();
    Untouched(const Untouched&) = delete;
    Untouched& operator=(const Untouched&) = delete;
  };
};

// Memory that is going to be used for what a peer sends, of which gRPC takes it: looked for before, where it could be
// short. Movable. Thread-compatible.
class MemoryPromise {
 public:
  // Nothing: there is no memory for as much beside all that was promised to others, or the reserve is in use.
  static std::optional<MemoryPromise> Make(uint64_t bytes);

  MemoryPromise() = default;
  MemoryPromise(MemoryPromise&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryPromise& operator=(MemoryPromise&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryPromise() { Keep(bytes_); }

  // So much of it is in use now.
  void Keep(uint64_t bytes);

 private:
  uint64_t bytes_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_PROCESS_MEMORY_H_
