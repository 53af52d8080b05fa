#include "state/log_segment.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "process/system_call.h"

namespace paramd {
namespace {

constexpr std::string_view kMagic = "paramdJ1";
constexpr size_t kTrailerBytes = sizeof(uint32_t);
// Fewer are gathered, more written at once.
constexpr size_t kGatheredBytes = size_t{64} << 10;
constexpr size_t kBufferBytes = size_t{1} << 20;
// The system begins to write so much, while more of it is on its way.
constexpr uint64_t kPushedBytes = uint64_t{1} << 20;
// Of a scan for records.
constexpr size_t kScannedBytes = size_t{1} << 20;

uint32_t Crc(uint32_t crc, std::string_view bytes) { return libdeflate_crc32(crc, bytes.data(), bytes.size()); }

size_t Padding(uint64_t bytes) { return (8 - bytes % 8) % 8; }

template <typename Number>
void Put(char** at, Number number) {
  std::memcpy(*at, &number, sizeof(number));
  *at += sizeof(number);
}

template <typename Number>
Number Get(const char** at) {
  Number number;
  std::memcpy(&number, *at, sizeof(number));
  *at += sizeof(number);
  return number;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

struct RecordHeader {
  uint32_t crc = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t position = 0;
  uint64_t previous = 0;
  uint64_t synced = 0;

  bool mark() const { return position == previous; }
  // Of all of the record.
  uint64_t bytes() const {
    if (mark()) return kRecordHeaderBytes;
    const uint64_t sum = kRecordHeaderBytes + head_bytes + payload_bytes + kTrailerBytes;
    return sum + Padding(sum);
  }
};

uint32_t HeaderCrc(uint64_t salt, const char* header) {
  const uint32_t crc = Crc(0, {reinterpret_cast<const char*>(&salt), sizeof(salt)});
  return Crc(crc, {header + sizeof(uint32_t), kRecordHeaderBytes - sizeof(uint32_t)});
}

RecordHeader Parse(const char* at) {
  RecordHeader header;
  header.crc = Get<uint32_t>(&at);
  header.head_bytes = Get<uint32_t>(&at);
  header.payload_bytes = Get<uint64_t>(&at);
  header.position = Get<uint64_t>(&at);
  header.previous = Get<uint64_t>(&at);
  header.synced = Get<uint64_t>(&at);
  return header;
}

// Whether a header that is what was written makes sense.
bool Sound(const RecordHeader& header) {
  if (header.mark()) return header.head_bytes == 0 && header.payload_bytes == 0;
  return header.position > header.previous && header.head_bytes <= kMaxRecordHeadBytes;
}

}  // namespace

absl::Status FileError(absl::string_view path, absl::string_view what) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; make room, writing goes on by itself then"));
  }
  return absl::Status(absl::ErrnoToStatusCode(error), message);
}

absl::Status SyncFolder(const std::string& folder) {
  const int file = RetryInterrupted([&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (file < 0) return FileError(folder, "can't open the folder");
  const bool synced = RetryInterrupted([&] { return fsync(file); }) == 0;
  const absl::Status status = synced ? absl::OkStatus() : FileError(folder, "can't write the folder to disk");
  close(file);
  return status;
}

// ---------------------------------------------------------------------------------------------------------------------

SegmentWriter::SegmentWriter(std::string path, int file, uint64_t salt, uint64_t previous)
    : path_(std::move(path)), file_(file), salt_(salt), last_(previous), synced_last_(previous) {}

SegmentWriter::~SegmentWriter() { close(file_); }

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(const std::string& folder, uint64_t number,
                                                                     uint64_t previous) {
  const std::string path = absl::StrCat(folder, "/", absl::StrFormat("%010u", number), ".log");
  const int file =
      RetryInterrupted([&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600); });
  if (file < 0) return FileError(path, "can't make the file");
  std::random_device random;
  const uint64_t salt = uint64_t{random()} << 32 | random();
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(path, file, salt, previous));
  char header[kSegmentHeaderBytes] = {};
  char* at = header + kMagic.copy(header, kMagic.size());
  Put(&at, salt);
  Put(&at, previous);
  Put(&at, Crc(0, {header, static_cast<size_t>(at - header)}));
  absl::Status status = writer->WriteOut({header, sizeof(header)});
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = SyncFolder(folder);
  if (status.ok()) return writer;
  unlink(path.c_str());
  return status;
}

