#include "files/whole_file.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace paramd {
namespace {

// A folder of this test's own.
class Folder {
 public:
  Folder() { std::filesystem::create_directory(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string File(const std::string& name, const std::string& content, mode_t mode = 0644) const {
    const std::string path = *this / name;
    std::ofstream(path) << content;
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path;
  }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  const std::string path_ = TemporaryPath("folder");
};

absl::Status Write(const std::string& path, const std::string& content) {
  auto file = WholeFile::Open(path);
  if (!file.ok()) return file.status();
  if (auto status = file->Write(content); !status.ok()) return status;
  return file->Publish();
}

struct stat StatusOf(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status;
}

TEST_CASE("a new file appears when it is published, and leaves nothing if it is not") {
  const Folder folder;
  const mode_t mask = umask(027);
  {
    auto file = WholeFile::Open(folder / "new");
    REQUIRE(file.ok());
    REQUIRE(file->Write("half").ok());
    CHECK_FALSE(std::filesystem::exists(folder / "new"));
  }
  CHECK(folder.files() == 0);
  CHECK(Write(folder / "new", "whole").ok());
  umask(mask);
  CHECK(ReadFile(folder / "new") == "whole");
  CHECK((StatusOf(folder / "new").st_mode & 07777) == 0640);
  CHECK(folder.files() == 1);
}

TEST_CASE("a process that is killed leaves nothing") {
  const Folder folder;
  folder.File("old", "old");
  const pid_t child = fork();
  if (child == 0) {
    auto file = WholeFile::Open(folder / "old");
    if (!file.ok() || !file->Write("half").ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(ReadFile(folder / "old") == "old");
  CHECK(folder.files() == 1);
}

TEST_CASE("a file that is replaced keeps its mode and owner") {
  const Folder folder;
  const std::string path = folder.File("private", "old", 0600);
  // Where we may.
  const bool another = chown(path.c_str(), 1234, 4321) == 0;
  INFO("another owner: " << another);
  const struct stat before = StatusOf(path);
  REQUIRE(Write(path, "new").ok());
  const struct stat after = StatusOf(path);
  CHECK(ReadFile(path) == "new");
  CHECK(after.st_mode == before.st_mode);
  CHECK(after.st_uid == before.st_uid);
  CHECK(after.st_gid == before.st_gid);
  CHECK(after.st_ino != before.st_ino);
  CHECK(folder.files() == 1);
}

TEST_CASE("links are followed, also where they dangle") {
  const Folder folder;
  std::filesystem::create_symlink("real", folder / "link");
  std::filesystem::create_symlink("link", folder / "outer");
  REQUIRE(Write(folder / "outer", "first").ok());
  CHECK(std::filesystem::is_symlink(folder / "outer"));
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(ReadFile(folder / "real") == "first");
  REQUIRE(Write(folder / "outer", "second").ok());
  CHECK(ReadFile(folder / "real") == "second");
  std::filesystem::create_symlink("circle", folder / "circle");
  CHECK_FALSE(Write(folder / "circle", "").ok());
}

TEST_CASE("a name may be as long as names can be") {
  const Folder folder;
  const std::string path = folder / std::string(255, 'x');
  REQUIRE(Write(path, "first").ok());
  REQUIRE(Write(path, "second").ok());
  CHECK(ReadFile(path) == "second");
  CHECK(folder.files() == 1);
}

TEST_CASE("a name that is too long is told before anything is written, also where a link leads") {
  const Folder folder;
  const std::string name(256, 'x');
  std::filesystem::create_symlink(name, folder / "link");
  for (const std::string& path : {folder / name, folder / "link"}) {
    const auto file = WholeFile::Open(path);
    CHECK_THAT(std::string(file.status().message()), Catch::Equals(path + ": can't create it: File name too long"));
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("a file that is a mount of its own gets the new content") {
  const Folder folder;
  const std::string path = folder.File("mounted", "the old content");
  const std::string other = folder.File("other", "the other's content");
  if (mount(other.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return testing::Skip("mounts are not allowed here");
  const absl::Status written = Write(path, "new");
  const std::string content = ReadFile(path);
  REQUIRE(umount(path.c_str()) == 0);
  CHECK(written.ok());
  CHECK(content == "new");
  CHECK(ReadFile(other) == "new");
  CHECK(folder.files() == 2);
}

TEST_CASE("what is no regular file is written through, and stays what it is") {
  const Folder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { read = ReadFile(folder / "pipe"); });
  CHECK(Write(folder / "pipe", "data").ok());
  reader.join();
  CHECK(read == "data");
  CHECK(std::filesystem::is_fifo(folder / "pipe"));
  CHECK(Write("/dev/null", "data").ok());
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(Write("/dev/full", "data").code() == absl::StatusCode::kResourceExhausted);
  CHECK(Write(folder / ".", "").code() == absl::StatusCode::kInvalidArgument);
  CHECK(Write(folder / "absent/file", "").code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a descriptor's path is that descriptor") {
  const Folder folder;
  const std::string path = folder.File("log", "before ");
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  REQUIRE(Write("/dev/fd/" + std::to_string(file), "after").ok());
  REQUIRE(Write("/proc/self/fd/" + std::to_string(file), "wards").ok());
  close(file);
  CHECK(ReadFile(path) == "before afterwards");
  CHECK_FALSE(Write("/dev/fd/" + std::to_string(file), "closed").ok());
}

}  // namespace
}  // namespace paramd
