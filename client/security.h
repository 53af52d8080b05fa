// How a client knows its server, and shows who it is.
#ifndef PARAMD_CLIENT_SECURITY_H_
#define PARAMD_CLIENT_SECURITY_H_

#include <string>

namespace paramd {

// What is left empty comes from the environment variable beside it; set to "none" it is not used. The files are read
// again when they change. Where a PEM file is expected the PEM text itself may stand.
struct Security {
  std::string tls_ca;    // PARAMD_TLS_CA: PEM of the authorities whose servers are trusted. With it, all goes over TLS
  std::string tls_cert;  // PARAMD_TLS_CERT, PARAMD_TLS_KEY: PEM of the client's own certificate and its key, for
  std::string tls_key;   // servers that want one
  std::string token_file;  // PARAMD_TOKEN_FILE: holds a token, and goes before `token`
  std::string token;       // shows who the client is
  // PARAMD_INSECURE=1: a token may go beyond this host without TLS, for everybody on the way to read.
  bool insecure = false;
};

// Plain and without a token, whatever the environment says.
inline Security NoSecurity() {
  Security security;
  security.tls_ca = security.tls_cert = security.tls_key = security.token_file = "none";
  return security;
}

}  // namespace paramd

#endif  // PARAMD_CLIENT_SECURITY_H_
