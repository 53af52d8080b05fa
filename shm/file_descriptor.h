// An open file, closed at the end and in children that are forked.
#ifndef PARAMD_SHM_FILE_DESCRIPTOR_H_
#define PARAMD_SHM_FILE_DESCRIPTOR_H_

#include <utility>

#include "shm/fork_registry.h"

namespace paramd {

// Movable. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {
    if (fd >= 0) ForkRegistry::AddFile(fd);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ForkRegistry::CloseFile(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace paramd

#endif  // PARAMD_SHM_FILE_DESCRIPTOR_H_
