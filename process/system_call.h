// System calls in a process that handles signals.
#ifndef PARAMD_PROCESS_SYSTEM_CALL_H_
#define PARAMD_PROCESS_SYSTEM_CALL_H_

#include <signal.h>

#include <cerrno>

namespace paramd {

// Makes `call`, which returns a negative number and sets errno if it fails, again for as long as a signal interrupts
// it. A call that waits for a limited time must measure what is left of it itself.
template <typename Call>
auto RetryInterrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// As a shell has scripts' background jobs ignore Ctrl-C: who handles signals leaves such a one alone.
inline bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace paramd

#endif  // PARAMD_PROCESS_SYSTEM_CALL_H_
