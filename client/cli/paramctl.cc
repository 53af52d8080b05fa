#include "client/cli/paramctl.h"

#include <new>
#include <variant>

#include "client/admin.h"
#include "client/cli/arguments.h"
#include "client/cli/verbs.h"
#include "proto/version.h"

namespace paramd::cli {
namespace {

constexpr int kExitClean = 0;
constexpr int kExitRuntime = 1;
constexpr int kExitUsage = 2;

absl::Status RunVerb(const Invocation& invocation, const Output& to) {
  const std::variant<Verb, OfflineVerb> verb = FindVerb(*invocation.verb);
  if (const auto* const offline = std::get_if<OfflineVerb>(&verb); offline != nullptr) {
    return (*offline)(invocation.arguments, to);
  }
  const auto timeout = CallTimeout(invocation.arguments);
  if (!timeout.ok()) return timeout.status();
  const auto admin = Admin::Connect(ServerAddress(invocation.arguments), *timeout, SecurityOf(invocation.arguments));
  if (absl::IsInvalidArgument(admin.status())) return UsageError(std::string(admin.status().message()));
  if (!admin.ok()) return admin.status();
  absl::Status status;
  try {
    status = std::get<Verb>(verb)(**admin, invocation.arguments, to);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "there is no memory for it here: a center takes 4 bytes for each parameter; use a machine with more");
  }
  if (status.ok() && !to.out.flush()) return absl::UnavailableError("can't write to standard output");
  return status;
}

}  // namespace

int RunParamctl(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  const CommandSpec& spec = ParamctlSpec();
  const auto invocation = ParseArguments(spec, words);
  if (!invocation.ok()) {
    err << "paramctl: " << invocation.status().message() << "\nTry: paramctl help\n";
    return kExitUsage;
  }
  if (invocation->help) {
    out << (invocation->verb == nullptr ? CommandHelp(spec) : VerbHelp(spec, *invocation->verb));
    return kExitClean;
  }
  // `restore` has one with a value.
  if (invocation->arguments.Has("version") && invocation->arguments.Values("version").empty()) {
    out << "paramctl " << kVersion << "\n";
    return kExitClean;
  }
  if (invocation->verb == nullptr) {
    err << CommandHelp(spec);
    return kExitUsage;
  }
  const auto status = RunVerb(*invocation, {.out = out, .err = err});
  if (status.ok()) return kExitClean;
  err << "paramctl: " << status.message() << "\n";
  if (!IsUsageError(status)) return kExitRuntime;
  err << "Try: paramctl help " << invocation->verb->name << "\n";
  return kExitUsage;
}

}  // namespace paramd::cli
