#include "server/history.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"

namespace paramd {
namespace {

constexpr size_t kMaxMetrics = 64;
constexpr size_t kMaxMetricName = 256;
constexpr size_t kPageBytes = size_t{1} << 20;
// Records that one page averages at the most, of all workers together (but for one of each).
constexpr size_t kAveragedRecords = size_t{256} << 10;
// What a worker takes beside its records and names: about that.
constexpr uint64_t kSeriesBytes = 1024;

// Of a record in a reply, at the most.
size_t RecordBytes(size_t metrics) { return 48 + 8 * metrics; }

size_t NameBytes(const std::vector<std::string>& names) {
  size_t bytes = 0;
  for (const std::string& name : names) bytes += sizeof(name) + name.size();
  return bytes;
}

void SetRecord(const double* numbers, size_t metrics, v1::HistoryRecord* record) {
  record->set_step(std::bit_cast<uint64_t>(numbers[0]));
  record->set_epoch(numbers[1]);
  record->set_time_s(numbers[2]);
  record->set_loss(numbers[3]);
  record->mutable_metrics()->Add(numbers + 4, numbers + 4 + metrics);
}

uint64_t LastStep(const std::vector<double>& numbers, size_t metrics) {
  return std::bit_cast<uint64_t>(numbers[numbers.size() - 4 - metrics]);
}

absl::Status BadToken(const std::string& token) {
  return absl::InvalidArgumentError(absl::StrCat("'", Quoted(token),
                                                 "' is no page token of this history, or the model it was in is gone; "
                                                 "read from the beginning again"));
}

}  // namespace

uint64_t Histories::Series::StepAt(size_t record) const { return std::bit_cast<uint64_t>(numbers[record * width()]); }

Histories::Histories(HistoriesOptions options) : options_(options) {
  if (options_.budget != nullptr) counted_ = options_.budget->Count(BudgetKind::kHistories, 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// Writing

absl::Status Histories::Report(uint64_t model, const v1::ReportHistoryRequest& request) {
  const std::string& worker = request.participant().worker();
  const v1::Participant& who = request.participant();
  const std::vector<std::string> names(request.metric_names().begin(), request.metric_names().end());
  if (names.size() > kMaxMetrics) {
    return absl::InvalidArgumentError(absl::StrCat("history of worker '", worker, "' has ", names.size(),
                                                   " metrics; at most ", kMaxMetrics, " are kept"));
  }
  for (const std::string& name : names) {
    if (name.size() > kMaxMetricName) {
      return absl::InvalidArgumentError(absl::StrCat("history of worker '", worker, "': the name of a metric has ",
                                                     name.size(), " bytes; use at most ", kMaxMetricName));
    }
  }
  for (const v1::HistoryRecord& record : request.records()) {
    if (static_cast<size_t>(record.metrics_size()) != names.size()) {
      return absl::InvalidArgumentError(absl::StrCat("history of worker '", worker, "': the record of step ",
                                                     record.step(), " has ", record.metrics_size(),
                                                     " metrics where metric_names has ", names.size()));
    }
  }
  MutexLock lock(&mutex_);
  Series* series = &models_[model][worker];
  const bool same = series->incarnation == who.incarnation() && series->nonce == who.nonce();
  if (same && request.batch() != 0 && request.batch() <= series->batch) return absl::OkStatus();
  if (!series->numbers.empty() && series->metric_names != names) {
    return absl::InvalidArgumentError(absl::StrCat("history of worker '", worker, "' has the metrics [",
                                                   absl::StrJoin(series->metric_names, ", "), "], not [",
                                                   absl::StrJoin(names, ", "), "]; keep them for the model's life"));
  }
  UncountLocked(series);
  series->model = model;
  series->worker = worker;
  series->incarnation = who.incarnation();
  series->nonce = who.nonce();
  series->batch = request.batch();
  series->metric_names = names;
  series->unsent += request.dropped();
  if (series->left != 0) {
    left_.erase(series->left);
    emptied_.erase(std::exchange(series->left, 0));
  }
  for (const v1::HistoryRecord& record : request.records()) {
    if (series->size() > 0 && record.step() < series->StepAt(series->size() - 1)) series->sorted = false;
    series->numbers.push_back(std::bit_cast<double>(static_cast<uint64_t>(record.step())));
    for (const double number : {record.epoch(), record.time_s(), record.loss()}) series->numbers.push_back(number);
    series->numbers.insert(series->numbers.end(), record.metrics().begin(), record.metrics().end());
  }
  CountLocked(series);
  if (series->size() > options_.max_records) DropOldestLocked(series, series->size() - options_.max_records);
  MakeRoomLocked();
  if (!counted_.empty()) counted_.Resize(bytes_);
  return absl::OkStatus();
}

void Histories::UncountLocked(Series* series) {
  by_size_.erase(series);
  bytes_ -= std::exchange(series->bytes, 0);
}

void Histories::CountLocked(Series* series) {
  series->bytes =
      kSeriesBytes + series->worker.size() + NameBytes(series->metric_names) + series->numbers.size() * sizeof(double);
  bytes_ += series->bytes;
  by_size_.insert(series);
}

void Histories::DropOldestLocked(Series* series, size_t records) {
  UncountLocked(series);
  Numbers& numbers = series->numbers;
  numbers.erase(numbers.begin(), numbers.begin() + static_cast<Numbers::difference_type>(records * series->width()));
  series->dropped += records;
  if (numbers.empty()) {
    series->sorted = true;
    numbers.shrink_to_fit();
  }
  CountLocked(series);
}

void Histories::MakeRoomLocked() {
  while (bytes_ > options_.max_bytes && !by_size_.empty()) {
    if (!left_.empty()) {
      // Its name stays, with how much was dropped, among those of the last that this happened to.
      Series* const gone = left_.begin()->second;
      emptied_.insert(left_.extract(left_.begin()));
      DropOldestLocked(gone, gone->size());
      while (emptied_.size() * kSeriesBytes > options_.max_bytes / 8) ForgetLocked(emptied_.begin()->second);
      continue;
    }
    Series* const largest = *by_size_.rbegin();
    if (largest->size() == 0) {
      ForgetLocked(largest);
      continue;
    }
    // Not more than half of it, by when another one may be the largest.
    const uint64_t wanted = (bytes_ - options_.max_bytes) / (largest->width() * sizeof(double)) + 1;
    DropOldestLocked(largest, static_cast<size_t>(std::min<uint64_t>(wanted, (largest->size() + 1) / 2)));
  }
}

Histories::Series* Histories::FindLocked(uint64_t model, const std::string& worker) {
  const auto workers = models_.find(model);
  if (workers == models_.end()) return nullptr;
  const auto series = workers->second.find(worker);
  return series == workers->second.end() ? nullptr : &series->second;
}

void Histories::ForgetLocked(Series* series) {
  UncountLocked(series);
  left_.erase(series->left);
  emptied_.erase(series->left);
  const auto workers = models_.find(series->model);
  workers->second.erase(workers->second.find(series->worker));
  if (workers->second.empty()) models_.erase(workers);
}

void Histories::Left(uint64_t model, const std::string& worker) {
  MutexLock lock(&mutex_);
  Series* const series = FindLocked(model, worker);
  if (series == nullptr || series->left != 0) return;
  series->left = ++lefts_;
  left_.emplace(series->left, series);
}

void Histories::Forget(uint64_t model, const std::string& worker) {
  MutexLock lock(&mutex_);
  if (Series* const series = FindLocked(model, worker); series != nullptr) ForgetLocked(series);
  if (!counted_.empty()) counted_.Resize(bytes_);
}

void Histories::ForgetModel(uint64_t model) {
  MutexLock lock(&mutex_);
  while (models_.count(model) > 0) ForgetLocked(&models_[model].begin()->second);
  if (!counted_.empty()) counted_.Resize(bytes_);
}

void Histories::Save(uint64_t model, state::Checkpoint* record) const {
  // One at a time, so that nobody waits for all of them.
  const auto save = [&](const Series& series) {
    state::History* const saved = record->add_histories();
    saved->set_worker(series.worker);
    saved->set_incarnation(series.incarnation);
    saved->set_nonce(series.nonce);
    saved->set_batch(series.batch);
    for (const std::string& name : series.metric_names) saved->add_metric_names(name);
    saved->mutable_numbers()->Add(series.numbers.begin(), series.numbers.end());
    saved->set_dropped(series.dropped);
    saved->set_unsent(series.unsent);
    saved->set_left(series.left != 0);
  };
  std::string worker;
  size_t first = 0;
  for (bool after = false; Next({&model, 1}, "", &first, &worker, after, save);) after = true;
}

void Histories::Restore(uint64_t model, const state::Checkpoint& record) {
  for (const state::History& saved : record.histories()) {
    {
      MutexLock lock(&mutex_);
      Series* const series = &models_[model][saved.worker()];
      UncountLocked(series);
      series->model = model;
      series->worker = saved.worker();
      series->incarnation = saved.incarnation();
      series->nonce = saved.nonce();
      series->batch = saved.batch();
      series->metric_names.assign(saved.metric_names().begin(), saved.metric_names().end());
      series->numbers.assign(saved.numbers().begin(), saved.numbers().end());
      series->numbers.resize(series->numbers.size() / series->width() * series->width());
      for (size_t i = 1; i < series->size(); ++i) {
        if (series->StepAt(i) < series->StepAt(i - 1)) series->sorted = false;
      }
      series->dropped = saved.dropped();
      series->unsent = saved.unsent();
      CountLocked(series);
      MakeRoomLocked();
      if (!counted_.empty()) counted_.Resize(bytes_);
    }
    if (saved.left()) Left(model, saved.worker());
  }
}

absl::Status Histories::AddPast(uint64_t model, const state::Checkpoint& past) {
  for (const state::History& history : past.histories()) {
    v1::ReportHistoryRequest report;
    report.mutable_participant()->set_worker(history.worker());
    report.mutable_participant()->set_incarnation(history.incarnation());
    report.set_batch(history.batch());
    report.set_dropped(history.dropped() + history.unsent());
    const int metrics = history.metric_names_size();
    *report.mutable_metric_names() = history.metric_names();
    for (int i = 0; i < history.numbers_size(); i += 4 + metrics) {
      SetRecord(history.numbers().data() + i, static_cast<size_t>(metrics), report.add_records());
    }
    if (auto status = Report(model, report); !status.ok()) return status;
    Left(model, history.worker());
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

template <typename Take>
bool Histories::Next(absl::Span<const uint64_t> models, const std::string& only, size_t* model, std::string* worker,
                     bool after, const Take& take) const {
  MutexLock lock(&mutex_);
  for (; *model < models.size(); ++*model, worker->clear(), after = false) {
    const auto workers = models_.find(models[*model]);
    if (workers == models_.end()) continue;
    if (!only.empty() && *worker < only) {
      *worker = only;
      after = false;
    }
    const auto series = after ? workers->second.upper_bound(*worker) : workers->second.lower_bound(*worker);
    if (series == workers->second.end() || (!only.empty() && series->first != only)) continue;
    *worker = series->first;
    take(series->second);
    return true;
  }
  return false;
}

Histories::Part Histories::TakeFrom(const Series& series, uint64_t begin, size_t max_records) {
  Part part{.worker = series.worker,
            .metric_names = series.metric_names,
            .dropped = series.dropped + series.unsent,
            .begin = std::max(begin, series.dropped)};
  const size_t skip = std::min<uint64_t>(part.begin - series.dropped, series.size());
  const size_t n = std::min(series.size() - skip, max_records);
  const auto from = series.numbers.begin() + static_cast<Numbers::difference_type>(skip * series.width());
  part.numbers.assign(from, from + static_cast<Numbers::difference_type>(n * series.width()));
  part.last = skip + n == series.size();
  return part;
}

Histories::Part Histories::TakeSteps(const Series& series, uint64_t first_step, size_t max_records) {
  // As many more as have the step of the last one.
  const auto count = [max_records](size_t size, const auto& step_at) {
    size_t n = std::min(size, max_records);
    while (n < size && step_at(n) == step_at(n - 1)) ++n;
    return n;
  };
  if (series.sorted) {
    size_t low = 0;
    for (size_t high = series.size(); low < high;) {
      const size_t middle = (low + high) / 2;
      series.StepAt(middle) < first_step ? low = middle + 1 : high = middle;
    }
    const size_t n = count(series.size() - low, [&](size_t i) { return series.StepAt(low + i); });
    return TakeFrom(series, series.dropped + low, n);
  }
  // A worker that was restarted counts its steps anew.
  std::vector<std::pair<uint64_t, size_t>> found;
  for (size_t record = 0; record < series.size(); ++record) {
    if (series.StepAt(record) >= first_step) found.emplace_back(series.StepAt(record), record);
  }
  std::sort(found.begin(), found.end());
  const size_t n = count(found.size(), [&](size_t i) { return found[i].first; });
  Part part = TakeFrom(series, 0, 0);
  part.last = n == found.size();
  found.resize(n);
  for (const auto& [step, record] : found) {
    const auto from = series.numbers.begin() + static_cast<Numbers::difference_type>(record * series.width());
    part.numbers.insert(part.numbers.end(), from, from + static_cast<Numbers::difference_type>(series.width()));
  }
  return part;
}

absl::Status Histories::Read(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                             v1::GetHistoryReply* reply) const {
  return request.averaged() ? ReadAveraged(models, request, reply) : ReadSeries(models, request, reply);
}

absl::Status Histories::ReadSeries(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                                   v1::GetHistoryReply* reply) const {
  // A token is where to go on: MODEL:RECORD:WORKER.
  size_t model = 0;
  uint64_t begin = 0;
  std::string worker;
  if (!request.page_token().empty()) {
    const std::vector<std::string> token = absl::StrSplit(request.page_token(), absl::MaxSplits(':', 2));
    uint64_t id = 0;
    if (token.size() != 3 || !absl::SimpleAtoi(token[0], &id) || !absl::SimpleAtoi(token[1], &begin)) {
      return BadToken(request.page_token());
    }
    model = static_cast<size_t>(std::find(models.begin(), models.end(), id) - models.begin());
    if (model == models.size()) return BadToken(request.page_token());
    worker = token[2];
  }
  size_t page_bytes = 0;
  const size_t first_model = model;
  const std::string first_worker = worker;
  for (bool after = false;; after = true) {
    Part part;
    const auto take = [&](const Series& series) {
      if (after || model != first_model || series.worker != first_worker) begin = 0;
      const size_t room = kPageBytes - std::min(page_bytes, kPageBytes - 1);
      part = TakeFrom(series, begin, room / RecordBytes(series.metric_names.size()) + 1);
    };
    if (!Next(models, request.worker(), &model, &worker, after, take)) return absl::OkStatus();
    v1::WorkerHistory* const out = reply->add_workers();
    out->set_worker(part.worker);
    for (const std::string& name : part.metric_names) out->add_metric_names(name);
    out->set_dropped(part.dropped);
    const size_t metrics = part.metric_names.size();
    for (size_t i = 0; i < part.numbers.size(); i += 4 + metrics) {
      SetRecord(&part.numbers[i], metrics, out->add_records());
    }
    page_bytes += part.worker.size() + NameBytes(part.metric_names) + 64 +
                  static_cast<size_t>(out->records_size()) * RecordBytes(metrics);
    const uint64_t end = part.begin + static_cast<uint64_t>(out->records_size());
    if (page_bytes < kPageBytes && part.last) continue;
    // With the last record of the last worker out, one more page will say that there is no more.
    reply->set_next_page_token(absl::StrCat(models[model], ":", end, ":", worker));
    return absl::OkStatus();
  }
}

absl::Status Histories::ReadAveraged(absl::Span<const uint64_t> models, const v1::GetHistoryRequest& request,
                                     v1::GetHistoryReply* reply) const {
  // A token is the step to go on from.
  uint64_t first_step = 0;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &first_step)) {
    return BadToken(request.page_token());
  }
  size_t workers = 0;
  {
    MutexLock lock(&mutex_);
    for (const uint64_t model : models) {
      if (const auto found = models_.find(model); found != models_.end()) workers += found->second.size();
    }
  }
  v1::WorkerHistory* const out = reply->add_workers();
  // Of each worker so many, and then all steps before the first that somebody has more of.
  const size_t most = std::max<size_t>(kAveragedRecords / std::max<size_t>(workers, 1), 1);
  constexpr uint64_t kNoStep = std::numeric_limits<uint64_t>::max();
  uint64_t end_step = kNoStep;
  std::vector<Part> parts;
  size_t model = 0;
  std::string worker;
  for (bool after = false;; after = true) {
    Part part;
    bool any = false;
    const auto take = [&](const Series& series) {
      part = TakeSteps(series, first_step, std::min(most, kPageBytes / RecordBytes(series.metric_names.size()) + 1));
      any = series.size() > 0;
    };
    if (!Next(models, request.worker(), &model, &worker, after, take)) break;
    out->set_dropped(out->dropped() + part.dropped);
    if (any && out->metric_names_size() == 0) {
      for (const std::string& name : part.metric_names) out->add_metric_names(name);
    }
    if (!part.last) end_step = std::min(end_step, LastStep(part.numbers, part.metric_names.size()) + 1);
    if (!part.numbers.empty()) parts.push_back(std::move(part));
  }

  struct Place {
    uint64_t step;
    const Part* part;
    const double* numbers;
  };
  std::vector<Place> places;
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.numbers.size(); i += 4 + part.metric_names.size()) {
      const Place place{std::bit_cast<uint64_t>(part.numbers[i]), &part, &part.numbers[i]};
      if (i == 0 || places.back().step != place.step) {
        places.push_back(place);
      } else {
        places.back() = place;
      }
    }
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.step < b.step; });
  const std::vector<std::string> names(out->metric_names().begin(), out->metric_names().end());
  const size_t most_steps = kPageBytes / RecordBytes(names.size());
  v1::HistoryRecord* mean = nullptr;
  double n = 0;
  double n_metrics = 0;
  for (const Place& place : places) {
    if (place.step >= end_step) break;
    if (mean == nullptr || place.step != mean->step()) {
      if (static_cast<size_t>(out->records_size()) >= most_steps) {
        end_step = place.step;
        break;
      }
      mean = out->add_records();
      mean->set_step(place.step);
      n = n_metrics = 0;
    }
    // Running means.
    ++n;
    mean->set_epoch(mean->epoch() + (place.numbers[1] - mean->epoch()) / n);
    mean->set_time_s(mean->time_s() + (place.numbers[2] - mean->time_s()) / n);
    mean->set_loss(mean->loss() + (place.numbers[3] - mean->loss()) / n);
    if (place.part->metric_names != names) continue;
    ++n_metrics;
    for (int m = 0; m < static_cast<int>(names.size()); ++m) {
      if (m == mean->metrics_size()) mean->add_metrics(0);
      mean->set_metrics(m, mean->metrics(m) + (place.numbers[4 + m] - mean->metrics(m)) / n_metrics);
    }
  }
  if (end_step != kNoStep) reply->set_next_page_token(absl::StrCat(end_step));
  return absl::OkStatus();
}

}  // namespace paramd
