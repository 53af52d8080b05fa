#include "server/history.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paramd {
namespace {

constexpr size_t kMaxMetrics = 64;

}  // namespace

absl::Status History::Report(const v1::ReportHistoryRequest& request) {
  const std::vector<std::string> names(request.metric_names().begin(), request.metric_names().end());
  if (names.size() > kMaxMetrics) {
    return absl::InvalidArgumentError(absl::StrCat("history of worker '", request.participant().worker(), "' has ",
                                                   names.size(), " metrics; at most ", kMaxMetrics, " are kept"));
  }
  for (const v1::HistoryRecord& record : request.records()) {
    if (static_cast<size_t>(record.metrics_size()) != names.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("history of worker '", request.participant().worker(), "': the record of step ", record.step(),
                       " has ", record.metrics_size(), " metrics where metric_names has ", names.size()));
    }
  }
  MutexLock lock(&mutex_);
  Series& series = workers_[request.participant().worker()];
  if (series.incarnation == request.participant().incarnation() && request.batch() != 0 &&
      request.batch() <= series.batch) {
    return absl::OkStatus();
  }
  if (!series.records.empty() && series.metric_names != names) {
    return absl::InvalidArgumentError(absl::StrCat("history of worker '", request.participant().worker(),
                                                   "' has the metrics [", absl::StrJoin(series.metric_names, ", "),
                                                   "], not [", absl::StrJoin(names, ", "),
                                                   "]; keep them for the model's life"));
  }
  series.incarnation = request.participant().incarnation();
  series.batch = request.batch();
  series.metric_names = names;
  for (const v1::HistoryRecord& record : request.records()) series.records.push_back(record);
  while (series.records.size() > max_records_) {
    series.records.pop_front();
    ++series.dropped;
  }
  return absl::OkStatus();
}

void History::Forget(const std::string& worker) {
  MutexLock lock(&mutex_);
  workers_.erase(worker);
}

void History::Read(const v1::GetHistoryRequest& request, v1::GetHistoryReply* reply) const {
  MutexLock lock(&mutex_);
  if (request.averaged()) {
    AverageLocked(reply->add_workers());
    return;
  }
  for (const auto& [worker, series] : workers_) {
    if (!request.worker().empty() && request.worker() != worker) continue;
    v1::WorkerHistory* out = reply->add_workers();
    out->set_worker(worker);
    for (const std::string& name : series.metric_names) out->add_metric_names(name);
    for (const v1::HistoryRecord& record : series.records) *out->add_records() = record;
    out->set_dropped(series.dropped);
  }
}

void History::AverageLocked(v1::WorkerHistory* out) const {
  // Counted from a worker's first record on, whether that is still there or was dropped.
  uint64_t begin = std::numeric_limits<uint64_t>::max();
  uint64_t end = 0;
  for (const auto& [worker, series] : workers_) {
    if (series.records.empty()) continue;
    begin = std::min(begin, series.dropped);
    end = std::max(end, series.dropped + series.records.size());
    if (out->metric_names_size() == 0) {
      for (const std::string& name : series.metric_names) out->add_metric_names(name);
    }
  }
  if (begin < end) out->set_dropped(begin);
  for (uint64_t i = begin; i < end; ++i) {
    v1::HistoryRecord* mean = out->add_records();
    double n = 0;
    double n_metrics = 0;
    for (const auto& [worker, series] : workers_) {
      if (i < series.dropped || i - series.dropped >= series.records.size()) continue;
      const v1::HistoryRecord& record = series.records[i - series.dropped];
      ++n;
      // A running mean; the step is that of the furthest worker.
      mean->set_step(std::max<uint64_t>(mean->step(), record.step()));
      mean->set_epoch(mean->epoch() + (record.epoch() - mean->epoch()) / n);
      mean->set_time_s(mean->time_s() + (record.time_s() - mean->time_s()) / n);
      mean->set_loss(mean->loss() + (record.loss() - mean->loss()) / n);
      if (!std::equal(series.metric_names.begin(), series.metric_names.end(), out->metric_names().begin(),
                      out->metric_names().end())) {
        continue;
      }
      ++n_metrics;
      for (int m = 0; m < record.metrics_size(); ++m) {
        if (m == mean->metrics_size()) mean->add_metrics(0);
        mean->set_metrics(m, mean->metrics(m) + (record.metrics(m) - mean->metrics(m)) / n_metrics);
      }
    }
  }
}

}  // namespace paramd
