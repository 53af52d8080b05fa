// OpenSSL's objects, with an owner. Internal to this folder.
#ifndef PARAMD_SECURITY_OPENSSL_H_
#define PARAMD_SECURITY_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace paramd {

template <auto function>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
using OwnedBio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using OwnedCertificate = std::unique_ptr<X509, Freer<X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

// To be called before any other use of OpenSSL: its own cleanup at exit would pull the ground from under gRPC's
// threads, which run on.
void PrepareOpenssl();

// Null if there is none in it, or one with a passphrase.
OwnedCertificate ReadCertificate(const std::string& pem);
OwnedKey ReadKey(const std::string& pem);

}  // namespace paramd

#endif  // PARAMD_SECURITY_OPENSSL_H_
