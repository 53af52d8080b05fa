#include "examples/mpi/hosted_daemon.h"

#include <signal.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "examples/mnist/report.h"

namespace paramd {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kGrace = absl::Seconds(15);
constexpr int kOutputLines = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<HostedDaemon>> HostedDaemon::Start(const std::string& program, const std::string& host,
                                                                  std::vector<std::string> flags) {
  auto folder = Folder::Make("paramd-mpi");
  if (!folder.ok()) return folder.status();
  std::unique_ptr<HostedDaemon> daemon(new HostedDaemon(*std::move(folder)));
  std::vector<std::string> command = {program, absl::StrCat("--listen=", host, ":0"),
                                      absl::StrCat("--port_file=", daemon->folder_->Path("port"))};
  command.insert(command.end(), flags.begin(), flags.end());
  auto process = ChildProcess::Start(command, daemon->folder_->Path("log"));
  if (!process.ok()) return process.status();
  daemon->process_ = *std::move(process);
  if (auto status = daemon->Await(); !status.ok()) return status;
  return daemon;
}

HostedDaemon::HostedDaemon(std::unique_ptr<Folder> folder) : folder_(std::move(folder)) {}

HostedDaemon::~HostedDaemon() {
  if (process_ == nullptr) return;
  process_->Signal(SIGTERM);
  process_->Wait(kGrace);
}

absl::Status HostedDaemon::Await() {
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (true) {
    const auto content = ReadFile(folder_->Path("port"));
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
