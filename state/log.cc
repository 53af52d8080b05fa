#include "state/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "process/system_call.h"

namespace paramd {
namespace {

// Bytes that are synced together at most: beyond them who came first is kept waiting for too many others.
constexpr size_t kGroupBytes = size_t{64} << 20;

// Of the folder, in their order, which is that of their names.
absl::StatusOr<std::vector<std::string>> SegmentPaths(const std::string& folder) {
  DIR* const directory = opendir(folder.c_str());
  if (directory == nullptr) return FileError(folder, "can't read the folder");
  std::vector<std::string> paths;
  errno = 0;
  while (const dirent* const entry = readdir(directory)) {
    const absl::string_view name = entry->d_name;
    if (absl::EndsWith(name, ".log")) paths.push_back(absl::StrCat(folder, "/", name));
    errno = 0;
  }
  const absl::Status status = errno == 0 ? absl::OkStatus() : FileError(folder, "can't read the folder");
  closedir(directory);
  if (!status.ok()) return status;
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status Remove(const std::string& path) {
  return unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : FileError(path, "can't remove the file");
}

absl::Status CutOff(const std::string& path, uint64_t bytes) {
  const int file = RetryInterrupted([&] { return open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY); });
  absl::Status status;
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0 || fsync(file) != 0) {
    status = FileError(path, "can't cut off its torn tail");
  }
  if (file >= 0) close(file);
  return status;
}

absl::Status Damage(const std::string& path, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, ": damaged at byte ", offset, ": ", what,
                   ". What follows there was on disk once and can't be read: restore the folder from a backup, or see "
                   "docs/journal.md for how to go on without it"));
}

}  // namespace

absl::StatusOr<std::deque<Log::Segment>> Log::ReadAll(const std::string& folder, bool cut,
                                                      const std::function<absl::Status(const LogRecord&)>& replay,
                                                      const std::function<void(const std::string&)>& say) {
  const auto paths = SegmentPaths(folder);
  if (!paths.ok()) return paths.status();
  std::deque<Segment> segments;
  uint64_t previous = 0;
  for (const std::string& path : *paths) {
    const bool newest = path == paths->back();
    auto reader = SegmentReader::Open(path);
    if (!reader.ok()) return reader.status();
    if (auto status = (*reader)->ReadHeader(previous, segments.empty()); !status.ok()) {
      if (!newest || (*reader)->bytes() > kSegmentHeaderBytes) return status;
      // It was being made, and nothing had been written to it yet.
      if (say) say(absl::StrCat(status.message(), ". It has no records, so it is left out"));
      if (cut) {
        if (status = Remove(path); !status.ok()) return status;
      }
      break;
    }
    Segment segment{.path = path};
    absl::string_view number = path;
    number = absl::StripSuffix(number.substr(number.rfind('/') + 1), ".log");
    if (!absl::SimpleAtoi(number, &segment.number)) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": is no file of the journal's; move it elsewhere"));
    }
    SegmentReader::Record record;
    while (true) {
      const auto next = (*reader)->Next(&record);
      if (!next.ok()) return next.status();
      if (!*next) break;
      if (segment.first == 0) segment.first = record.position;
      const absl::Status status = replay({.position = record.position,
                                          .head = record.head,
                                          .payload = record.payload,
                                          .owner = std::move(record.owner)});
      if (!status.ok()) {
        return absl::Status(status.code(), absl::StrCat(path, ": record ", record.position, " at byte ", record.offset,
                                                        ": ", status.message()));
      }
    }
    const uint64_t whole = (*reader)->whole_bytes();
    if (!(*reader)->torn().empty()) {
      absl::StatusOr<bool> was_on_disk = true;
      if (newest) was_on_disk = (*reader)->WasOnDisk();
      if (!was_on_disk.ok()) return was_on_disk.status();
      if (*was_on_disk) return Damage(path, whole, (*reader)->torn());
      if (say) {
        say(absl::StrCat(path, ": a write was cut short at byte ", whole, " (", (*reader)->torn(),
                         "): ", (*reader)->bytes() - whole, " bytes, which nobody was told are on disk, are left out"));
      }
      if (cut) {
        if (auto status = CutOff(path, whole); !status.ok()) return status;
      }
    }
    segment.last = previous = (*reader)->last();
    segment.bytes = whole;
    segments.push_back(std::move(segment));
  }
  return segments;
}

