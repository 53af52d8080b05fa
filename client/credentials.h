// A client's certificates and token in use. Internal to the client.
#ifndef PARAMD_CLIENT_CREDENTIALS_H_
#define PARAMD_CLIENT_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/security.h"
#include "files/watched_file.h"
#include "proto/address.h"
#include "security/pem.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe.
class Credentials {
 public:
  // INVALID_ARGUMENT says which file or option is wrong, or that a token would go to `server` in the clear.
  static absl::StatusOr<std::unique_ptr<Credentials>> Load(Security security, const Address& server);

  bool tls() const { return tls_; }

  // For a new channel. `generation` grows when files have changed, after which a new channel has other credentials;
  // what can't be used then is as if it had not changed.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel();
  uint64_t generation();

  // Puts the token, if there is one, into a call.
  void Authorize(grpc::ClientContext* call);

 private:
  Credentials(Security security, bool tls);
  absl::Status ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadTokenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool tls_;

  Mutex mutex_;
  PemFiles pem_ ABSL_GUARDED_BY(mutex_);
  std::optional<WatchedFile> token_file_ ABSL_GUARDED_BY(mutex_);
  std::string token_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_CREDENTIALS_H_
