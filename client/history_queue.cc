#include "client/history_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {

absl::Status HistoryQueue::Add(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps) {
  for (const StepResult& step : steps) {
    if (step.metrics.size() != metric_names.size()) {
      const absl::Status mismatch = absl::InvalidArgumentError(
          absl::StrCat("nothing of a report was kept, as its step ", step.step, " has ", step.metrics.size(),
                       " metrics where ", metric_names.size(), " are named; return one value for each name"));
      bool news = false;
      {
        MutexLock lock(&mutex_);
        news = DropLocked(steps.size(), mismatch);
      }
      if (news) Tell(mismatch);
      return mismatch;
    }
  }
  auto next = steps.begin();
  absl::Status refused;
  do {
    bool due = false;
    {
      MutexLock lock(&mutex_);
      const absl::Time before = DueLocked();
      MakeRoomLocked();
      if (!closed_.ok()) return closed_;
      for (size_t i = 0; i < options_.report_records && next != steps.end(); ++i) AddLocked(metric_names, *next++);
      due = DueLocked() < before;
      refused = state_.refused;
    }
    if (due && on_due_ != nullptr) on_due_();
  } while (next != steps.end());
  return refused;
}

void HistoryQueue::MakeRoomLocked() {
  const absl::Time begin = options_.clock->Now();
  while (state_.queued >= options_.max_records && closed_.ok()) {
    const absl::Time ends = std::max(begin, last_progress_) + options_.patience;
    if (!stuck_ && options_.clock->Now() < ends) {
      options_.clock->Wait(&room_, &mutex_, ends);
      continue;
    }
    stuck_ = true;
    if (reports_.empty()) return;
    const auto dropped = static_cast<uint64_t>(reports_.front().records_size());
    reports_.pop_front();
    state_.queued -= dropped;
    DropLocked(dropped, state_.refused);
  }
}

bool HistoryQueue::DropLocked(uint64_t records, const absl::Status& why) {
  state_.dropped += records;
  unreported_ += records;
  const bool news = why != state_.refused;
  state_.refused = why;
  return news;
}

void HistoryQueue::Tell(const absl::Status& refused) const {
  if (options_.on_event != nullptr) options_.on_event(absl::StrCat("history: ", refused.message()));
}

void HistoryQueue::AddLocked(const std::vector<std::string>& metric_names, const StepResult& step) {
  const bool fits = !reports_.empty() &&
                    static_cast<size_t>(reports_.back().records_size()) < options_.report_records &&
                    std::equal(metric_names.begin(), metric_names.end(), reports_.back().metric_names().begin(),
                               reports_.back().metric_names().end());
  if (reports_.empty()) oldest_ = options_.clock->Now();
  if (!fits) *reports_.emplace_back().mutable_metric_names() = {metric_names.begin(), metric_names.end()};
  v1::HistoryRecord& record = *reports_.back().add_records();
  record.set_step(static_cast<uint64_t>(step.step));
  record.set_epoch(step.epoch);
  record.set_time_s(step.time_s);
  record.set_loss(step.loss);
  record.mutable_metrics()->Add(step.metrics.begin(), step.metrics.end());
  ++state_.queued;
}

absl::Time HistoryQueue::due() const {
  MutexLock lock(&mutex_);
  return DueLocked();
}

absl::Time HistoryQueue::DueLocked() const {
  if (under_way_.has_value()) return absl::InfinitePast();
  if (reports_.empty()) return absl::InfiniteFuture();
  const bool full = static_cast<size_t>(reports_.front().records_size()) >= options_.report_records;
  return full || reports_.size() > 1 ? absl::InfinitePast() : oldest_ + options_.interval;
}

const v1::ReportHistoryRequest* HistoryQueue::Next() {
  MutexLock lock(&mutex_);
  if (!under_way_.has_value()) {
    if (reports_.empty()) return nullptr;
    under_way_ = std::move(reports_.front());
    reports_.pop_front();
    oldest_ = options_.clock->Now();
    under_way_->set_batch(++batch_);
    under_way_->set_dropped(std::exchange(unreported_, 0));
  }
  return &*under_way_;
}

void HistoryQueue::Sent(const absl::Status& status, bool again) {
  bool news = false;
  {
    MutexLock lock(&mutex_);
    if (again || !under_way_.has_value()) return;
    const auto records = static_cast<uint64_t>(under_way_->records_size());
    state_.queued -= records;
    if (status.ok()) {
      state_.reported += records;
      state_.refused = absl::OkStatus();
    } else {
      unreported_ += under_way_->dropped();
      news = DropLocked(records, status);
    }
    last_progress_ = options_.clock->Now();
    stuck_ = false;
    under_way_.reset();
    room_.SignalAll();
  }
  if (news) Tell(status);
}

void HistoryQueue::Close(const absl::Status& why) {
  MutexLock lock(&mutex_);
  closed_ = why;
  room_.SignalAll();
}

HistoryState HistoryQueue::state() const {
  MutexLock lock(&mutex_);
  return state_;
}

}  // namespace paramd
