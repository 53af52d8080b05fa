#include "security/openssl.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

namespace paramd {
namespace {

OwnedBio Open(const std::string& text) { return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// Nobody is there to ask.
int NoPassphrase(char* /*to*/, int /*size*/, int /*writing*/, void* /*context*/) { return 0; }

}  // namespace

void PrepareOpenssl() { OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }

OwnedCertificate ReadCertificate(const std::string& pem) {
  OwnedCertificate read(PEM_read_bio_X509(Open(pem).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  return read;
}

OwnedKey ReadKey(const std::string& pem) {
  OwnedKey read(PEM_read_bio_PrivateKey(Open(pem).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  return read;
}

}  // namespace paramd
