// What a model counts of all its commits.
#ifndef PARAMD_SERVER_COMMIT_STATISTICS_H_
#define PARAMD_SERVER_COMMIT_STATISTICS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "proto/paramd.pb.h"
#include "state/state.pb.h"

namespace paramd {

// Thread-compatible.
class CommitStatistics {
 public:
  void CountJoin(absl::Time now) {
    if (!first_join_.has_value()) first_join_ = now;
  }

  void CountRejected() { ++rejected_; }

  void CountCommit(int64_t staleness, absl::Time now) {
    ++commits_;
    ++histogram_[std::min(static_cast<size_t>(staleness), histogram_.size() - 1)];
    staleness_sum_ += static_cast<double>(staleness);
    last_commit_ = now;
  }

  void Save(state::Statistics* saved) const {
    saved->set_commits(commits_);
    saved->set_rejected(rejected_);
    saved->mutable_histogram()->Add(histogram_.begin(), histogram_.end());
    saved->set_staleness_sum(staleness_sum_);
    saved->set_joined(first_join_.has_value());
    if (commits_ > 0) saved->set_training_time_s(absl::ToDoubleSeconds(last_commit_ - *first_join_));
  }

  // Goes on at `now`: the time in between was none of training.
  void Restore(const state::Statistics& saved, absl::Time now) {
    commits_ = saved.commits();
    rejected_ = saved.rejected();
    for (size_t i = 0; i < histogram_.size() && i < static_cast<size_t>(saved.histogram_size()); ++i) {
      histogram_[i] = saved.histogram(static_cast<int>(i));
    }
    staleness_sum_ = saved.staleness_sum();
    if (saved.joined() || commits_ > 0) first_join_ = now - absl::Seconds(saved.training_time_s());
    last_commit_ = now;
  }

  void Describe(v1::ModelInfo* info) const {
    info->set_rejected(rejected_);
    info->set_commits(commits_);
    if (commits_ == 0) return;
    info->set_mean_staleness(staleness_sum_ / static_cast<double>(commits_));
    info->set_training_time_s(absl::ToDoubleSeconds(last_commit_ - *first_join_));
    const auto last = std::find_if(histogram_.rbegin(), histogram_.rend(), [](uint64_t n) { return n > 0; });
    info->mutable_staleness_histogram()->Add(histogram_.begin(), last.base());
  }

 private:
  uint64_t commits_ = 0;
  uint64_t rejected_ = 0;
  std::array<uint64_t, 64> histogram_ = {};  // the last one holds all larger ones too
  double staleness_sum_ = 0;
  std::optional<absl::Time> first_join_;
  absl::Time last_commit_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_COMMIT_STATISTICS_H_
