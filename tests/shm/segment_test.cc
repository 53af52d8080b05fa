#include "shm/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tests/support/await.h"

namespace paramd {
namespace {

Segment Create(uint64_t bytes, FileDescriptor* memory, FileDescriptor* watch = nullptr) {
  FileDescriptor unused;
  auto segment = Segment::Create(bytes, memory, watch == nullptr ? &unused : watch);
  INFO(segment.status());
  REQUIRE(segment.ok());
  return *std::move(segment);
}

TEST_CASE("what one side writes to a segment the other side reads") {
  const SegmentLayout layout = LayOutSegment(1025);
  CHECK(layout.commit_begin == 4096);
  CHECK(layout.center_begin == 3 * 4096);
  CHECK(layout.bytes == 5 * 4096);
  FileDescriptor memory;
  const Segment ours = Create(layout.bytes, &memory);
  const auto theirs = Segment::Map(memory, layout.bytes);
  REQUIRE(theirs.ok());
  CHECK(ours.bytes() == layout.bytes);
  const absl::Span<float> commit = ours.Floats(layout.commit_begin, 1025);
  REQUIRE(commit.size() == 1025);
  CHECK(std::count(commit.begin(), commit.end(), 0.0f) == 1025);
  theirs->Floats(layout.commit_begin, 1025)[1024] = 7;
  CHECK(commit[1024] == 7);
  CHECK(ours.LoadCommitWord() == 0);
  theirs->StoreCommitWord(std::numeric_limits<uint64_t>::max());
  CHECK(ours.LoadCommitWord() == std::numeric_limits<uint64_t>::max());
}

TEST_CASE("a segment can't be resized, nor its seals changed") {
  FileDescriptor memory;
  const Segment segment = Create(8192, &memory);
  CHECK(ftruncate(memory.get(), 4096) != 0);
  CHECK(ftruncate(memory.get(), 0) != 0);
  CHECK(ftruncate(memory.get(), 1 << 20) != 0);
  CHECK(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(lseek(memory.get(), 0, SEEK_END) == 8192);
  // A hole reads as zero, and is filled again.
  segment.Floats(4096, 1)[0] = 1;
  CHECK(fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192) == 0);
  CHECK(segment.Floats(4096, 1)[0] == 0);
}

TEST_CASE("floats beyond a segment, in its first page or beside their alignment are not to be had") {
  FileDescriptor memory;
  const Segment segment = Create(3 * 4096, &memory);
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  CHECK(segment.Floats(4096, 2048).size() == 2048);
  CHECK(segment.Floats(3 * 4096 - 4, 1).size() == 1);
  const std::pair<uint64_t, uint64_t> refused[] = {
      {0, 1},        {4092, 1},     {4097, 1},      {4098, 1},      {4096, 2049},
      {3 * 4096, 1}, {4096, kMost}, {kMost - 3, 1}, {kMost, kMost}, {4096, kMost / 4 + 2}};
  for (const auto& [begin, floats] : refused) {
    INFO(floats << " floats from byte " << begin);
    CHECK(segment.Floats(begin, floats).data() == nullptr);
  }
}

TEST_CASE("memory that its maker could shrink, or of another size, is not mapped") {
  const FileDescriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(loose.get(), 8192) == 0);
  CHECK(Segment::Map(loose, 8192).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  CHECK(Segment::Map(loose, 8192).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0);
  CHECK(Segment::Map(loose, 8192).ok());
  CHECK(Segment::Map(loose, 4096).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Segment::Map(loose, 12288).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Segment::Map(FileDescriptor(), 4096).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a segment takes another's place with its floats, at its addresses") {
  const SegmentLayout layout = LayOutSegment(3000);
  auto first = Segment::Private(layout.bytes);
  REQUIRE(first.ok());
  const absl::Span<float> commit = first->Floats(layout.commit_begin, 3000);
  const absl::Span<float> center = first->Floats(layout.center_begin, 3000);
  std::fill(commit.begin(), commit.end(), 1.0f);
  std::fill(center.begin(), center.end(), 2.0f);
  FileDescriptor memory;
  const Segment daemons = Create(layout.bytes, &memory);
  auto second = Segment::Map(memory, layout.bytes);
  REQUIRE(second.ok());
  REQUIRE(second->Replace(&*first).ok());
  CHECK(first->bytes() == 0);
  CHECK(second->Floats(layout.commit_begin, 3000).data() == commit.data());
  CHECK(std::count(commit.begin(), commit.end(), 1.0f) == 3000);
  CHECK(std::count(center.begin(), center.end(), 2.0f) == 3000);
  commit[2999] = 3;
  CHECK(daemons.Floats(layout.commit_begin, 3000)[2999] == 3);
}

// The memory that it takes.
int64_t PagesBytes(const FileDescriptor& file) {
  struct stat is {};
  REQUIRE(fstat(file.get(), &is) == 0);
  return int64_t{is.st_blocks} * 512;
}

TEST_CASE("memory that only a path to it is left of is empty, and what a peer still maps stays as it is") {
  FileDescriptor memory;
  FileDescriptor watch;
  std::optional<Segment> ours = Create(1 << 20, &memory, &watch);
  auto theirs = Segment::Map(memory, 1 << 20);
  REQUIRE(theirs.ok());
  const FileDescriptor path(open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), O_PATH | O_CLOEXEC));
  REQUIRE(path.valid());
  float* const last = &theirs->Floats(4096, (1 << 18) - 1024)[(1 << 18) - 1025];
  *last = 7;
  ours.reset();
  memory = FileDescriptor();
  CHECK_FALSE(ReleaseUnheld(watch));
  CHECK(*last == 7);
  CHECK(PagesBytes(path) == 1 << 20);
  auto elsewhere = Segment::Private(1 << 20);
  REQUIRE(elsewhere.ok());
  REQUIRE(elsewhere->Replace(&*theirs).ok());
  CHECK(ReleaseUnheld(watch));
  CHECK(PagesBytes(path) == 0);
}

TEST_CASE("memory is held until the last descriptor and the last mapping are gone, and its watch does not hold it") {
  FileDescriptor memory;
  FileDescriptor watch;
  std::optional<Segment> ours = Create(8192, &memory, &watch);
  auto theirs = Segment::Map(memory, 8192);
  REQUIRE(theirs.ok());
  CHECK_FALSE(ReleaseUnheld(watch));
  ours.reset();
  CHECK_FALSE(ReleaseUnheld(watch));
  memory = FileDescriptor();
  CHECK_FALSE(ReleaseUnheld(watch));
  auto elsewhere = Segment::Private(8192);
  REQUIRE(elsewhere.ok());
  REQUIRE(elsewhere->Replace(&*theirs).ok());
  CHECK(ReleaseUnheld(watch));
}

// What a forked child of this process ends with: its exit code, or minus the signal.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    // Catch's handlers are for the parent.
    signal(SIGSEGV, SIG_DFL);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("a forked child neither holds its parent's segment nor writes into it") {
  FileDescriptor memory;
  FileDescriptor watch;
  std::optional<Segment> segment = Create(8192, &memory, &watch);
  float* const floats = segment->Floats(4096, 1).data();
  *floats = 1;
  const int fd = memory.get();
  CHECK(InChild([&] { return fcntl(fd, F_GET_SEALS) < 0 ? 0 : 1; }) == 0);
  CHECK(InChild([&] {
          *floats = 2;
          return 0;
        }) == -SIGSEGV);
  // The objects are the child's to destroy.
  CHECK(InChild([&] {
          segment.reset();
          memory = FileDescriptor();
          return 0;
        }) == 0);
  CHECK(*floats == 1);

  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(go[1]);
    char byte;
    _exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
  }
  segment.reset();
  memory = FileDescriptor();
  CHECK(Await([&] { return ReleaseUnheld(watch); }));
  close(go[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(go[0]);
}

TEST_CASE("private buffers are a forked child's own") {
  auto segment = Segment::Private(8192);
  REQUIRE(segment.ok());
  float* const floats = segment->Floats(4096, 1).data();
  *floats = 1;
  CHECK(InChild([&] {
          const bool copied = *floats == 1;
          *floats = 2;
          return copied ? 0 : 1;
        }) == 0);
  CHECK(*floats == 1);
}

TEST_CASE("a segment past the limit on files is an error that says so") {
  CHECK(InChild([] {
          signal(SIGXFSZ, SIG_IGN);
          const rlimit limit{4096, 4096};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
          FileDescriptor memory;
          FileDescriptor watch;
          const auto segment = Segment::Create(8192, &memory, &watch);
          return segment.status().message().find("ulimit -f") != std::string::npos ? 0 : 2;
        }) == 0);
}

}  // namespace
}  // namespace paramd
