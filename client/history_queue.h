// A worker's history on its way to the server. Internal to the client.
#ifndef PARAMD_CLIENT_HISTORY_QUEUE_H_
#define PARAMD_CLIENT_HISTORY_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/history_state.h"
#include "client/train.h"
#include "proto/paramd.pb.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// Collects records in reports of some thousand, which one thread at a time sends. What comes faster than it is sent is
// held up; if the server is away meanwhile, the oldest reports are dropped, and the next one says how many records that
// were. Thread-safe.
class HistoryQueue {
 public:
  struct Options {
    size_t max_records = 100'000;
    size_t report_records = 5'000;
    absl::Duration interval = absl::Seconds(1);       // how long a record waits for others to come along
    absl::Duration patience = absl::Seconds(1);       // how long Add may hold up while no report gets through
    std::function<void(absl::string_view)> on_event;  // told of what is refused, each reason once
    const Clock* clock = Clock::Steady();
  };
  explicit HistoryQueue(Options options) : options_(std::move(options)) {}

  // Called, from any thread and under no lock, when a report has become due earlier.
  void set_on_due(std::function<void()> on_due) { on_due_ = std::move(on_due); }

  // As Worker::Report.
  absl::Status Add(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps);

  // When the next report should be sent; InfiniteFuture if there is none.
  absl::Time due() const;

  // The next report, or the one before again if it did not get through; null if there is none. Valid until Sent.
  const v1::ReportHistoryRequest* Next();
  // What became of it. `again`: it did not reach the server.
  void Sent(const absl::Status& status, bool again);

  // From now on Add returns `why`.
  void Close(const absl::Status& why);

  HistoryState state() const;

 private:
  absl::Time DueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts records that nobody will have; whether the reason is news.
  bool DropLocked(uint64_t records, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const absl::Status& refused) const;
  // Waits for room, or makes some.
  void MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLocked(const std::vector<std::string>& metric_names, const StepResult& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::function<void()> on_due_;  // constant once the worker has joined

  mutable Mutex mutex_;
  CondVar room_;
  std::deque<v1::ReportHistoryRequest> reports_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ReportHistoryRequest> under_way_ ABSL_GUARDED_BY(mutex_);  // of the sending thread, but for whether
  absl::Time oldest_ ABSL_GUARDED_BY(mutex_);  // when the first record that is not under way was added
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;       // patience ran out since then
  uint64_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;  // of the dropped ones
  uint64_t batch_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  HistoryState state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_HISTORY_QUEUE_H_
