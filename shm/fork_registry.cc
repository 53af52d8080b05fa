#include "shm/fork_registry.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>

#include "absl/base/thread_annotations.h"
#include "sync/mutex.h"

namespace paramd {
namespace {

struct Registered {
  Mutex mutex;
  std::map<void*, size_t> memory ABSL_GUARDED_BY(mutex);  // bytes by address
  std::set<int> files ABSL_GUARDED_BY(mutex);
};

// Allocates nothing, as in the child of a process with threads.
void Leave(Registered* registered) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (const auto& [address, bytes] : registered->memory) {
    mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  }
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : registered->files) {
    if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0) close(fd);
  }
  if (null >= 0) close(null);
  registered->mutex.Unlock();
}

// Never destroyed: forks come at any time.
Registered& TheOne() {
  static Registered* const registered = [] {
    auto* made = new Registered;
    pthread_atfork([]() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheOne().mutex.Lock(); },
                   []() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheOne().mutex.Unlock(); }, [] { Leave(&TheOne()); });
    return made;
  }();
  return *registered;
}

}  // namespace

void* ForkRegistry::Map(size_t bytes, const std::function<void*()>& map) {
  Registered& registered = TheOne();
  MutexLock lock(&registered.mutex);
  void* const mapped = map();
  if (mapped != MAP_FAILED) registered.memory[mapped] = bytes;
  return mapped;
}

void ForkRegistry::Unmap(void* memory, size_t bytes) {
  Registered& registered = TheOne();
  MutexLock lock(&registered.mutex);
  registered.memory.erase(memory);
  munmap(memory, bytes);
}

bool ForkRegistry::Move(void* from, void* to, size_t bytes) {
  Registered& registered = TheOne();
  MutexLock lock(&registered.mutex);
  if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) return false;
  registered.memory.erase(to);
  if (registered.memory.erase(from) > 0) registered.memory[to] = bytes;
  return true;
}

void ForkRegistry::AddFile(int fd) {
  Registered& registered = TheOne();
  MutexLock lock(&registered.mutex);
  registered.files.insert(fd);
}

void ForkRegistry::CloseFile(int fd) {
  Registered& registered = TheOne();
  MutexLock lock(&registered.mutex);
  registered.files.erase(fd);
  close(fd);
}

}  // namespace paramd
