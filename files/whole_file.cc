#include "files/whole_file.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "process/system_call.h"

namespace paramd {
namespace {

constexpr int kMaxLinks = 40;

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

// The descriptor of this process that such a path stands for.
std::optional<int> DescriptorOf(absl::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  int descriptor = -1;
  const bool named = absl::ConsumePrefix(&path, "/dev/fd/") || absl::ConsumePrefix(&path, "/proc/self/fd/");
  return named && absl::SimpleAtoi(path, &descriptor) ? std::optional(descriptor) : std::nullopt;
}

// Where the links lead that `path` may be.
absl::StatusOr<std::string> Followed(const std::string& path) {
  std::filesystem::path at = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(at, error))) return at.string();
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": can't follow the link"));
    at = at.parent_path() / next;
  }
  return absl::ErrnoToStatus(ELOOP, absl::StrCat(path, ": can't follow the link"));
}

// In the folder of `target`, and no longer than a name may be however long that one's is.
std::string TemporaryBeside(const std::string& target) {
  std::random_device random;
  const auto folder = std::filesystem::path(target).parent_path();
  return folder / absl::StrCat(".paramd-", absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

bool IsRefusal(int error) { return error == EACCES || error == EPERM || error == EROFS; }

int Opened(const std::string& path, int flags) {
  return RetryInterrupted([&] { return open(path.c_str(), flags | O_WRONLY | O_CLOEXEC | O_NOCTTY, 0666); });
}

}  // namespace

WholeFile::WholeFile(std::string path, std::string target, How how, int descriptor, std::string temporary)
    : path_(std::move(path)),
      target_(std::move(target)),
      how_(how),
      descriptor_(descriptor),
      temporary_(std::move(temporary)) {}

WholeFile::WholeFile(WholeFile&& other) noexcept
    : path_(other.path_),
      target_(other.target_),
      how_(other.how_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      temporary_(std::exchange(other.temporary_, "")) {}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<WholeFile> WholeFile::Open(const std::string& path) {
  if (const std::optional<int> descriptor = DescriptorOf(path); descriptor.has_value()) {
    const int own = fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return SystemError(path, "can't write");
    return WholeFile(path, path, kThrough, own);
  }
  struct stat there {};
  const bool exists = stat(path.c_str(), &there) == 0;
  // Told now rather than when all is written.
  if (!exists && errno == ENAMETOOLONG) return SystemError(path, "can't create it");
  if (exists && S_ISDIR(there.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": can't write: it is a directory"));
  }
  if (exists && !S_ISREG(there.st_mode)) {
    const int descriptor = Opened(path, 0);
    if (descriptor < 0) return SystemError(path, "can't open");
    return WholeFile(path, path, kThrough, descriptor);
  }

  absl::StatusOr<std::string> target = Followed(path);
  if (!target.ok()) return target.status();
  const std::string folder = std::filesystem::path(*target).parent_path();
  if (const int nameless = Opened(folder.empty() ? "." : folder, O_TMPFILE); nameless >= 0) {
    return WholeFile(path, *std::move(target), kNameless, nameless);
  }
  // Not every file system has nameless files.
  std::string temporary = TemporaryBeside(*target);
  const int named = Opened(temporary, O_CREAT | O_EXCL);
  if (named >= 0) return WholeFile(path, *std::move(target), kNamed, named, std::move(temporary));
  const int refused = errno;
  if (exists && IsRefusal(refused)) {
    if (const int existing = Opened(*target, O_TRUNC); existing >= 0) {
      return WholeFile(path, *std::move(target), kInPlace, existing);
    }
  }
  errno = refused;
  return SystemError(path, "can't create a file in its folder");
}

absl::Status WholeFile::Error(absl::string_view what) const { return SystemError(path_, what); }

absl::Status WholeFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = RetryInterrupted([&] { return write(descriptor_, bytes.data(), bytes.size()); });
    if (written < 0) return Error("can't write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WholeFile::Publish(bool on_disk) {
  if (how_ == kThrough) return absl::OkStatus();
  if (on_disk && RetryInterrupted([&] { return fsync(descriptor_); }) != 0) return Error("can't write");
  return how_ == kInPlace ? absl::OkStatus() : Replace();
}

absl::Status WholeFile::Link(const std::string& to) const {
  const std::string from = absl::StrCat("/proc/self/fd/", descriptor_);
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0) return absl::OkStatus();
  return Error("can't create it");
}

bool WholeFile::TakeOwner() const {
  struct stat there {};
  struct stat own {};
  if (fstat(descriptor_, &own) != 0) return false;
  if (stat(target_.c_str(), &there) != 0) return errno == ENOENT;
  const bool same = there.st_uid == own.st_uid && there.st_gid == own.st_gid;
  // In this order, as a change of owner may take bits of the mode along.
  return (same || fchown(descriptor_, there.st_uid, there.st_gid) == 0) &&
         fchmod(descriptor_, there.st_mode & 07777) == 0;
}

absl::Status WholeFile::Replace() {
  if (how_ == kNameless) {
    const absl::Status linked = Link(target_);
    if (!absl::IsAlreadyExists(linked)) return linked;
    // To replace a file takes a name; for this moment it has one.
    std::string temporary = TemporaryBeside(target_);
    if (auto status = Link(temporary); !status.ok()) return status;
    temporary_ = std::move(temporary);
  }
  if (!TakeOwner()) return IsRefusal(errno) ? CopyToTarget() : Error("can't keep its mode and owner");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) {
    return errno == EBUSY ? CopyToTarget() : Error("can't rename to it");
  }
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status WholeFile::CopyToTarget() {
  const int from = RetryInterrupted([&] { return open(temporary_.c_str(), O_RDONLY | O_CLOEXEC); });
  if (from < 0) return Error("can't read what was written beside it");
  const int to = Opened(target_, O_TRUNC);
  absl::Status status;
  if (to < 0) status = Error("can't open");
  ssize_t copied = 1;
  while (status.ok() && copied > 0) {
    copied = RetryInterrupted([&] { return sendfile(to, from, nullptr, size_t{1} << 30); });
    if (copied < 0) status = Error("can't write");
  }
  if (status.ok() && RetryInterrupted([&] { return fsync(to); }) != 0) status = Error("can't write");
  close(from);
  // From now on this is the file.
  if (to >= 0) close(std::exchange(descriptor_, to));
  how_ = kInPlace;
  return status;
}

}  // namespace paramd
