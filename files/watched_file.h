// Small files that others replace while we run: certificates, keys, lists of tokens.
#ifndef PARAMD_FILES_WATCHED_FILE_H_
#define PARAMD_FILES_WATCHED_FILE_H_

#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace paramd {

// Thread-compatible.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // The whole content, unless the file is still the one that was read last. Errors begin with the path: the system's,
  // and INVALID_ARGUMENT for what is no file or larger than 4 MiB; what was read before then still counts as the last.
  absl::StatusOr<std::optional<std::string>> ReadIfChanged();

 private:
  std::string path_;
  struct stat last_ {};
};

}  // namespace paramd

#endif  // PARAMD_FILES_WATCHED_FILE_H_
