#include "examples/mnist/paths.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paramd {

absl::StatusOr<std::unique_ptr<Folder>> Folder::Make(const std::string& prefix) {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / (prefix + ".XXXXXX")).string();
  if (error || mkdtemp(name.data()) == nullptr) {
    return absl::UnknownError(absl::StrCat("can't make a temporary folder ", name, ": ",
                                           error ? error.message() : strerror(errno),
                                           "; set TMPDIR to a writable folder"));
  }
  return std::unique_ptr<Folder>(new Folder(std::move(name)));
}

Folder::Folder(std::string path) : path_(std::move(path)) {}

void Folder::Remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::Path(const std::string& name) const { return absl::StrCat(path_, "/", name); }

std::string Beside(const std::string& relative) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / relative).lexically_normal().string();
}

}  // namespace paramd
