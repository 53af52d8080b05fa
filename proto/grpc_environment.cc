// gRPC asks for its environment variables by the functions below, which take the place of its own. Somebody else's
// GRPC_TRACE, GRPC_POLL_STRATEGY or http_proxy is not for our connections; with PARAMD_GRPC_ENVIRONMENT=1 all of them
// are.
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/types/optional.h"

namespace grpc_core {

absl::optional<std::string> GetEnv(const char* name);
void SetEnv(const char* name, const char* value);
void UnsetEnv(const char* name);

absl::optional<std::string> GetEnv(const char* name) {
  static const bool wanted = [] {
    const char* const option = std::getenv("PARAMD_GRPC_ENVIRONMENT");
    return option != nullptr && std::string_view(option) == "1";
  }();
  // Whoever embeds the client gets its errors, not gRPC's words about them on standard error.
  if (!wanted && std::string_view(name) == "GRPC_VERBOSITY") return "NONE";
  const char* const value = wanted ? std::getenv(name) : nullptr;
  return value == nullptr ? absl::nullopt : absl::optional<std::string>(value);
}

void SetEnv(const char* name, const char* value) { setenv(name, value, 1); }

void UnsetEnv(const char* name) { unsetenv(name); }

}  // namespace grpc_core