absl::StatusOr<std::unique_ptr<Log>> Log::Open(const std::string& folder, LogOptions options,
                                               std::function<absl::Status(const LogRecord&)> replay) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return FileError(folder, "can't make the folder");
  if (auto status = SyncFolder(std::filesystem::path(folder).parent_path().string()); !status.ok()) return status;
  auto segments = ReadAll(folder, /*cut=*/true, replay, options.say);
  if (!segments.ok()) return segments.status();
  if (auto status = SyncFolder(folder); !status.ok()) return status;
  return std::unique_ptr<Log>(new Log(folder, std::move(options), *std::move(segments)));
}

absl::StatusOr<LogState> Log::Read(const std::string& folder, std::function<absl::Status(const LogRecord&)> replay,
                                   std::function<void(const std::string&)> say) {
  const auto segments = ReadAll(folder, /*cut=*/false, replay, say);
  if (!segments.ok()) return segments.status();
  return StateOf(*segments);
}

LogState Log::StateOf(const std::deque<Segment>& segments) {
  LogState state{.segments = segments.size()};
  for (const Segment& segment : segments) {
    if (state.first == 0) state.first = segment.first;
    state.last = segment.last;
    state.bytes += segment.bytes;
  }
  return state;
}

Log::Log(std::string folder, LogOptions options, std::deque<Segment> segments)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      old_(std::move(segments)),
      number_(old_.empty() ? 0 : old_.back().number),
      last_(old_.empty() ? 0 : old_.back().last),
      next_(std::max(last_, options_.after) + 1),
      state_(StateOf(old_)) {
  thread_ = std::thread([this] { Run(); });
}

Log::~Log() { Stop(); }

void Log::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
  std::deque<Entry> dropped;
  MutexLock lock(&mutex_);
  stopped_ = true;
  dropped.swap(queue_);
}

uint64_t Log::Append(std::string head, LogPayload payload, std::function<void(const absl::Status&)> durable,
                     AppendMode mode) {
  MutexLock lock(&mutex_);
  const uint64_t position = next_++;
  if (stopped_) return position;
  if (queue_.empty()) changed_.Signal();
  queue_.push_back({position, std::move(head), std::move(payload), std::move(durable), mode});
  ++state_.waiting;
  return position;
}

void Log::DropBefore(uint64_t position) {
  MutexLock lock(&mutex_);
  drop_before_ = std::max(drop_before_, position);
  changed_.Signal();
}

LogState Log::state() const {
  MutexLock lock(&mutex_);
  LogState state = state_;
  state.problem = absl::Status(problem_, problem_message_);
  return state;
}

std::deque<Log::Entry> Log::KeepTrying(std::deque<Entry> group) {
  std::deque<Entry> failed;
  MutexLock lock(&mutex_);
  // Nor can what comes after them be written.
  for (Entry& entry : queue_) group.push_back(std::move(entry));
  queue_.clear();
  for (Entry& entry : group) {
    const bool again = entry.mode == AppendMode::kUntilWritten && !stopping_;
    (again ? queue_ : failed).push_back(std::move(entry));
  }
  return failed;
}

void Log::Run() {
  uint64_t dropped_before = 0;
  bool failing = false;
  while (true) {
    std::deque<Entry> group;
    uint64_t drop_before = 0;
    {
      MutexLock lock(&mutex_);
      if (failing && !queue_.empty() && drop_before_ == dropped_before && !stopping_) {
        changed_.WaitWithTimeout(&mutex_, options_.retry_interval);
      }
      while (queue_.empty() && drop_before_ == dropped_before && !stopping_) changed_.Wait(&mutex_);
      drop_before = drop_before_;
      if (queue_.empty() && drop_before == dropped_before) break;
      for (size_t bytes = 0; !queue_.empty() && bytes < kGroupBytes; queue_.pop_front()) {
        bytes += queue_.front().head.size() + queue_.front().payload.bytes();
        group.push_back(std::move(queue_.front()));
      }
    }
    // May make room.
    if (drop_before != dropped_before) {
      Drop(drop_before);
      dropped_before = drop_before;
    }
    if (group.empty()) continue;
    const absl::Status written = Write(group);
    failing = !written.ok();
    Note(written);
    if (failing) group = KeepTrying(std::move(group));
    for (Entry& entry : group) {
      entry.payload = {};
      const bool too_large = entry.head.size() > kMaxRecordHeadBytes;
      if (entry.durable) {
        entry.durable(too_large ? absl::InvalidArgumentError("a record's head is too large for the journal") : written);
      }
    }
    bool idle = false;
    {
      MutexLock lock(&mutex_);
      state_.waiting -= group.size();
      idle = queue_.empty();
    }
    if (writer_ == nullptr || broken_) continue;
    if (current_.bytes >= options_.segment_bytes) {
      EndSegment();
    } else if (idle) {
      // From now on damage to what is on disk is not taken for a write that was cut short.
      broken_ = !writer_->Mark().ok();
    }
  }
  if (writer_ != nullptr && !broken_) EndSegment();
}

