#include "examples/mnist/stop_signal.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <utility>

#include "process/system_call.h"

namespace paramd {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  if (!IsIgnored(SIGINT)) sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

StopSignal::StopSignal(absl::Duration grace) : grace_(grace) {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Run(); });
}

StopSignal::~StopSignal() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void StopSignal::SetHandler(std::function<void()> handler) {
  MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

void StopSignal::Run() {
  const sigset_t signals = StopSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  if (done_) return;
  {
    MutexLock lock(&mutex_);
    if (handler_ == nullptr) std::_Exit(1);
    handler_();
  }
  const timespec grace = absl::ToTimespec(grace_);
  sigtimedwait(&signals, nullptr, &grace);
  if (!done_) std::_Exit(1);
}

}  // namespace paramd
