// The daemon's TLS.
#ifndef PARAMD_SERVER_CERTIFICATES_H_
#define PARAMD_SERVER_CERTIFICATES_H_

#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "security/pem.h"
#include "sync/mutex.h"

namespace paramd {

// Certificate and key of the daemon, and the authorities of its clients' certificates, from files that may be replaced:
// connections from then on get the new ones. Thread-safe.
class Certificates {
 public:
  // `client_ca` not empty: only clients with a certificate of those authorities are let in. INVALID_ARGUMENT says what
  // is wrong with which file.
  static absl::StatusOr<std::unique_ptr<Certificates>> Load(const std::string& certificate, const std::string& key,
                                                            const std::string& client_ca);

  // For the server to listen with. This must outlive that server.
  std::shared_ptr<grpc::ServerCredentials> credentials();

  // Looks at the files. True if there was something new; INVALID_ARGUMENT if that can't be used, and what was read
  // before goes on. One at a time.
  absl::StatusOr<bool> Reload();

 private:
  class Listening;

  explicit Certificates(PemFiles files);
  // gRPC asks with each connection.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config);

  // Of whoever reloads.
  PemFiles files_;

  Mutex mutex_;
  std::string certificate_ ABSL_GUARDED_BY(mutex_);
  std::string key_ ABSL_GUARDED_BY(mutex_);
  std::string client_ca_ ABSL_GUARDED_BY(mutex_);
  bool fresh_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has not got it yet
};

}  // namespace paramd

#endif  // PARAMD_SERVER_CERTIFICATES_H_
