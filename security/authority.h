// Certificates of one's own, for a cluster that has no authority yet.
#ifndef PARAMD_SECURITY_AUTHORITY_H_
#define PARAMD_SECURITY_AUTHORITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace paramd {

// As PEM.
struct CertifiedKey {
  std::string certificate;
  std::string key;
};

// Signs certificates; all keys are of the curve P-256. Thread-compatible.
class Authority {
 public:
  // A new one. INVALID_ARGUMENT if the name can't be one of a certificate: 1 to 64 bytes of UTF-8.
  static absl::StatusOr<std::unique_ptr<Authority>> Create(const std::string& name, absl::Duration validity);
  // One that was made before. INVALID_ARGUMENT if the two are not an authority's.
  static absl::StatusOr<std::unique_ptr<Authority>> FromPem(const CertifiedKey& pem);
  ~Authority();

  const CertifiedKey& pem() const { return pem_; }

  // For a server that is reached by these names and addresses; without any, for a client. Never longer than the
  // authority's own. INVALID_ARGUMENT for a host that can't be in a certificate.
  absl::StatusOr<CertifiedKey> Certify(const std::string& name, const std::vector<std::string>& hosts,
                                       absl::Duration validity) const;

 private:
  struct Parts;
  Authority(std::unique_ptr<Parts> parts, CertifiedKey pem);

  const std::unique_ptr<Parts> parts_;
  const CertifiedKey pem_;
};

}  // namespace paramd

#endif  // PARAMD_SECURITY_AUTHORITY_H_
