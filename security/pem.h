// Certificates and keys as PEM, checked before gRPC gets them, which would only fail to shake hands.
#ifndef PARAMD_SECURITY_PEM_H_
#define PARAMD_SECURITY_PEM_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "files/watched_file.h"

namespace paramd {

// A certificate with its key, or a list of authorities, from files that may be replaced. Where a path is expected the
// PEM text itself may stand, which begins with "-----BEGIN". Thread-compatible.
class PemFiles {
 public:
  // Each may be empty; certificate and key go together. `prefix` stands before "tls_cert" and so on in errors: "--".
  PemFiles(const std::string& prefix, const std::string& certificate, const std::string& key, const std::string& ca,
           const std::string& ca_name);

  // Takes what has changed, if it is whole: the key is the certificate's, and the authorities can be read. Else
  // INVALID_ARGUMENT, which says what is wrong with which file, and all stays as it was. `*changed` says whether
  // anything is new.
  absl::Status Read(bool* changed);

  const std::string& certificate() const { return certificate_.text; }
  const std::string& key() const { return key_.text; }
  const std::string& ca() const { return ca_.text; }

 private:
  struct Source {
    std::string name;
    bool given = false;
    std::optional<WatchedFile> file;  // none: the text is all
    std::string text;
    std::string next;  // as it was read, until all of them are known to fit
  };

  static Source MakeSource(const std::string& name, const std::string& given);
  absl::Status CheckNext() const;

  Source certificate_;
  Source key_;
  Source ca_;
  bool checked_ = false;
};

}  // namespace paramd

#endif  // PARAMD_SECURITY_PEM_H_
