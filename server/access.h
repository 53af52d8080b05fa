// Who may do what: the one place that every call passes.
#ifndef PARAMD_SERVER_ACCESS_H_
#define PARAMD_SERVER_ACCESS_H_

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "files/watched_file.h"
#include "proto/paramd.pb.h"
#include "security/tokens.h"
#include "sync/mutex.h"

namespace paramd {

// A method of the wire.
struct MethodRule {
  absl::string_view method;  // its full name: /paramd.v1.ParameterServer/GetModel
  Role role;                 // what it takes, for the model that it is about
  bool changes;              // something, so that who did it is told
};

// Null if there is none of that name, which then nobody may call.
const MethodRule* FindRule(absl::string_view method);

// Who makes a call, as far as that is known.
class Principal {
 public:
  // Of a token, or of a certificate; "-" where everybody is let in.
  const std::string& name() const { return name_; }

  bool Has(Role role, absl::string_view model) const;
  // For any model at all.
  bool Has(Role role) const;

 private:
  friend class Access;
  std::string name_ = "-";
  std::vector<Grant> grants_;
  uint64_t generation_ = 0;  // of the tokens that it was found in
};

struct AccessOptions {
  // Empty: no tokens, and whoever can connect may do everything.
  std::string token_file;
  // Told who changed what and who was refused, as key=value; null: nobody is. Thread-safe.
  std::function<void(const std::string& line)> log;
};

// Thread-safe.
class Access {
 public:
  // INVALID_ARGUMENT says what is wrong with the file.
  static absl::StatusOr<std::unique_ptr<Access>> Load(AccessOptions options);

  // Looks at the file. True if there were other tokens in it, which count from now on, also for streams that are open.
  // INVALID_ARGUMENT if it can't be used: those from before go on if it can't be read, and if it makes no sense at the
  // first look, as it may while it is written; at the next one only those of its lines that do make sense. One at a
  // time.
  absl::StatusOr<bool> Reload();

  // At the beginning of a call. `rule` may be null. UNAUTHENTICATED without a token that is known, PERMISSION_DENIED if
  // it gives no model the role that the method takes. `principal` is who calls, as far as that is known.
  absl::Status Admit(const grpc::ServerContextBase& call, const MethodRule* rule, Principal* principal) const;

  // Once it is known which model the call is about. PERMISSION_DENIED.
  absl::Status Authorize(const Principal& principal, const MethodRule& rule, const std::string& model) const;

  // Each header of an exchange stream that was admitted as `principal`, who is looked up again if tokens have changed:
  // UNAUTHENTICATED, and the stream is over, if the token is gone. PERMISSION_DENIED.
  absl::Status AuthorizeHeader(const grpc::ServerContextBase& call, const v1::ExchangeHeader& header,
                               Principal* principal);

  // Who did what, and what came of it: a line for what changes something, and, at most one a second, for what was
  // refused.
  void Tell(const grpc::ServerContextBase& call, const MethodRule* rule, const Principal& principal,
            const std::string& model, const std::string& worker, const absl::Status& outcome);

 private:
  explicit Access(AccessOptions options);
  void Take(Tokens tokens);
  absl::Status Identify(const grpc::ServerContextBase& call, Principal* principal) const;

  const AccessOptions options_;

  // Of whoever reloads.
  std::optional<WatchedFile> file_;
  std::optional<std::string> doubtful_;  // its text, which made no sense

  mutable Mutex mutex_;
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);  // null: no tokens are asked for
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_refusal_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t untold_refusals_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The model that a request is about; "" if it is about none.
template <typename Request>
std::string ModelOf(const Request& request) {
  if constexpr (requires { request.participant(); }) {
    return request.participant().model();
  } else if constexpr (requires { request.spec(); }) {
    return request.spec().name();
  } else if constexpr (requires { request.model(); }) {
    return request.model();
  } else {
    return "";
  }
}

// Another model that a request is about; "" if there is none.
template <typename Request>
std::string OtherModelOf(const Request& request) {
  if constexpr (requires { request.as(); }) {
    return request.as();
  } else {
    return "";
  }
}

template <typename Request>
std::string WorkerOf(const Request& request) {
  if constexpr (requires { request.participant(); }) {
    return request.participant().worker();
  } else if constexpr (requires { request.worker(); }) {
    return request.worker();
  } else {
    return "";
  }
}

// Whether a request names a model; one that could and does not is about all of them.
template <typename Request>
constexpr bool kNamesModel = requires(const Request& request) {
  request.participant();
}
|| requires(const Request& request) { request.spec(); }
|| requires(const Request& request) { request.model(); };

// Takes the models that `principal` may not read out of a reply that lists some.
template <typename Reply>
void HideModels(const Principal& principal, Reply* reply) {
  if constexpr (requires { reply->mutable_models(); }) {
    auto* const models = reply->mutable_models();
    const auto hidden = [&](const v1::ModelInfo& model) { return !principal.Has(Role::kReader, model.spec().name()); };
    models->erase(std::remove_if(models->begin(), models->end(), hidden), models->end());
  }
}

}  // namespace paramd

#endif  // PARAMD_SERVER_ACCESS_H_
