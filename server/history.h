// What the workers of all models reported of their training, bounded in memory.
#ifndef PARAMD_SERVER_HISTORY_H_
#define PARAMD_SERVER_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/paramd.pb.h"
#include "server/budget.h"
#include "state/state.pb.h"
#include "sync/mutex.h"

namespace paramd {

struct HistoriesOptions {
  size_t max_records = 10'000;               // of each worker: its last ones
  uint64_t max_bytes = uint64_t{256} << 20;  // of all together
  Budget* budget = nullptr;                  // counts the bytes, unless null; outlives the histories
};

// Of all models, each known by its id, so that they share one cap. Past it the records of workers that left go first,
// of the longest gone before the others, then the oldest of whoever has most. Who has none left stays with the number
// of those dropped, as long as such names take no more than an eighth of the cap. Thread-safe; a call holds the lock
// for some thousand records at the longest.
class Histories {
 public:
  explicit Histories(HistoriesOptions options = {});

  // Adds the records of the worker that reports. A report that repeats a batch of the process that reported last is
  // kept once. INVALID_ARGUMENT if a record has not one value for each metric name, if the names changed, or if there
  // are more than 64.
  absl::Status Report(uint64_t model, const v1::ReportHistoryRequest& request);

  // The worker left: until it reports again, its history goes before those of the others.
  void Left(uint64_t model, const std::string& worker);
  void Forget(uint64_t model, const std::string& worker);
  void ForgetModel(uint64_t model);

  // Adds to the record what the workers of `model` reported; and the other way round, of a model that has no history.
  void Save(uint64_t model, state::Checkpoint* record) const;
  void Restore(uint64_t model, const state::Checkpoint& record);
  // Reports what a PastOf says; errors as Report.
  absl::Status AddPast(uint64_t model, const state::Checkpoint& past);

  // The next page, of about 1 MiB, of what the workers of `models` reported: worker by worker, model by model.
  // Averaged: for each step the mean over the workers that have it (of one that was restarted, what it said last), and
  // of its metrics over those of them that have the same ones as the first (by name). An unknown worker or model has no
  // records. INVALID_ARGUMENT: the page token is none of this history.
  absl::Status Read(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                    v1::GetHistoryReply* reply) const;

 private:
  // Records as numbers: step (its bits), epoch, time, loss, then the metrics.
  using Numbers = std::deque<double>;
  struct Series {
    uint64_t model = 0;
    std::string worker;
    uint64_t incarnation = 0;
    uint64_t nonce = 0;
    uint64_t batch = 0;
    std::vector<std::string> metric_names;
    Numbers numbers;
    bool sorted = true;    // by step
    uint64_t dropped = 0;  // records that were kept once
    uint64_t unsent = 0;   // that the worker said it dropped
    uint64_t left = 0;     // counts up with each worker that left; 0: it's there
    uint64_t bytes = 0;    // as counted

    size_t width() const { return 4 + metric_names.size(); }
    size_t size() const { return numbers.size() / width(); }
    uint64_t StepAt(size_t record) const;
  };
  // What was taken of one series, to be looked at outside the lock.
  struct Part {
    std::string worker;
    std::vector<std::string> metric_names;
    std::vector<double> numbers;
    uint64_t dropped = 0;
    uint64_t begin = 0;  // number of the first of its records, counted from the worker's first
    bool last = true;    // the series has no more
  };
  struct BySize {
    bool operator()(const Series* a, const Series* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a < b;
    }
  };
  using Workers = std::map<std::string, Series>;

  Series* FindLocked(uint64_t model, const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts what a series takes by now.
  void CountLocked(Series* series) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UncountLocked(Series* series) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldestLocked(Series* series, size_t records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetLocked(Series* series) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Moves `*model` (an index) and `*worker` on to the first series at or behind them (`after`: behind), and calls
  // `take` with it under the lock. False: there is none.
  template <typename Take>
  bool Next(absl::Span<const uint64_t> models, const std::string& only, size_t* model, std::string* worker, bool after,
            const Take& take) const;
  // From the record `begin`, counted from the worker's first.
  static Part TakeFrom(const Series& series, uint64_t begin, size_t max_records);
  // In the order of steps, and all records of each step that it has any of.
  static Part TakeSteps(const Series& series, uint64_t first_step, size_t max_records);
  absl::Status ReadSeries(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                          v1::GetHistoryReply* reply) const;
  absl::Status ReadAveraged(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                            v1::GetHistoryReply* reply) const;

  const HistoriesOptions options_;
  mutable Mutex mutex_;
  std::map<uint64_t, Workers> models_ ABSL_GUARDED_BY(mutex_);
  std::set<Series*, BySize> by_size_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Series*> left_ ABSL_GUARDED_BY(mutex_);     // by Series::left
  std::map<uint64_t, Series*> emptied_ ABSL_GUARDED_BY(mutex_);  // of those that left: all records were dropped
  uint64_t lefts_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Reservation counted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_HISTORY_H_
