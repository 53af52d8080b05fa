#include "server/certificates.h"

#include <utility>

namespace paramd {

// gRPC's C++ interface has credentials that look for new files themselves, take what does not fit together, and are
// deaf from then on. Its C interface asks us.
class Certificates::Listening : public grpc::ServerCredentials {
 public:
  Listening(Certificates* certificates, bool client_certificates)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                client_certificates ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                &Certificates::Fetch, certificates))) {}
  ~Listening() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Load(const std::string& certificate, const std::string& key,
                                                                 const std::string& client_ca) {
  PemFiles files(/*prefix=*/"--", certificate, key, client_ca, "tls_client_ca");
  bool changed = false;
  if (auto status = files.Read(&changed); !status.ok()) return status;
  return std::unique_ptr<Certificates>(new Certificates(std::move(files)));
}

std::shared_ptr<grpc::ServerCredentials> Certificates::credentials() {
  MutexLock lock(&mutex_);
  return std::make_shared<Listening>(this, !files_.ca().empty());
}

absl::StatusOr<bool> Certificates::Reload() {
  MutexLock lock(&mutex_);
  bool changed = false;
  if (auto status = files_.Read(&changed); !status.ok()) return status;
  fresh_ = fresh_ || changed;
  return changed;
}

grpc_ssl_certificate_config_reload_status Certificates::Fetch(void* self, grpc_ssl_server_certificate_config** config) {
  auto& certificates = *static_cast<Certificates*>(self);
  MutexLock lock(&certificates.mutex_);
  if (!std::exchange(certificates.fresh_, false)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const PemFiles& files = certificates.files_;
  const grpc_ssl_pem_key_cert_pair pair{.private_key = files.key().c_str(), .cert_chain = files.certificate().c_str()};
  // gRPC wants authorities also where it asks for no certificates, and aborts without.
  const std::string& ca = files.ca().empty() ? files.certificate() : files.ca();
  *config = grpc_ssl_server_certificate_config_create(ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace paramd
