#include "client/job_secrets.h"

#include "absl/time/time.h"
#include "security/authority.h"
#include "security/tokens.h"

namespace paramd {
namespace {

// Longer than any job.
constexpr absl::Duration kValidity = absl::Hours(24 * 365);

}  // namespace

absl::StatusOr<JobSecrets> MakeJobSecrets(const std::vector<std::string>& hosts) {
  if (hosts.empty()) return absl::InvalidArgumentError("no host is given that the daemon is reached by");
  const auto authority = Authority::Create("paramd job", kValidity);
  if (!authority.ok()) return authority.status();
  auto server = (*authority)->Certify("paramd", hosts, kValidity);
  if (!server.ok()) return server.status();
  auto token = MakeToken("job", "worker", /*models=*/"");
  if (!token.ok()) return token.status();
  return JobSecrets{.tls_cert = std::move(server->certificate),
                    .tls_key = std::move(server->key),
                    .token_file = std::move(token->line),
                    .tls_ca = (*authority)->pem().certificate,
                    .token = std::move(token->token)};
}

}  // namespace paramd
