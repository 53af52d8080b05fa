// The flags --tls_ca, --tls_cert, --tls_key, --token_file and --insecure, for programs that are clients.
#ifndef PARAMD_CLIENT_SECURITY_FLAGS_H_
#define PARAMD_CLIENT_SECURITY_FLAGS_H_

#include <string>
#include <vector>

#include "client/security.h"

namespace paramd {

Security SecurityFromFlags();

// The same as a command line, for a program that is started with them. What is left to the environment is left to it
// there, too.
std::vector<std::string> SecurityFlags(const Security& security);

}  // namespace paramd

#endif  // PARAMD_CLIENT_SECURITY_FLAGS_H_
