#include "tests/support/daemon.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

std::vector<std::string> Complete(std::vector<std::string> flags, std::vector<std::string> runner,
                                  const std::string& port_file) {
  const bool listens = std::any_of(flags.begin(), flags.end(),
                                   [](const std::string& flag) { return absl::StartsWith(flag, "--listen="); });
  if (!listens) flags.push_back("--listen=127.0.0.1:0");
  flags.push_back("--port_file=" + port_file);
  runner.push_back("server/paramd");
  runner.insert(runner.end(), flags.begin(), flags.end());
  return runner;
}

}  // namespace

Daemon::Daemon(std::vector<std::string> flags, std::vector<std::string> runner)
    : port_file_(TemporaryPath("port")), process_(Complete(std::move(flags), std::move(runner), port_file_)) {
  const auto listens = [this] { return !ReadFile(port_file_).empty(); };
  Await([&] { return listens() || !process_.Running(); });
  if (!listens()) {
    std::cerr << "paramd did not start:\n" << process_.Out() << process_.Err();
    std::abort();
  }
  const std::string text(absl::StripAsciiWhitespace(ReadFile(port_file_)));
  address_ = absl::StartsWith(text, "unix:") ? text : absl::StrCat("127.0.0.1:", text);
}

}  // namespace paramd