absl::Status Log::Write(const std::deque<Entry>& entries) {
  if (broken_) {
    if (auto status = writer_->Restore(); !status.ok()) return status;
    broken_ = false;
  }
  if (writer_ == nullptr) {
    if (auto status = BeginSegment(); !status.ok()) return status;
  }
  uint64_t first = 0;
  const auto write = [&] {
    for (const Entry& entry : entries) {
      if (entry.head.size() > kMaxRecordHeadBytes) continue;
      if (first == 0) first = entry.position;
      if (auto status = writer_->Begin(entry.position, entry.head, entry.payload.bytes()); !status.ok()) return status;
      for (const LogPayload::Piece& piece : entry.payload.pieces) {
        if (auto status = writer_->Write(piece.bytes); !status.ok()) return status;
      }
      if (auto status = writer_->End(); !status.ok()) return status;
    }
    return writer_->Sync();
  };
  absl::Status status = write();
  if (!status.ok()) {
    broken_ = !writer_->Restore().ok();
    return status;
  }
  if (current_.first == 0) current_.first = first;
  current_.last = last_ = writer_->last();
  current_.bytes = writer_->bytes();
  return absl::OkStatus();
}

absl::Status Log::BeginSegment() {
  auto writer = SegmentWriter::Create(folder_, number_ + 1, last_);
  if (!writer.ok()) return writer.status();
  ++number_;
  writer_ = *std::move(writer);
  current_ = {.path = writer_->path(), .number = number_, .last = last_, .bytes = writer_->bytes()};
  return absl::OkStatus();
}

void Log::EndSegment() {
  absl::Status status = writer_->Mark();
  if (status.ok()) status = writer_->Sync();
  if (!status.ok()) {
    broken_ = true;
    return;
  }
  current_.bytes = writer_->bytes();
  writer_.reset();
  old_.push_back(std::exchange(current_, {}));
}

void Log::Drop(uint64_t before) {
  if (writer_ != nullptr && !broken_ && current_.first != 0 && current_.last < before) EndSegment();
  // The last one says how far positions have come.
  if (writer_ == nullptr && !old_.empty()) {
    if (auto status = BeginSegment(); !status.ok()) Say(std::string(status.message()));
  }
  bool removed = false;
  while (!old_.empty() && old_.front().last < before) {
    if (auto status = Remove(old_.front().path); !status.ok()) {
      Say(std::string(status.message()));
      break;
    }
    old_.pop_front();
    removed = true;
  }
  if (removed) {
    if (auto status = SyncFolder(folder_); !status.ok()) Say(std::string(status.message()));
  }
  MutexLock lock(&mutex_);
  PublishLocked();
}

void Log::PublishLocked() {
  LogState state = StateOf(old_);
  state.last = last_;
  if (writer_ != nullptr) {
    if (state.first == 0) state.first = current_.first;
    ++state.segments;
    state.bytes += current_.bytes;
  }
  state.waiting = state_.waiting;
  state_ = std::move(state);
}

void Log::Note(const absl::Status& written) {
  bool was_ok = false;
  {
    MutexLock lock(&mutex_);
    was_ok = problem_ == absl::StatusCode::kOk;
    problem_ = written.code();
    problem_message_ = std::string(written.message());
    PublishLocked();
  }
  if (written.ok() == was_ok) return;
  Say(written.ok() ? absl::StrCat("the journal in ", folder_, " can be written again")
                   : absl::StrCat("the journal can't be written: ", written.message()));
}

}  // namespace paramd
