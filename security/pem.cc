#include "security/pem.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "security/openssl.h"

namespace paramd {
namespace {

absl::Status Wrong(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

}  // namespace

PemFiles::PemFiles(const std::string& prefix, const std::string& certificate, const std::string& key,
                   const std::string& ca, const std::string& ca_name)
    : certificate_(MakeSource(absl::StrCat(prefix, "tls_cert"), certificate)),
      key_(MakeSource(absl::StrCat(prefix, "tls_key"), key)),
      ca_(MakeSource(absl::StrCat(prefix, ca_name), ca)) {
  PrepareOpenssl();
}

PemFiles::Source PemFiles::MakeSource(const std::string& name, const std::string& given) {
  Source source{.name = name, .given = !given.empty(), .file = std::nullopt, .text = "", .next = ""};
  if (absl::StartsWith(given, "-----BEGIN")) {
    source.next = given;
  } else if (!given.empty()) {
    source.file.emplace(given);
  }
  return source;
}

absl::Status PemFiles::Read(bool* changed) {
  *changed = !checked_;
  for (Source* const source : {&certificate_, &key_, &ca_}) {
    if (source->file.has_value()) {
      auto read = source->file->ReadIfChanged();
      if (!read.ok()) return Wrong(source->name, read.status().message());
      if (read->has_value()) source->next = **std::move(read);
    }
    *changed = *changed || source->next != source->text;
  }
  if (!*changed) return absl::OkStatus();
  if (auto status = CheckNext(); !status.ok()) return status;
  for (Source* const source : {&certificate_, &key_, &ca_}) source->text = source->next;
  checked_ = true;
  return absl::OkStatus();
}

absl::Status PemFiles::CheckNext() const {
  if (certificate_.given != key_.given) {
    return Wrong(certificate_.given ? key_.name : certificate_.name, "certificate and key go together; give both");
  }
  if (certificate_.given) {
    const OwnedCertificate certificate = ReadCertificate(certificate_.next);
    if (certificate == nullptr) return Wrong(certificate_.name, "there is no PEM certificate in it");
    const OwnedKey key = ReadKey(key_.next);
    if (key == nullptr) return Wrong(key_.name, "there is no PEM key without a passphrase in it");
    if (X509_check_private_key(certificate.get(), key.get()) != 1) {
      return Wrong(key_.name, "it is another certificate's key; was only one of the two files replaced?");
    }
    if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
      return Wrong(certificate_.name, "the certificate has expired; make a new one (`paramctl init-tls`)");
    }
  }
  if (ca_.given && ReadCertificate(ca_.next) == nullptr) {
    return Wrong(ca_.name, "there is no PEM certificate in it");
  }
  return absl::OkStatus();
}

}  // namespace paramd
