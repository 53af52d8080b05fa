// What a process shares with the daemon is not for the children that it forks: they would keep the memory alive, and
// write into their parent's buffers as their own. Internal to shm.
#ifndef PARAMD_SHM_FORK_REGISTRY_H_
#define PARAMD_SHM_FORK_REGISTRY_H_

#include <cstddef>
#include <functional>

namespace paramd {

// Children made by fork(3) lose what is registered in the moment they are made; others, as of a bare clone(2), keep it.
// In the child a range is still taken, but can't be accessed, and a file's number is still taken, but is /dev/null's:
// so whoever owns them there can free them as ever. Thread-safe.
class ForkRegistry {
 public:
  // Registers the `bytes` of memory that `map` returns, unless that is MAP_FAILED. No fork happens meanwhile.
  static void* Map(size_t bytes, const std::function<void*()>& map);
  static void Unmap(void* memory, size_t bytes);
  // The memory, registered or not, is at `to` now, in the place of what was there.
  static bool Move(void* from, void* to, size_t bytes);

  static void AddFile(int fd);
  static void CloseFile(int fd);
};

}  // namespace paramd

#endif  // PARAMD_SHM_FORK_REGISTRY_H_
