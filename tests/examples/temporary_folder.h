#ifndef PARAMD_TESTS_EXAMPLES_TEMPORARY_FOLDER_H_
#define PARAMD_TESTS_EXAMPLES_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace paramd {

// A folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* base = getenv("TEST_TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/paramd-test.XXXXXX";
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

  // Returns the file's path.
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::string path_;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_EXAMPLES_TEMPORARY_FOLDER_H_
