#include "client/security_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, tls_ca, "",
          "PEM file of the authorities of the daemon's certificate, to speak TLS; empty: PARAMD_TLS_CA");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file of a certificate, for daemons that want one of their clients; empty: PARAMD_TLS_CERT");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its key; empty: PARAMD_TLS_KEY");
ABSL_FLAG(std::string, token_file, "", "file of a token that the daemon knows; empty: PARAMD_TOKEN_FILE");
ABSL_FLAG(bool, insecure, false, "do without TLS also beyond this host: its network is trusted");

namespace paramd {

Security SecurityFromFlags() {
  Security security;
  security.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  security.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  security.tls_key = absl::GetFlag(FLAGS_tls_key);
  security.token_file = absl::GetFlag(FLAGS_token_file);
  security.insecure = absl::GetFlag(FLAGS_insecure);
  return security;
}

std::vector<std::string> SecurityFlags(const Security& security) {
  return {absl::StrCat("--tls_ca=", security.tls_ca), absl::StrCat("--tls_cert=", security.tls_cert),
          absl::StrCat("--tls_key=", security.tls_key), absl::StrCat("--token_file=", security.token_file),
          absl::StrCat("--insecure=", security.insecure ? "true" : "false")};
}

}  // namespace paramd
