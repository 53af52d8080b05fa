#include "security/authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "security/openssl.h"

namespace paramd {
namespace {

// Clocks of other hosts may be behind.
constexpr absl::Duration kSkew = absl::Minutes(10);

absl::Status Failed() {
  const std::string why = ERR_error_string(ERR_get_error(), nullptr);
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL can't make a certificate: ", why));
}

OwnedKey MakeKey() { return OwnedKey(EVP_EC_gen("P-256")); }

absl::StatusOr<CertifiedKey> ToPem(X509* certificate, EVP_PKEY* key) {
  const OwnedBio certificate_out(BIO_new(BIO_s_mem()));
  const OwnedBio key_out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate_out.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed();
  }
  const auto text = [](BIO* bio) {
    char* data = nullptr;
    const long length = BIO_get_mem_data(bio, &data);
    return std::string(data, static_cast<size_t>(length));
  };
  return CertifiedKey{.certificate = text(certificate_out.get()), .key = text(key_out.get())};
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

absl::Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= 64 && name.find('\0') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' can't be a certificate's name; use 1 to 64 characters"));
}

// As subjectAltName has it.
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  unsigned char address[16];
  if (inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1) {
    return absl::StrCat("IP:", host);
  }
  const bool good = !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' || c == '*';
  });
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, "' can't be a host in a certificate; give a name or an address, without a port"));
  }
  return absl::StrCat("DNS:", host);
}

// Without extensions and a signature.
absl::StatusOr<OwnedCertificate> MakeCertificate(const std::string& name, EVP_PKEY* key, absl::Duration validity) {
  OwnedCertificate certificate(X509_new());
  unsigned char serial[16];
  if (certificate == nullptr || RAND_bytes(serial, sizeof(serial)) != 1) return Failed();
  serial[0] = static_cast<unsigned char>((serial[0] & 0x3f) | 0x40);  // positive, and always as long
  ASN1_INTEGER* const number = X509_get_serialNumber(certificate.get());
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const time_t now = absl::ToTimeT(absl::Now() - kSkew);
  const time_t end = absl::ToTimeT(absl::Now() + validity);
  if (ASN1_STRING_set(number, serial, sizeof(serial)) != 1 || X509_set_version(certificate.get(), 2) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), end) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0) != 1) {
    return Failed();
  }
  return certificate;
}

}  // namespace

struct Authority::Parts {
  OwnedCertificate certificate;
  OwnedKey key;
};

Authority::Authority(std::unique_ptr<Parts> parts, CertifiedKey pem) : parts_(std::move(parts)), pem_(std::move(pem)) {}
Authority::~Authority() = default;

absl::StatusOr<std::unique_ptr<Authority>> Authority::Create(const std::string& name, absl::Duration validity) {
  PrepareOpenssl();
  if (auto status = CheckName(name); !status.ok()) return status;
  OwnedKey key = MakeKey();
  if (key == nullptr) return Failed();
  auto made = MakeCertificate(name, key.get(), validity);
  if (!made.ok()) return made.status();
  X509* const certificate = made->get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1 ||
      !AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate, key.get(), EVP_sha256()) == 0) {
    return Failed();
  }
  auto pem = ToPem(certificate, key.get());
  if (!pem.ok()) return pem.status();
  auto parts = std::make_unique<Parts>(Parts{*std::move(made), std::move(key)});
  return std::unique_ptr<Authority>(new Authority(std::move(parts), *std::move(pem)));
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::FromPem(const CertifiedKey& pem) {
  PrepareOpenssl();
  auto parts = std::make_unique<Parts>(Parts{ReadCertificate(pem.certificate), ReadKey(pem.key)});
  if (parts->certificate == nullptr || parts->key == nullptr || X509_check_ca(parts->certificate.get()) == 0 ||
      X509_check_private_key(parts->certificate.get(), parts->key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("this is not the certificate of an authority with its key");
  }
  return std::unique_ptr<Authority>(new Authority(std::move(parts), pem));
}

absl::StatusOr<CertifiedKey> Authority::Certify(const std::string& name, const std::vector<std::string>& hosts,
                                                absl::Duration validity) const {
  if (auto status = CheckName(name); !status.ok()) return status;
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    auto alternative = AlternativeName(host);
    if (!alternative.ok()) return alternative.status();
    names.push_back(*std::move(alternative));
  }
  const OwnedKey key = MakeKey();
  if (key == nullptr) return Failed();
  auto made = MakeCertificate(name, key.get(), validity);
  if (!made.ok()) return made.status();
  X509* const certificate = made->get();
  X509* const issuer = parts_->certificate.get();
  if (const ASN1_TIME* const end = X509_get0_notAfter(issuer);
      ASN1_TIME_compare(X509_get0_notAfter(certificate), end) > 0 && X509_set1_notAfter(certificate, end) != 1) {
    return Failed();
  }
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(certificate, issuer, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(certificate, issuer, NID_ext_key_usage, hosts.empty() ? "clientAuth" : "serverAuth") ||
      !AddExtension(certificate, issuer, NID_authority_key_identifier, "keyid") ||
      (!names.empty() && !AddExtension(certificate, issuer, NID_subject_alt_name, absl::StrJoin(names, ","))) ||
      X509_sign(certificate, parts_->key.get(), EVP_sha256()) == 0) {
    return Failed();
  }
  return ToPem(certificate, key.get());
}

}  // namespace paramd
