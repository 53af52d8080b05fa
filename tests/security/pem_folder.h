// A folder with an authority's certificates.
#ifndef PARAMD_TESTS_SECURITY_PEM_FOLDER_H_
#define PARAMD_TESTS_SECURITY_PEM_FOLDER_H_

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "security/authority.h"
#include "tests/support/process.h"

namespace paramd {

class PemFolder {
 public:
  PemFolder() : folder_(TemporaryPath("pem")) {
    std::filesystem::create_directories(folder_);
    auto made = Authority::Create("test", absl::Hours(1));
    REQUIRE(made.ok());
    authority_ = *std::move(made);
    Write("ca.pem", authority_->pem().certificate);
  }
  ~PemFolder() { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& file) const { return folder_ + "/" + file; }

  void Write(const std::string& file, const std::string& text) const {
    // Another file in its place, as tools do that replace certificates.
    std::ofstream(Path(file + ".new")) << text;
    std::filesystem::rename(Path(file + ".new"), Path(file));
  }

  // NAME.pem and NAME.key; for a client if there are no hosts.
  void Certify(const std::string& name, const std::vector<std::string>& hosts) const {
    const auto made = authority_->Certify(name, hosts, absl::Hours(1));
    REQUIRE(made.ok());
    Write(name + ".pem", made->certificate);
    Write(name + ".key", made->key);
  }

 private:
  const std::string folder_;
  std::unique_ptr<Authority> authority_;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_SECURITY_PEM_FOLDER_H_
