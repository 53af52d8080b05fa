#include "examples/mpi/hosted_daemon.h"

#include <signal.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "examples/mnist/paths.h"
#include "examples/mnist/report.h"
#include "sync/clock.h"

namespace paramd {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kGrace = absl::Seconds(15);
constexpr int kOutputLines = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<HostedDaemon>> HostedDaemon::Start(const Options& options) {
  // Its files. Nobody needs them once it listens, and they must not outlive a process that is killed.
  const auto folder = Folder::Make("paramd-mpi");
  if (!folder.ok()) return folder.status();
  const std::string port_file = (*folder)->Path("port");
  std::vector<std::string> command = {options.program, options.one_host ? "--listen=127.0.0.1:0" : "--listen=0.0.0.0:0",
                                      absl::StrCat("--port_file=", port_file)};
  if (options.secrets.has_value()) {
    std::vector<std::pair<std::string, std::string>> files = {{"token_file", options.secrets->token_file}};
    if (!options.one_host) {
      files.emplace_back("tls_cert", options.secrets->tls_cert);
      files.emplace_back("tls_key", options.secrets->tls_key);
    }
    for (const auto& [flag, text] : files) {
      if (auto status = WriteFile((*folder)->Path(flag), text); !status.ok()) return status;
      command.push_back(absl::StrCat("--", flag, "=", (*folder)->Path(flag)));
    }
  } else {
    command.push_back("--insecure");
  }
  command.insert(command.end(), options.flags.begin(), options.flags.end());
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
  const absl::Time deadline = Clock::Steady()->Now() + kStartTimeout;
  while (true) {
    const auto content = ReadFile(port_file);
    if (content.ok() && absl::SimpleAtoi(*content, &port_)) return absl::OkStatus();
    if (process_->ExitCode().has_value()) {
      return absl::UnavailableError(absl::StrCat("the daemon ", process_->Ended(kOutputLines)));
    }
    if (Clock::Steady()->Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon did not write its port:\n", process_->LastOutput(kOutputLines)));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

}  // namespace paramd
