// Ctrl-C as a request to stop.
#ifndef PARAMD_CLIENT_CLI_INTERRUPT_H_
#define PARAMD_CLIENT_CLI_INTERRUPT_H_

#include <signal.h>

#include <stop_token>
#include <thread>

namespace paramd::cli {

// While one exists, the first SIGINT or SIGTERM of the process requests a stop; the second does what it did before. One
// that is ignored stays so. At most one at a time. Thread-compatible.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();

  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  int ends_[2] = {-1, -1};  // of the pipe that the handler writes to
  struct sigaction before_[2] = {};
  std::thread thread_;
};

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_INTERRUPT_H_