absl::Status SegmentWriter::Begin(uint64_t position, std::string_view head, uint64_t payload_bytes) {
  char header[kRecordHeaderBytes];
  char* at = header + sizeof(uint32_t);
  Put(&at, static_cast<uint32_t>(head.size()));
  Put(&at, payload_bytes);
  Put(&at, position);
  Put(&at, last_);
  Put(&at, synced_);
  crc_ = HeaderCrc(salt_, header);
  at = header;
  Put(&at, crc_);
  record_begin_ = bytes();
  buffer_.append(header, sizeof(header));
  last_ = position;
  return Write(head);
}

absl::Status SegmentWriter::Write(std::string_view bytes) {
  if (bytes.size() <= kGatheredBytes) {
    crc_ = Crc(crc_, bytes);
    buffer_.append(bytes);
    return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
  }
  if (auto status = Flush(); !status.ok()) return status;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kBufferBytes))) {
    const std::string_view piece = bytes.substr(0, kBufferBytes);
    crc_ = Crc(crc_, piece);
    if (auto status = WriteOut(piece); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SegmentWriter::End() {
  char trailer[kTrailerBytes];
  char* at = trailer;
  Put(&at, crc_);
  buffer_.append(trailer, sizeof(trailer));
  buffer_.append(Padding(bytes() - record_begin_), '\0');
  return absl::OkStatus();
}

absl::Status SegmentWriter::Flush() {
  const absl::Status status = WriteOut(buffer_);
  buffer_.clear();
  return status;
}

absl::Status SegmentWriter::WriteOut(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        RetryInterrupted([&] { return pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(written_)); });
    if (n <= 0) {
      if (n == 0) errno = EIO;
      return FileError(path_, "can't write");
    }
    written_ += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (written_ - pushed_ >= kPushedBytes) {
    // Only a hint.
    sync_file_range(file_, static_cast<off_t>(pushed_), static_cast<off_t>(written_ - pushed_), SYNC_FILE_RANGE_WRITE);
    pushed_ = written_;
  }
  return absl::OkStatus();
}

absl::Status SegmentWriter::Sync() {
  if (auto status = Flush(); !status.ok()) return status;
  if (RetryInterrupted([&] { return fdatasync(file_); }) != 0) return FileError(path_, "can't write to disk");
  struct stat file {};
  struct stat named {};
  if (fstat(file_, &file) != 0 || stat(path_.c_str(), &named) != 0 || file.st_ino != named.st_ino ||
      file.st_dev != named.st_dev) {
    return absl::UnavailableError(absl::StrCat(
        path_,
        ": this file is not there any more, so that nobody would find what is written; was the state folder moved "
        "or removed? Bring it back, or stop the server"));
  }
  synced_ = pushed_ = written_;
  synced_last_ = last_;
  return absl::OkStatus();
}

absl::Status SegmentWriter::Mark() {
  if (auto status = Begin(last_, "", 0); !status.ok()) return status;
  return Flush();
}

absl::Status SegmentWriter::Restore() {
  buffer_.clear();
  if (RetryInterrupted([&] { return ftruncate(file_, static_cast<off_t>(synced_)); }) != 0 ||
      RetryInterrupted([&] { return fsync(file_); }) != 0) {
    return FileError(path_, "can't cut off what could not be written");
  }
  written_ = pushed_ = synced_;
  last_ = synced_last_;
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------------

SegmentReader::~SegmentReader() { close(file_); }

absl::StatusOr<std::unique_ptr<SegmentReader>> SegmentReader::Open(const std::string& path) {
  const int file = RetryInterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); });
  if (file < 0) return FileError(path, "can't open the file");
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    close(file);
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a file"));
  }
  posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::unique_ptr<SegmentReader>(new SegmentReader(path, file, static_cast<uint64_t>(about.st_size)));
}

