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

Certificates::Certificates(PemFiles files) : files_(std::move(files)) {}

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Load(const std::string& certificate, const std::string& key,
                                                                 const std::string& client_ca) {
  std::unique_ptr<Certificates> certificates(
      new Certificates(PemFiles(/*prefix=*/"--", certificate, key, client_ca, "tls_client_ca")));
  if (const auto read = certificates->Reload(); !read.ok()) return read.status();
  return certificates;
}

std::shared_ptr<grpc::ServerCredentials> Certificates::credentials() {
  MutexLock lock(&mutex_);
  return std::make_shared<Listening>(this, !client_ca_.empty());
}

absl::StatusOr<bool> Certificates::Reload() {
  bool changed = false;
  if (auto status = files_.Read(&changed); !status.ok()) return status;
  if (!changed) return false;
  MutexLock lock(&mutex_);
  certificate_ = files_.certificate();
  key_ = files_.key();
  client_ca_ = files_.ca();
  fresh_ = true;
  return true;
}

grpc_ssl_certificate_config_reload_status Certificates::Fetch(void* self, grpc_ssl_server_certificate_config** config) {
  auto& certificates = *static_cast<Certificates*>(self);
  MutexLock lock(&certificates.mutex_);
  if (!std::exchange(certificates.fresh_, false)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{.private_key = certificates.key_.c_str(),
                                        .cert_chain = certificates.certificate_.c_str()};
  // gRPC wants authorities also where it asks for no certificates, and aborts without.
  const std::string& ca = certificates.client_ca_.empty() ? certificates.certificate_ : certificates.client_ca_;
  *config = grpc_ssl_server_certificate_config_create(ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace paramd
