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
#include "absl/time/time.h"
#include "client/security.h"
#include "files/watched_file.h"
#include "proto/address.h"
#include "security/pem.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe.
class Credentials {
 public:
  // INVALID_ARGUMENT says which file or option is wrong, or that a token would go to `server` in the clear.
  static absl::StatusOr<std::unique_ptr<Credentials>> Load(Security security, const Address& server,
                                                           const Clock* clock = Clock::Steady());

  bool tls() const { return tls_; }

  // For a new channel. `generation` grows when files have changed, after which a new channel has other credentials.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel() const;
  uint64_t generation() const;

  // Puts the token, if there is one, into a call. Returns which credentials these are, for Refresh.
  uint64_t Authorize(grpc::ClientContext* call) const;

  // After a call with credentials `used` that failed for want of them, maybe: looks at the files. Whether there are
  // others by now, or since a moment ago, which the server may not have read yet: so that it is worth another try. What
  // can't be used is as if it had not changed.
  bool Refresh(uint64_t used);

 private:
  // What is in use.
  struct Texts {
    std::string ca;
    std::string certificate;
    std::string key;
    std::string token;
    uint64_t generation = 0;
    uint64_t changes = 0;  // of any of these
  };

  Credentials(Security security, bool tls, const Clock* clock);
  // Takes what is new and can be used; `*changed`: whether there was any.
  absl::Status Read(bool* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_);
  absl::Status ReadToken(bool* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_);
  std::shared_ptr<const Texts> texts() const;

  const bool tls_;
  const Clock* const clock_;

  // Held while files are read, by nobody but those who wait for what is in them.
  Mutex reading_;
  PemFiles pem_ ABSL_GUARDED_BY(reading_);
  std::optional<WatchedFile> token_file_ ABSL_GUARDED_BY(reading_);
  std::string token_ ABSL_GUARDED_BY(reading_);
  absl::Time changed_ ABSL_GUARDED_BY(reading_) = absl::InfinitePast();

  mutable Mutex mutex_;
  std::shared_ptr<const Texts> texts_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const Texts>();
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_CREDENTIALS_H_
