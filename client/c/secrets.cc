// What one job's daemon and workers need to trust each other.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/c/call.h"
#include "client/c/paramd.h"
#include "client/job_secrets.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

struct paramd_secrets {
  paramd::JobSecrets secrets;
};

paramd_code paramd_secrets_new(const char* const* hosts, size_t host_count, paramd_secrets** secrets) {
  return Guard([&] {
    if (auto status = CheckGiven({{hosts, "hosts"}, {secrets, "secrets"}}); !status.ok()) return status;
    std::vector<std::string> names;
    for (size_t i = 0; i < host_count; ++i) {
      if (auto status = CheckGiven({{hosts[i], "a host"}}); !status.ok()) return status;
      names.emplace_back(hosts[i]);
    }
    auto made = paramd::MakeJobSecrets(names);
    if (!made.ok()) return made.status();
    *secrets = new paramd_secrets{*std::move(made)};
    return absl::OkStatus();
  });
}

const char* paramd_secrets_get(const paramd_secrets* secrets, const char* key) {
  if (secrets == nullptr || key == nullptr) return nullptr;
  const absl::string_view name = key;
  const paramd::JobSecrets& texts = secrets->secrets;
  if (name == "tls_ca") return texts.tls_ca.c_str();
  if (name == "tls_cert") return texts.tls_cert.c_str();
  if (name == "tls_key") return texts.tls_key.c_str();
  if (name == "token") return texts.token.c_str();
  if (name == "token_file") return texts.token_file.c_str();
  return nullptr;
}

void paramd_secrets_free(paramd_secrets* secrets) { delete secrets; }
