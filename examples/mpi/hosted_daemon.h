// A daemon that this process starts, and that ends with it.
#ifndef PARAMD_EXAMPLES_MPI_HOSTED_DAEMON_H_
#define PARAMD_EXAMPLES_MPI_HOSTED_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/mnist/child_process.h"

namespace paramd {

// Thread-compatible.
class HostedDaemon {
 public:
  // Runs `program` with `flags` and a port that the system chooses on `host`, and waits until it listens. It ends when
  // the calling thread does. Errors say what the daemon last wrote.
  static absl::StatusOr<std::unique_ptr<HostedDaemon>> Start(const std::string& program, const std::string& host,
                                                             std::vector<std::string> flags);
  // Stops it.
  ~HostedDaemon();

  HostedDaemon(const HostedDaemon&) = delete;
  HostedDaemon& operator=(const HostedDaemon&) = delete;

  int port() const { return port_; }
  bool running() const { return !process_->ExitCode().has_value(); }

 private:
  explicit HostedDaemon(std::unique_ptr<ChildProcess> process);

  // Until it has written its port.
  absl::Status Await(const std::string& port_file);

  const std::unique_ptr<ChildProcess> process_;
  int port_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MPI_HOSTED_DAEMON_H_
