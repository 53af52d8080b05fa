#include "files/watched_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "process/system_call.h"

namespace paramd {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;

bool Same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool Same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && Same(a.st_mtim, b.st_mtim) &&
         Same(a.st_ctim, b.st_ctim);
}

}  // namespace

absl::StatusOr<std::optional<std::string>> WatchedFile::ReadIfChanged() {
  const auto error = [this] { return absl::ErrnoToStatus(errno, path_); };
  const int fd = RetryInterrupted([this] { return open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (fd < 0) return error();
  const absl::Cleanup closer = [fd] { close(fd); };
  struct stat now {};
  if (fstat(fd, &now) != 0) return error();
  if (!S_ISREG(now.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path_, ": not a file"));
  if (Same(now, last_)) return std::nullopt;
  std::string content;
  char part[4096];
  while (true) {
    const ssize_t count = RetryInterrupted([&] { return read(fd, part, sizeof(part)); });
    if (count < 0) return error();
    if (count == 0) break;
    content.append(part, static_cast<size_t>(count));
    if (content.size() > kMaxBytes) return absl::InvalidArgumentError(absl::StrCat(path_, ": larger than 4 MiB"));
  }
  last_ = now;
  return std::optional<std::string>(std::move(content));
}

}  // namespace paramd
