#include "client/credentials.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace paramd {
namespace {

constexpr size_t kMaxToken = 4096;
// The server looks at its files once a second.
constexpr absl::Duration kMoment = absl::Seconds(3);

void TakeFromEnvironment(const char* name, std::string* option) {
  if (option->empty()) {
    const char* const value = std::getenv(name);
    if (value != nullptr) *option = value;
  }
  if (*option == "none") option->clear();
}

// As a header of HTTP/2 takes it. The token itself is in no message.
absl::Status CheckToken(absl::string_view source, absl::string_view token) {
  if (token.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": there is no token in it"));
  if (token.size() > kMaxToken || !std::all_of(token.begin(), token.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c));
      })) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": a token is one word of at most ", kMaxToken, " visible ASCII characters"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(Security security, const Address& server,
                                                               const Clock* clock) {
  if (security.token.empty() || !security.token_file.empty()) {
    TakeFromEnvironment("PARAMD_TOKEN_FILE", &security.token_file);
  }
  TakeFromEnvironment("PARAMD_TLS_CA", &security.tls_ca);
  TakeFromEnvironment("PARAMD_TLS_CERT", &security.tls_cert);
  TakeFromEnvironment("PARAMD_TLS_KEY", &security.tls_key);
  std::string insecure;
  TakeFromEnvironment("PARAMD_INSECURE", &insecure);
  if (insecure == "1") security.insecure = true;

  const bool tls = !security.tls_ca.empty();
  if (!tls && !(security.tls_cert.empty() && security.tls_key.empty())) {
    return absl::InvalidArgumentError(
        "tls_cert is given, but no tls_ca (PARAMD_TLS_CA): whom would the certificate be shown to? Name the authority "
        "of the server's certificate");
  }
  if (const bool token = !security.token.empty() || !security.token_file.empty();
      token && !tls && !server.loopback() && !security.insecure) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token would go to ", server.ToString(),
        " without TLS, for everybody on the way to read; give tls_ca (PARAMD_TLS_CA), or if the network is trusted say "
        "insecure (PARAMD_INSECURE=1)"));
  }
  std::unique_ptr<Credentials> credentials(new Credentials(std::move(security), tls, clock));
  MutexLock lock(&credentials->reading_);
  bool changed = false;
  if (auto status = credentials->Read(&changed); !status.ok()) return status;
  return credentials;
}

Credentials::Credentials(Security security, bool tls, const Clock* clock)
    : tls_(tls),
      clock_(clock),
      pem_(/*prefix=*/"", security.tls_cert, security.tls_key, security.tls_ca, "tls_ca"),
      token_(std::move(security.token)) {
  if (!security.token_file.empty()) token_file_.emplace(std::move(security.token_file));
}

absl::Status Credentials::Read(bool* changed) {
  bool pem_changed = false;
  const absl::Status pem = pem_.Read(&pem_changed);
  pem_changed = pem_changed && pem.ok();
  bool token_changed = false;
  const absl::Status token = ReadToken(&token_changed);
  *changed = pem_changed || token_changed;
  MutexLock lock(&mutex_);
  texts_ = std::make_shared<const Texts>(Texts{.ca = pem_.ca(),
                                               .certificate = pem_.certificate(),
                                               .key = pem_.key(),
                                               .token = token_,
                                               .generation = texts_->generation + (pem_changed ? 1 : 0),
                                               .changes = texts_->changes + (*changed ? 1 : 0)});
  return pem.ok() ? token : pem;
}

absl::Status Credentials::ReadToken(bool* changed) {
  if (!token_file_.has_value()) return token_.empty() ? absl::OkStatus() : CheckToken("token", token_);
  auto read = token_file_->ReadIfChanged();
  if (!read.ok()) return absl::InvalidArgumentError(absl::StrCat("token_file: ", read.status().message()));
  if (!read->has_value()) return absl::OkStatus();
  const absl::string_view token = absl::StripAsciiWhitespace(**read);
  if (auto status = CheckToken(absl::StrCat("token_file: ", token_file_->path()), token); !status.ok()) return status;
  *changed = *changed || token != token_;
  token_ = std::string(token);
  return absl::OkStatus();
}

std::shared_ptr<const Credentials::Texts> Credentials::texts() const {
  MutexLock lock(&mutex_);
  return texts_;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::ForChannel() const {
  if (!tls_) return grpc::InsecureChannelCredentials();
  const std::shared_ptr<const Texts> now = texts();
  return grpc::SslCredentials(
      {.pem_root_certs = now->ca, .pem_private_key = now->key, .pem_cert_chain = now->certificate});
}

uint64_t Credentials::generation() const { return texts()->generation; }

uint64_t Credentials::Authorize(grpc::ClientContext* call) const {
  const std::shared_ptr<const Texts> now = texts();
  if (!now->token.empty()) call->AddMetadata("authorization", absl::StrCat("Bearer ", now->token));
  return now->changes;
}

bool Credentials::Refresh(uint64_t used) {
  MutexLock lock(&reading_);
  bool changed = false;
  Read(&changed).IgnoreError();
  const absl::Time now = clock_->Now();
  if (changed) changed_ = now;
  return used < texts()->changes || now < changed_ + kMoment;
}

}  // namespace paramd
