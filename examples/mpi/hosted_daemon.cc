#include "examples/mpi/hosted_daemon.h"

#include <signal.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "examples/mnist/paths.h"
#include "examples/mnist/report.h"

namespace paramd {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kGrace = absl::Seconds(15);
constexpr int kOutputLines = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<HostedDaemon>> HostedDaemon::Start(const std::string& program, const std::string& host,
                                                                  std::vector<std::string> flags) {
  // Its port file and its log. Nobody needs them once it listens, and they must not outlive a process that is killed.
  const auto folder = Folder::Make("paramd-mpi");
  if (!folder.ok()) return folder.status();
  const std::string port_file = (*folder)->Path("port");
  std::vector<std::string> command = {program, absl::StrCat("--listen=", host, ":0"),
                                      absl::StrCat("--port_file=", port_file)};
  command.insert(command.end(), flags.begin(), flags.end());
  auto process = ChildProcess::Start(command, (*folder)->Path("log"));
  if (!process.ok()) return process.status();
  std::unique_ptr<HostedDaemon> daemon(new HostedDaemon(*std::move(process)));
  if (auto status = daemon->Await(port_file); !status.ok()) return status;
  return daemon;
}

HostedDaemon::HostedDaemon(std::unique_ptr<ChildProcess> process) : process_(std::move(process)) {}

HostedDaemon::~HostedDaemon() {
  process_->Signal(SIGTERM);
  process_->Wait(kGrace);
}

absl::Status HostedDaemon::Await(const std::string& port_file) {
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (true) {
    const auto content = ReadFile(port_file);
    if (content.ok() && absl::SimpleAtoi(*content, &port_)) return absl::OkStatus();
    if (process_->ExitCode().has_value()) {
      return absl::UnavailableError(absl::StrCat("the daemon ended:\n", process_->LastOutput(kOutputLines)));
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon did not write its port:\n", process_->LastOutput(kOutputLines)));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

}  // namespace paramd
