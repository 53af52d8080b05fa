// The journal: what happened, in the order in which it did, on disk. docs/journal.md has the bytes.
#ifndef PARAMD_STATE_LOG_H_
#define PARAMD_STATE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "state/log_segment.h"
#include "sync/mutex.h"

namespace paramd {

// The bulk of a record, where it lies. It must not change until the record is written.
struct LogPayload {
  struct Piece {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
  };
  std::vector<Piece> pieces;

  size_t bytes() const {
    size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.bytes.size();
    return sum;
  }
};

// As it is read again.
struct LogRecord {
  uint64_t position = 0;
  std::string_view head;     // valid during the call
  std::string_view payload;  // valid for as long as `owner`
  std::shared_ptr<const void> owner;
};

// What becomes of a record that can't be written, for lack of room for example.
enum class AppendMode {
  kOrFail,        // it fails
  kUntilWritten,  // it is tried again until it is written, and fails only with the log's end
};

struct LogOptions {
  // A segment that has grown so large is the last one's predecessor.
  uint64_t segment_bytes = uint64_t{256} << 20;
  // Positions are greater than this, also if the log that is there ends before.
  uint64_t after = 0;
  absl::Duration retry_interval = absl::Seconds(1);
  // What an operator should know: a torn tail that was cut off; that nothing can be written any more, and that it can
  // again. On the thread of Open, and on the log's, under no lock. May be null.
  std::function<void(const std::string&)> say;
};

// What is found of a log.
struct LogState {
  uint64_t first = 0;  // position of the oldest record that is kept; 0: none
  uint64_t last = 0;   // of the newest that is on disk
  uint64_t segments = 0;
  uint64_t bytes = 0;    // of all segments
  uint64_t waiting = 0;  // records that are not on disk yet
  absl::Status problem;  // why the last one could not be written
};

// Appends records to a folder of segments; one thread writes, and syncs for all that came meanwhile. Each record is
// checked by CRC-32 and chained to the one before. A record that is being written when the process or the machine ends
// is gone, with those after it, which nobody was told of. Thread-safe.
//
// Without room, or if the disk fails otherwise, the file is made to end where it did, and writing is tried again with
// the next record, each retry_interval if some wait for that, and when segments were removed. No record is ever written
// before one that was appended earlier.
class Log {
 public:
  // Reads what is there, oldest first, and is ready for more. `folder` is made if its parent is there, and must be
  // this process' alone. An error of `replay` ends it, with the file and the place added. A torn tail is cut off.
  // DATA_LOSS: there is damage elsewhere, as in a record that was on disk once: names file and offset.
  // FAILED_PRECONDITION: a file of a newer format. Else the system's error.
  static absl::StatusOr<std::unique_ptr<Log>> Open(const std::string& folder, LogOptions options,
                                                   std::function<absl::Status(const LogRecord&)> replay);

  // As Open, of a log that is looked at only: changes nothing. `say` is told of a torn tail.
  static absl::StatusOr<LogState> Read(const std::string& folder, std::function<absl::Status(const LogRecord&)> replay,
                                       std::function<void(const std::string&)> say);

  // Stop.
  ~Log();

  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // The order of calls is the order of records. Returns the record's position: 1, 2, …; those of records that could not
  // be written are not used again. `durable` is called once, on the log's thread, under no lock, in the order of
  // positions but for what fails: OK, the record is on disk; RESOURCE_EXHAUSTED, there is no room; else the system's
  // error. The log has let go of `payload` by then. INVALID_ARGUMENT: the head has more than kMaxRecordHeadBytes.
  uint64_t Append(std::string head, LogPayload payload, std::function<void(const absl::Status&)> durable,
                  AppendMode mode = AppendMode::kOrFail);

  // Writes what waits, or fails it, and returns when nothing of it is left. What is appended from then on is dropped,
  // and nobody told. Whatever payloads and callbacks need must last until then. To be called by one thread.
  void Stop();

  // Nobody needs the records before `position` any more. Soon, segments that have no others are removed.
  void DropBefore(uint64_t position);

  LogState state() const;

 private:
  struct Entry {
    uint64_t position = 0;
    std::string head;
    LogPayload payload;
    std::function<void(const absl::Status&)> durable;
    AppendMode mode = AppendMode::kOrFail;
  };
  // One that is complete.
  struct Segment {
    std::string path;
    uint64_t number = 0;
    uint64_t first = 0;  // position of its first record; 0: it has none
    uint64_t last = 0;   // of its last, or of that before it
    uint64_t bytes = 0;
  };

  Log(std::string folder, LogOptions options, std::deque<Segment> segments);

  // `cut`: what is torn is cut off.
  static absl::StatusOr<std::deque<Segment>> ReadAll(const std::string& folder, bool cut,
                                                     const std::function<absl::Status(const LogRecord&)>& replay,
                                                     const std::function<void(const std::string&)>& say);
  static LogState StateOf(const std::deque<Segment>& segments);

  // Of the log's thread.
  void Run();
  // Returns those that failed for good; the others are in the queue again.
  std::deque<Entry> KeepTrying(std::deque<Entry> group);
  absl::Status Write(const std::deque<Entry>& entries);
  absl::Status BeginSegment();
  void EndSegment();
  void Drop(uint64_t before);
  void Note(const absl::Status& written);
  void PublishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Say(const std::string& what) const {
    if (options_.say) options_.say(what);
  }

  const std::string folder_;
  const LogOptions options_;

  // Of the log's thread.
  std::deque<Segment> old_;
  std::unique_ptr<SegmentWriter> writer_;  // null: the next record begins a segment
  Segment current_;                        // of the writer
  uint64_t number_;                        // of the newest segment
  uint64_t last_;                          // on disk
  bool broken_ = false;                    // what the writer has written is more than counts

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  uint64_t drop_before_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  LogState state_ ABSL_GUARDED_BY(mutex_);  // but for the problem
  // Apart: the system's Abseil is not built for ThreadSanitizer, which would not see how threads share a status.
  absl::StatusCode problem_ ABSL_GUARDED_BY(mutex_) = absl::StatusCode::kOk;
  std::string problem_message_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace paramd

#endif  // PARAMD_STATE_LOG_H_
