// What a model's workers reported of their training, bounded in memory.
#ifndef PARAMD_SERVER_HISTORY_H_
#define PARAMD_SERVER_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/paramd.pb.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe.
class History {
 public:
  // Keeps the last `max_records` of each worker.
  explicit History(size_t max_records) : max_records_(max_records) {}

  // Adds a worker's records. A report that repeats the incarnation and batch of its last one is kept once.
  // INVALID_ARGUMENT if a record has not one value for each metric name, if the names changed, or if there are more
  // than 64.
  absl::Status Report(const v1::ReportHistoryRequest& request);

  void Forget(const std::string& worker);

  // Records per worker, of all or of one; or their mean over the workers: record i averages the workers' i-th records,
  // over those workers that have one, and metrics over those workers that have the same ones as the first (by name). An
  // unknown worker has no records.
  void Read(const v1::GetHistoryRequest& request, v1::GetHistoryReply* reply) const;

 private:
  struct Series {
    uint64_t incarnation = 0;
    uint64_t batch = 0;
    std::vector<std::string> metric_names;
    std::deque<v1::HistoryRecord> records;
    uint64_t dropped = 0;
  };

  void AverageLocked(v1::WorkerHistory* out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_records_;
  mutable Mutex mutex_;
  std::map<std::string, Series> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_HISTORY_H_
