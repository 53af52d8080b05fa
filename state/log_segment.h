// One file of a log: its bytes, written and read.
#ifndef PARAMD_STATE_LOG_SEGMENT_H_
#define PARAMD_STATE_LOG_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paramd {

// All numbers are little-endian. A file is
//
//   magic       8 bytes
//   salt        8  random: nobody else can write bytes that pass for a record
//   previous    8  position of the last record before this file
//   CRC-32      4  of the above
//   zero        4
//
// and records, each
//
//   CRC-32      4  of the salt and of the 36 bytes that follow
//   head bytes  4
//   payload bytes 8
//   position    8  greater than `previous`; of a mark, equal
//   previous    8  of the record before
//   synced      8  bytes of this file that were on disk before this was written
//   head, payload
//   CRC-32      4  of head and payload, begun with the one above
//   zero        to a multiple of 8
//
// A mark is a record of 40 bytes, without what follows; it only says what is on disk. So damage at a place that
// something behind it says was on disk is told from a write that was cut short.
inline constexpr size_t kSegmentHeaderBytes = 32;
inline constexpr size_t kRecordHeaderBytes = 40;
inline constexpr size_t kMaxRecordHeadBytes = size_t{64} << 20;

// Of errno. No room, of whatever kind, is RESOURCE_EXHAUSTED.
absl::Status FileError(absl::string_view path, absl::string_view what);

absl::Status SyncFolder(const std::string& folder);

// Thread-compatible.
class SegmentWriter {
 public:
  // A new file of this number, after the record of position `previous`. Leaves none behind if it fails.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> Create(const std::string& folder, uint64_t number,
                                                               uint64_t previous);
  ~SegmentWriter();

  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // A record is Begin, Write for all pieces of its payload, End. Bytes are gathered, or written at once if they are
  // many. After an error only Restore is of use.
  absl::Status Begin(uint64_t position, std::string_view head, uint64_t payload_bytes);
  absl::Status Write(std::string_view payload);
  absl::Status End();
  // All of it is on disk.
  absl::Status Sync();
  // Writes a mark, of which it does not matter whether it gets to the disk.
  absl::Status Mark();
  // Back to what was on disk last.
  absl::Status Restore();

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return written_ + buffer_.size(); }
  uint64_t last() const { return synced_last_; }  // position of the last record on disk

 private:
  SegmentWriter(std::string path, int file, uint64_t salt, uint64_t previous);
  absl::Status WriteOut(std::string_view bytes);
  absl::Status Flush();

  const std::string path_;
  const int file_;
  const uint64_t salt_;
  std::string buffer_;
  uint64_t written_ = 0;  // bytes that are in the file
  uint64_t pushed_ = 0;   // that the system has been told to write soon
  uint64_t synced_ = 0;
  uint64_t last_;
  uint64_t synced_last_;
  uint32_t crc_ = 0;
  uint64_t record_begin_ = 0;
};

// Thread-compatible.
class SegmentReader {
 public:
  struct Record {
    uint64_t position = 0;
    uint64_t offset = 0;
    std::string_view head;  // both valid until the next call
    std::string_view payload;
    std::shared_ptr<const char[]> owner;  // of both
  };

  static absl::StatusOr<std::unique_ptr<SegmentReader>> Open(const std::string& path);
  ~SegmentReader();

  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;

  // To be called first, once: DATA_LOSS if the file does not follow a record of position `previous`, which is not asked
  // of the oldest file.
  absl::Status ReadHeader(uint64_t previous, bool oldest);
  // The next record. False: there is none, or what is there is not whole; see torn().
  absl::StatusOr<bool> Next(Record* record);

  // Where the file is whole up to; and what is wrong there, empty if it is its end.
  uint64_t whole_bytes() const { return offset_; }
  const std::string& torn() const { return torn_; }
  // Whether what is not whole was on disk once.
  absl::StatusOr<bool> WasOnDisk();

  uint64_t bytes() const { return bytes_; }
  uint64_t last() const { return last_; }

 private:
  SegmentReader(std::string path, int file, uint64_t bytes) : path_(std::move(path)), file_(file), bytes_(bytes) {}
  absl::Status ReadAt(uint64_t offset, char* to, size_t bytes) const;
  bool Torn(std::string_view what);

  const std::string path_;
  const int file_;
  const uint64_t bytes_;
  uint64_t salt_ = 0;
  uint64_t offset_ = 0;
  uint64_t last_ = 0;
  std::string torn_;
  std::shared_ptr<char[]> buffer_;
  size_t buffer_bytes_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_STATE_LOG_SEGMENT_H_