absl::Status SegmentReader::ReadAt(uint64_t offset, char* to, size_t bytes) const {
  while (bytes > 0) {
    const ssize_t n = RetryInterrupted([&] { return pread(file_, to, bytes, static_cast<off_t>(offset)); });
    if (n == 0) return absl::DataLossError(absl::StrCat(path_, ": ends before byte ", offset, ", while it is read"));
    if (n < 0) return FileError(path_, absl::StrCat("can't read at byte ", offset));
    to += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status SegmentReader::ReadHeader(uint64_t previous, bool oldest) {
  char header[kSegmentHeaderBytes] = {};
  const size_t bytes = std::min<uint64_t>(bytes_, sizeof(header));
  if (auto status = ReadAt(0, header, bytes); !status.ok()) return status;
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path_, ": damaged at byte 0: ", what, "; see docs/journal.md"));
  };
  if (bytes < sizeof(header)) return damaged("its header is not whole");
  if (std::string_view(header, kMagic.size()) != kMagic) return damaged("it is no journal of this version");
  const char* at = header + kMagic.size();
  salt_ = Get<uint64_t>(&at);
  const uint64_t follows = Get<uint64_t>(&at);
  const size_t covered = static_cast<size_t>(at - header);
  if (Get<uint32_t>(&at) != Crc(0, {header, covered})) return damaged("its header's checksum is wrong");
  if (Get<uint32_t>(&at) != 0) return damaged("its header is not what was written");
  if (!oldest && follows != previous) {
    return damaged(absl::StrCat("it follows record ", follows, ", but the file before ends with record ", previous));
  }
  last_ = follows;
  offset_ = sizeof(header);
  return absl::OkStatus();
}

bool SegmentReader::Torn(std::string_view what) {
  torn_ = what;
  return false;
}

absl::StatusOr<bool> SegmentReader::Next(Record* record) {
  record->owner.reset();
  while (offset_ < bytes_) {
    const uint64_t left = bytes_ - offset_;
    if (left < kRecordHeaderBytes) return Torn("a record's header is not whole");
    char bytes[kRecordHeaderBytes];
    if (auto status = ReadAt(offset_, bytes, sizeof(bytes)); !status.ok()) return status;
    const RecordHeader header = Parse(bytes);
    if (header.crc != HeaderCrc(salt_, bytes)) return Torn("a record's header has a wrong checksum");
    if (!Sound(header) || header.previous != last_) return Torn("a record does not follow the one before");
    if (header.mark()) {
      offset_ += kRecordHeaderBytes;
      continue;
    }
    if (header.payload_bytes > left || header.bytes() > left) return Torn("a record is not whole");
    const size_t rest = header.bytes() - kRecordHeaderBytes;
    // A buffer that somebody still has is left to him.
    if (rest > buffer_bytes_ || buffer_.use_count() != 1) {
      buffer_.reset(new (std::nothrow) char[rest]);
      buffer_bytes_ = buffer_ == nullptr ? 0 : rest;
      if (buffer_ == nullptr) {
        return absl::ResourceExhaustedError(absl::StrCat(path_, ": there is no memory for the record of ", rest,
                                                         " bytes at byte ", offset_, "; give the server more"));
      }
    }
    if (auto status = ReadAt(offset_ + kRecordHeaderBytes, buffer_.get(), rest); !status.ok()) return status;
    const size_t body = header.head_bytes + header.payload_bytes;
    const char* at = buffer_.get() + body;
    const uint32_t crc = Get<uint32_t>(&at);
    if (crc != Crc(header.crc, {buffer_.get(), body})) return Torn("a record has a wrong checksum");
    if (std::any_of(at, static_cast<const char*>(buffer_.get()) + rest, [](char c) { return c != 0; })) {
      return Torn("a record's end is not what was written");
    }
    *record = {.position = header.position,
               .offset = offset_,
               .head = {buffer_.get(), header.head_bytes},
               .payload = {buffer_.get() + header.head_bytes, header.payload_bytes},
               .owner = buffer_};
    last_ = header.position;
    offset_ += header.bytes();
    return true;
  }
  return false;
}

absl::StatusOr<bool> SegmentReader::WasOnDisk() {
  std::vector<char> window;
  for (uint64_t begin = offset_ + 8; begin + kRecordHeaderBytes <= bytes_; begin += kScannedBytes) {
    window.resize(std::min<uint64_t>(kScannedBytes + kRecordHeaderBytes - 8, bytes_ - begin));
    if (auto status = ReadAt(begin, window.data(), window.size()); !status.ok()) return status;
    for (size_t i = 0; i + kRecordHeaderBytes <= window.size(); i += 8) {
      const RecordHeader header = Parse(window.data() + i);
      if (header.synced <= offset_ || header.synced > begin + i || !Sound(header)) continue;
      if (header.crc == HeaderCrc(salt_, window.data() + i)) return true;
    }
  }
  return false;
}

}  // namespace paramd
