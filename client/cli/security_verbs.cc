// Certificates and tokens for a first cluster. These verbs speak to no server.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/json_view.h"
#include "client/cli/verbs.h"
#include "files/watched_file.h"
#include "files/whole_file.h"
#include "process/system_call.h"
#include "security/authority.h"
#include "security/tokens.h"

namespace paramd::cli {
namespace {

constexpr int64_t kAuthorityDays = 3650;
constexpr int64_t kDefaultDays = 365;

absl::Duration Days(int64_t days) { return absl::Hours(24 * days); }

absl::Status WritePublic(const std::string& path, const std::string& text) {
  auto file = WholeFile::Open(path);
  if (!file.ok()) return file.status();
  if (auto status = file->Write(text); !status.ok()) return status;
  return file->Publish();
}

// While files of a folder are read, changed and written by one paramctl, others wait.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : fd_(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // Where that can't be had, what is to be written there can't be either, or nobody else is there.
    if (fd_ >= 0) RetryInterrupted([this] { return flock(fd_, LOCK_EX); });
  }
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  const int fd_;
};

// A new file may be read by its owner alone; one that is there keeps its mode.
absl::Status WritePrivate(const std::string& path, const std::string& text) {
  const mode_t before = umask(077);
  const absl::Status status = WritePublic(path, text);
  umask(before);
  return status;
}

absl::StatusOr<std::string> ReadSmall(const std::string& path) {
  auto text = WatchedFile(path).ReadIfChanged();
  if (!text.ok()) return text.status();
  return **std::move(text);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// That of the folder, or a new one.
absl::StatusOr<std::unique_ptr<Authority>> FindOrCreateAuthority(const std::string& folder) {
  const std::string certificate = absl::StrCat(folder, "/ca.pem");
  const std::string key = absl::StrCat(folder, "/ca.key");
  if (std::filesystem::exists(certificate) || std::filesystem::exists(key)) {
    auto certificate_text = ReadSmall(certificate);
    if (!certificate_text.ok()) return certificate_text.status();
    auto key_text = ReadSmall(key);
    if (!key_text.ok()) return key_text.status();
    auto authority = Authority::FromPem({.certificate = *std::move(certificate_text), .key = *std::move(key_text)});
    if (!authority.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(certificate, ", ", key, ": ", std::string(authority.status().message())));
    }
    return authority;
  }
  auto authority = Authority::Create("paramd authority", Days(kAuthorityDays));
  if (!authority.ok()) return authority.status();
  if (auto status = WritePrivate(key, (*authority)->pem().key); !status.ok()) return status;
  if (auto status = WritePublic(certificate, (*authority)->pem().certificate); !status.ok()) return status;
  return authority;
}

absl::Status WriteCertified(const std::string& folder, const std::string& name,
                            const absl::StatusOr<CertifiedKey>& made) {
  if (absl::IsInvalidArgument(made.status())) return UsageError(std::string(made.status().message()));
  if (!made.ok()) return made.status();
  if (auto status = WritePrivate(absl::StrCat(folder, "/", name, ".key"), made->key); !status.ok()) return status;
  return WritePublic(absl::StrCat(folder, "/", name, ".pem"), made->certificate);
}

}  // namespace

absl::Status InitTls(const Arguments& arguments, const Output& to) {
  const std::string& folder = arguments.operands()[0];
  const auto days = arguments.Integer("days", kDefaultDays, 1);
  if (!days.ok()) return days.status();
  if (*days > kAuthorityDays) {
    return UsageError(absl::StrCat("--days=", *days, ": the authority itself is good for ", kAuthorityDays,
                                   " days; give at most as many"));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  const FolderLock lock(folder);
  const auto authority = FindOrCreateAuthority(folder);
  if (!authority.ok()) return authority.status();

  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  if (const std::string own = HostName(); !own.empty() && own != hosts[0]) hosts.push_back(own);
  for (const std::string& host : arguments.Values("host")) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  if (auto status = WriteCertified(folder, "server", (*authority)->Certify("paramd", hosts, Days(*days)));
      !status.ok()) {
    return status;
  }
  if (auto status = WriteCertified(folder, "client", (*authority)->Certify("paramd client", {}, Days(*days)));
      !status.ok()) {
    return status;
  }
  if (arguments.Has("json")) {
    to.out << JsonText({{"folder", folder}, {"hosts", hosts}, {"days", *days}});
    return absl::OkStatus();
  }
  to.out << "made " << folder << "/{server,client}.{pem,key} of the authority " << folder << "/ca.pem, for "
         << absl::StrJoin(hosts, ", ") << "; good for " << *days << " days\n"
         << "  paramd --tls_cert=" << folder << "/server.pem --tls_key=" << folder << "/server.key"
         << "   and for clients with a certificate only --tls_client_ca=" << folder << "/ca.pem\n"
         << "  clients: PARAMD_TLS_CA=" << folder << "/ca.pem   and PARAMD_TLS_CERT=" << folder
         << "/client.pem PARAMD_TLS_KEY=" << folder << "/client.key\n"
         << "keep " << folder << "/ca.key away from all of them\n";
  return absl::OkStatus();
}

absl::Status AddToken(const Arguments& arguments, const Output& to) {
  const std::string& path = arguments.operands()[2];
  const auto made = MakeToken(arguments.operands()[0], arguments.operands()[1], arguments.Value("models"));
  if (absl::IsInvalidArgument(made.status())) return UsageError(std::string(made.status().message()));
  if (!made.ok()) return made.status();
  const FolderLock lock(std::filesystem::path(path).parent_path().string());
  std::string lines = "# NAME ROLE SHA-256 [MODELS]; see docs/security.md\n";
  if (std::filesystem::exists(path)) {
    auto text = ReadSmall(path);
    if (!text.ok()) return text.status();
    lines = *std::move(text);
    if (!lines.empty() && lines.back() != '\n') lines += "\n";
  }
  lines += made->line;
  if (const auto parsed = Tokens::Parse(lines); !parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::string(parsed.status().message()), "; nothing was added to it"));
  }
  const std::string out = arguments.Value("out");
  if (!out.empty()) {
    if (auto status = WritePrivate(out, made->token + "\n"); !status.ok()) return status;
  }
  if (auto status = WritePrivate(path, lines); !status.ok()) return status;
  if (out.empty()) to.out << made->token << "\n";
  return absl::OkStatus();
}

}  // namespace paramd::cli
