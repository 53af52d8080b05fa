#include "client/cli/past.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace paramd::cli {
namespace {

// With names as long as they may be, far less than a message may have.
constexpr int kMembers = 1000;
constexpr int kNumbers = 128 << 10;

}  // namespace

state::Checkpoint PastOf(const v1::ModelInfo& model, const v1::GetHistoryReply& history, const Admin::Point& at) {
  state::Checkpoint past;
  *past.mutable_spec() = model.spec().SerializeAsString();
  past.set_id(model.id());
  past.set_initialized(true);
  past.set_version(at.version);
  past.set_rounds(at.rounds);
  for (const v1::WorkerInfo& worker : model.workers()) {
    state::Member* const member = past.add_members();
    member->set_name(worker.worker());
    member->set_incarnation(worker.incarnation());
    member->set_state(worker.state());
    member->set_message(worker.message());
    member->set_base_version(worker.base_version());
    member->set_windows(worker.clock());
    member->set_commits(worker.commits());
    member->set_pulls(worker.pulls());
    member->set_rejected(worker.rejected());
    member->set_staleness_sum(worker.mean_staleness() * static_cast<double>(worker.commits()));
  }
  state::Statistics* const statistics = past.mutable_statistics();
  statistics->set_commits(model.commits());
  statistics->set_rejected(model.rejected());
  *statistics->mutable_histogram() = model.staleness_histogram();
  statistics->set_staleness_sum(model.mean_staleness() * static_cast<double>(model.commits()));
  statistics->set_training_time_s(model.training_time_s());
  statistics->set_joined(model.known_workers() > 0);
  for (const v1::WorkerHistory& series : history.workers()) {
    state::History* const saved = past.add_histories();
    saved->set_worker(series.worker());
    *saved->mutable_metric_names() = series.metric_names();
    saved->set_dropped(series.dropped());
    for (const v1::HistoryRecord& record : series.records()) {
      saved->add_numbers(std::bit_cast<double>(static_cast<uint64_t>(record.step())));
      for (const double number : {record.epoch(), record.time_s(), record.loss()}) saved->add_numbers(number);
      saved->mutable_numbers()->Add(record.metrics().begin(), record.metrics().end());
    }
  }
  return past;
}

std::vector<std::string> PiecesOfPast(const state::Checkpoint& past) {
  std::vector<std::string> pieces;
  state::Checkpoint piece;
  *piece.mutable_statistics() = past.statistics();
  for (const state::Member& member : past.members()) {
    *piece.add_members() = member;
    if (piece.members_size() < kMembers) continue;
    pieces.push_back(piece.SerializeAsString());
    piece.Clear();
  }
  pieces.push_back(piece.SerializeAsString());
  for (const state::History& history : past.histories()) {
    const int width = 4 + history.metric_names_size();
    const int step = kNumbers / width * width;
    uint64_t batch = 0;
    for (int begin = 0; begin == 0 || begin < history.numbers_size(); begin += step) {
      state::Checkpoint one;
      state::History* const part = one.add_histories();
      part->set_worker(history.worker());
      part->set_incarnation(history.incarnation());
      part->set_batch(++batch);
      *part->mutable_metric_names() = history.metric_names();
      if (begin == 0) part->set_dropped(history.dropped() + history.unsent());
      const double* const numbers = history.numbers().data();
      part->mutable_numbers()->Add(numbers + begin, numbers + std::min(begin + step, history.numbers_size()));
      pieces.push_back(one.SerializeAsString());
    }
  }
  return pieces;
}

}  // namespace paramd::cli
