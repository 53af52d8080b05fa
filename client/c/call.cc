#include "client/c/call.h"

#include <cmath>
#include <string>

#include "proto/version.h"

namespace paramd::c {
namespace {

thread_local std::string message;

}  // namespace

paramd_code Return(const absl::Status& status) noexcept {
  if (!status.ok()) {
    try {
      message = std::string(status.message());
    } catch (...) {
      message.clear();
    }
  }
  return static_cast<paramd_code>(status.code());
}

absl::Status CheckGiven(std::initializer_list<Given> parameters) {
  for (const Given& parameter : parameters) {
    if (parameter.pointer == nullptr) return absl::InvalidArgumentError(absl::StrCat(parameter.name, " is null"));
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const char* const* names, size_t count) {
  if (count == 0 || (names != nullptr && std::count(names, names + count, nullptr) == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there are ", count, " metrics, and each needs a name"));
}

absl::StatusOr<absl::Duration> Timeout(double seconds) {
  if (std::isnan(seconds)) return absl::InvalidArgumentError("a timeout is not a number; give seconds, or -1 for none");
  return seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
}

}  // namespace paramd::c

const char* paramd_error_message() { return paramd::c::message.c_str(); }

const char* paramd_code_name(paramd_code code) {
  switch (code) {
    case PARAMD_OK:
      return "OK";
    case PARAMD_CANCELLED:
      return "CANCELLED";
    case PARAMD_UNKNOWN:
      return "UNKNOWN";
    case PARAMD_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case PARAMD_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case PARAMD_NOT_FOUND:
      return "NOT_FOUND";
    case PARAMD_ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case PARAMD_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case PARAMD_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case PARAMD_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case PARAMD_ABORTED:
      return "ABORTED";
    case PARAMD_OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case PARAMD_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case PARAMD_INTERNAL:
      return "INTERNAL";
    case PARAMD_UNAVAILABLE:
      return "UNAVAILABLE";
    case PARAMD_DATA_LOSS:
      return "DATA_LOSS";
    case PARAMD_UNAUTHENTICATED:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

int paramd_abi_version() { return PARAMD_ABI_VERSION; }
const char* paramd_version() { return paramd::kVersion; }
