// A daemon that this process starts, and that ends with it.
#ifndef PARAMD_EXAMPLES_MPI_HOSTED_DAEMON_H_
#define PARAMD_EXAMPLES_MPI_HOSTED_DAEMON_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/job_secrets.h"
#include "examples/mnist/child_process.h"

namespace paramd {

// Thread-compatible.
class HostedDaemon {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> flags;
    bool one_host = true;               // listens on loopback, else everywhere, with TLS
    std::optional<JobSecrets> secrets;  // none: it lets in everybody, without TLS
  };
  // On a port that the system chooses; waits until it listens. It ends when the calling thread does. Errors say what
  // the daemon last wrote.
  static absl::StatusOr<std::unique_ptr<HostedDaemon>> Start(const Options& options);
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
