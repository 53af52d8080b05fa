#include "server/log_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

constexpr size_t kMaxKept = size_t{256} << 10;

// A pipe's flag that nobody waits would be that of all who write to it; an opening of our own has its own.
int OpenPipe() {
  struct stat file {};
  if (fstat(STDERR_FILENO, &file) != 0 || !S_ISFIFO(file.st_mode)) return -1;
  return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

}  // namespace

LogSink::LogSink() : pipe_(OpenPipe()) {}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t formatted;
  base_sink<std::mutex>::formatter_->format(message, formatted);
  if (!Flush(&kept_) || dropped_ > 0) {
    if (kept_.empty()) {
      kept_ = absl::StrCat("level=warning event=log_dropped lines=", dropped_, "\n");
      dropped_ = 0;
    } else if (kept_.size() + formatted.size() > kMaxKept) {
      ++dropped_;
      return;
    }
  }
  kept_.append(formatted.data(), formatted.size());
  Flush(&kept_);
}

void LogSink::flush_() { Flush(&kept_); }

bool LogSink::Flush(std::string* bytes) {
  size_t written = 0;
  while (written < bytes->size()) {
    const ssize_t count = WriteSome(std::string_view(*bytes).substr(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  bytes->erase(0, written);
  return bytes->empty();
}

ssize_t LogSink::WriteSome(std::string_view bytes) {
  if (pipe_.valid()) return write(pipe_.get(), bytes.data(), bytes.size());
  pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&writable, 1, 0) <= 0) return 0;
  // There is room for as much at least.
  return write(STDERR_FILENO, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
}

}  // namespace paramd
