#include "client/cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "process/system_call.h"

namespace paramd::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<int> handler_end = -1;

void OnSignal(int /*signal*/) {
  const int error = errno;
  if (write(handler_end, "s", 1) < 0) errno = error;
}

}  // namespace

Interrupt::Interrupt() {
  if (pipe2(ends_, O_CLOEXEC) != 0) return;
  handler_end = ends_[1];
  thread_ = std::thread([this, end = ends_[0]] {
    char what = 0;
    RetryInterrupted([&] { return read(end, &what, 1); });
    if (what == 's') source_.request_stop();
  });
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], IsIgnored(kSignals[i]) ? nullptr : &action, &before_[i]);
  }
}

Interrupt::~Interrupt() {
  if (!thread_.joinable()) return;
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  close(ends_[1]);
  thread_.join();
  close(ends_[0]);
}

}  // namespace paramd::cli
