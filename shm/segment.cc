#include "shm/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/system_call.h"
#include "shm/fork_registry.h"

namespace paramd {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

uint64_t RoundUpToPages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

void* MapShared(const FileDescriptor& memory, uint64_t bytes) {
  return ForkRegistry::Map(bytes,
                           [&] { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0); });
}

}  // namespace

SegmentLayout LayOutSegment(uint64_t floats) {
  const uint64_t buffer = RoundUpToPages(floats * sizeof(float));
  return {.commit_begin = kPageBytes, .center_begin = kPageBytes + buffer, .bytes = kPageBytes + 2 * buffer};
}

absl::StatusOr<Segment> Segment::Create(uint64_t bytes, FileDescriptor* memory, FileDescriptor* watch) {
  bytes = RoundUpToPages(bytes);
  const FileDescriptor made(memfd_create("paramd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.valid()) return SystemError("can't make shared memory");
  if (RetryInterrupted([&] { return ftruncate(made.get(), static_cast<off_t>(bytes)); }) != 0) {
    const bool limited = errno == EFBIG;
    return SystemError(absl::StrCat("can't make ", bytes, " bytes of shared memory",
                                    limited ? ", which counts as a file for `ulimit -f`" : ""));
  }
  if (fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) return SystemError("can't seal shared memory");
  // Two openings of it, as the system counts who holds one that may write: descriptors and mappings, in any process.
  const std::string path = absl::StrCat("/proc/self/fd/", made.get());
  FileDescriptor shared(RetryInterrupted([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); }));
  FileDescriptor watching(RetryInterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!shared.valid() || !watching.valid()) return SystemError("can't open shared memory by /proc");
  void* const mapped = MapShared(shared, bytes);
  if (mapped == MAP_FAILED) return SystemError(absl::StrCat("can't map ", bytes, " bytes of shared memory"));
  *memory = std::move(shared);
  *watch = std::move(watching);
  return Segment(mapped, bytes);
}

bool ReleaseUnheld(const FileDescriptor& watch) {
  // Whoever opens it in between breaks the lease, which must not be the signal that would end this process.
  fcntl(watch.get(), F_SETSIG, SIGURG);
  // Only who is alone may have it.
  if (fcntl(watch.get(), F_SETLEASE, F_WRLCK) != 0) return errno != EAGAIN;
  fcntl(watch.get(), F_SETLEASE, F_UNLCK);
  // An O_PATH descriptor does not count for the lease, but keeps the file. Without waiting for a lease of a peer.
  const FileDescriptor writable(RetryInterrupted(
      [&] { return open(absl::StrCat("/proc/self/fd/", watch.get()).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC); }));
  struct stat file {};
  return writable.valid() && fstat(writable.get(), &file) == 0 &&
         RetryInterrupted([&] {
           return fallocate(writable.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, file.st_size);
         }) == 0;
}

absl::StatusOr<Segment> Segment::Map(const FileDescriptor& memory, uint64_t bytes) {
  bytes = RoundUpToPages(bytes);
  struct stat file {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 ||
      fstat(memory.get(), &file) != 0 || static_cast<uint64_t>(file.st_size) != bytes) {
    return absl::FailedPreconditionError(absl::StrCat("the shared memory that was offered is not ", bytes,
                                                      " bytes that nobody can resize; is it paramd who offers it?"));
  }
  void* const mapped = MapShared(memory, bytes);
  if (mapped == MAP_FAILED) return SystemError(absl::StrCat("can't map ", bytes, " bytes of shared memory"));
  Segment segment(mapped, bytes);
  // An older kernel does not know this, and then the pages come as they are used.
  if (RetryInterrupted([&] { return madvise(mapped, bytes, MADV_POPULATE_WRITE); }) != 0 && errno != EINVAL) {
    return SystemError(absl::StrCat("there are no ", bytes, " bytes of memory to share"));
  }
  return segment;
}

absl::StatusOr<Segment> Segment::Private(uint64_t bytes) {
  bytes = RoundUpToPages(bytes);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return SystemError(absl::StrCat("can't get ", bytes, " bytes of memory"));
  return Segment(mapped, bytes);
}

Segment::Segment(Segment&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Segment& Segment::operator=(Segment other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Segment::~Segment() {
  if (memory_ != nullptr) ForkRegistry::Unmap(memory_, bytes_);
}

absl::Span<float> Segment::Floats(uint64_t begin, uint64_t floats) const {
  if (begin < kPageBytes || begin % alignof(float) != 0 || begin > bytes_ ||
      floats > (bytes_ - begin) / sizeof(float)) {
    return {};
  }
  return {reinterpret_cast<float*>(memory_ + begin), floats};
}

std::atomic_ref<uint64_t> Segment::commit_word() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_));
}

void Segment::StoreCommitWord(uint64_t sequence) const {
  // Not a plain store: what is written from now on must not be seen before it either.
  commit_word().exchange(sequence);
}

uint64_t Segment::LoadCommitWord() const {
  // Not a plain load: what was to be read before must have been read.
  return commit_word().fetch_add(0);
}

void Segment::Clear() {
  if (memory_ != nullptr) madvise(memory_, bytes_, MADV_DONTNEED);
}

absl::Status Segment::Replace(Segment* other) {
  std::memcpy(memory_ + kPageBytes, other->memory_ + kPageBytes, bytes_ - kPageBytes);
  if (!ForkRegistry::Move(memory_, other->memory_, bytes_)) return SystemError("can't move shared memory");
  memory_ = std::exchange(other->memory_, nullptr);
  other->bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace paramd
