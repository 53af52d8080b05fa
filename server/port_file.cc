#include "server/port_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// The first line, empty if there is none; whole says whether there is nothing else.
std::string ReadLine(const std::string& path, bool* whole) {
  std::ifstream file(path);
  std::string line;
  *whole = static_cast<bool>(std::getline(file, line)) && file.peek() == std::ifstream::traits_type::eof();
  return line;
}

// Of the time of the last change of a daemon's port file, which everybody else's write changes. Not all file systems
// have attributes that could tell.
constexpr int64_t kMarkNanoseconds = 726'176'273;

bool IsAt(int file, const std::string& path) {
  struct stat own {};
  struct stat there {};
  return fstat(file, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
         own.st_ino == there.st_ino;
}

// Without its name if it can be, else, as it is a mount, without its content. False if neither can be.
bool RemoveOrEmpty(int file, const std::string& path) { return unlink(path.c_str()) == 0 || ftruncate(file, 0) == 0; }

// A daemon's own: it is known again by its lock while the daemon lives, and by its time afterwards.
void Claim(int file) {
  flock(file, LOCK_EX | LOCK_NB);
  timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(nullptr), .tv_nsec = kMarkNanoseconds}};
  futimens(file, times);
}

// Nobody's file is removed because of a wrong flag.
bool IsPortFile(int file) {
  struct stat own {};
  if (fstat(file, &own) != 0 || own.st_mtim.tv_nsec != kMarkNanoseconds) return false;
  bool whole = false;
  const std::string line = ReadLine(absl::StrCat("/proc/self/fd/", file), &whole);
  int port = 0;
  return whole && (absl::StartsWith(line, "unix:") || (absl::SimpleAtoi(line, &port) && port > 0 && port <= 65535));
}

void RemoveLeftOver(const std::string& path) {
  // Nothing else is even opened: the reader of a pipe would take that for its writer.
  struct stat kind {};
  if (stat(path.c_str(), &kind) != 0 || !S_ISREG(kind.st_mode)) return;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return;
  const absl::Cleanup closer = [file] { close(file); };
  if (flock(file, LOCK_EX | LOCK_NB) != 0 || !IsPortFile(file)) return;
  const std::unique_ptr<char, decltype(&std::free)> target(realpath(path.c_str(), nullptr), &std::free);
  if (target != nullptr && IsAt(file, target.get())) RemoveOrEmpty(file, target.get());
}

}  // namespace

PortFile::PortFile(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) RemoveLeftOver(path_);
}

absl::Status PortFile::Write(const std::string& line) {
  if (path_.empty()) return absl::OkStatus();
  struct stat kind {};
  if (stat(path_.c_str(), &kind) == 0 && S_ISFIFO(kind.st_mode)) {
    std::thread([path = path_, line] {
      if (auto pipe = WholeFile::Open(path); pipe.ok()) pipe->Write(line + "\n").IgnoreError();
    }).detach();
    return absl::OkStatus();
  }
  MutexLock lock(&mutex_);
  const absl::Status status = WriteLocked(line);
  if (status.ok()) return status;
  return absl::UnavailableError(absl::StrCat("can't write the port file ", status.message(),
                                             "; does its folder exist, and may you write there?"));
}

absl::Status PortFile::WriteLocked(const std::string& line) {
  auto file = WholeFile::Open(path_);
  if (!file.ok()) return file.status();
  if (auto status = file->Write(line + "\n"); !status.ok()) return status;
  // Before it has its name and, if only the content was replaced, after.
  if (!file->special()) Claim(file->descriptor());
  if (auto status = file->Publish(); !status.ok()) return status;
  if (!file->special()) Claim(file->descriptor());
  line_ = line;
  file_.emplace(*std::move(file));
  return absl::OkStatus();
}

void PortFile::Remove() {
  MutexLock lock(&mutex_);
  if (!file_.has_value() || file_->special()) return;
  bool whole = false;
  const bool mine = IsAt(file_->descriptor(), file_->target()) && ReadLine(file_->target(), &whole) == line_;
  if (mine && !RemoveOrEmpty(file_->descriptor(), file_->target())) return;
  file_.reset();
}

}  // namespace paramd
