// A real paramd process for a test, which has //server:paramd as data.
#ifndef PARAMD_TESTS_SUPPORT_DAEMON_H_
#define PARAMD_TESTS_SUPPORT_DAEMON_H_

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace paramd {

// Thread-compatible.
class Daemon {
 public:
  // Starts paramd with `flags` on a port that the system chooses, unless they name an address, and waits until it
  // listens. Aborts the test if it does not. `runner`: a program that runs it in its own place, with its arguments.
  explicit Daemon(std::vector<std::string> flags = {}, std::vector<std::string> runner = {});

  const std::string& address() const { return address_; }
  const std::string& port_file() const { return port_file_; }
  Process& process() { return process_; }
  const Process& process() const { return process_; }

 private:
  const std::string port_file_;
  Process process_;
  std::string address_;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_SUPPORT_DAEMON_H_
