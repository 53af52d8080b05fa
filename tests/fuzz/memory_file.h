#ifndef PARAMD_TESTS_FUZZ_MEMORY_FILE_H_
#define PARAMD_TESTS_FUZZ_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/targets.h"

namespace paramd {

// A file with that content, in memory, for as long as it lives.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(memfd_create("input", MFD_CLOEXEC)) {
    FUZZ_CHECK(write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_FUZZ_MEMORY_FILE_H_
