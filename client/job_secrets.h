// What one job's daemon and its workers need to trust each other.
#ifndef PARAMD_CLIENT_JOB_SECRETS_H_
#define PARAMD_CLIENT_JOB_SECRETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paramd {

struct JobSecrets {
  // Of the daemon: what the files hold that its flags of these names want.
  std::string tls_cert;
  std::string tls_key;
  std::string token_file;
  // Of the workers, for their Security. The token's role is worker, for all models.
  std::string tls_ca;
  std::string token;
};

// New ones. `hosts`: names and addresses that workers reach the daemon by. INVALID_ARGUMENT if one of them can't be in
// a certificate.
absl::StatusOr<JobSecrets> MakeJobSecrets(const std::vector<std::string>& hosts);

}  // namespace paramd

#endif  // PARAMD_CLIENT_JOB_SECRETS_H_
