#include "server/past.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/paramd.pb.h"
#include "proto/text.h"
#include "server/membership.h"

namespace paramd {
namespace {

// Counts go on from there.
constexpr uint64_t kMaxCount = std::numeric_limits<int64_t>::max();

absl::StatusOr<state::Member> PastMember(const state::Member& member) {
  if (auto status = Membership::CheckJoin(member.name(), member.incarnation(), /*nonce=*/1); !status.ok()) {
    return status;
  }
  if (member.windows() > kMaxCount || !std::isfinite(member.staleness_sum())) {
    return absl::InvalidArgumentError(absl::StrCat("the counts of worker '", Quoted(member.name()), "' are none"));
  }
  state::Member past;
  past.set_name(member.name());
  past.set_incarnation(member.incarnation());
  past.set_state(member.state() == v1::WorkerInfo::FAILED ? v1::WorkerInfo::FAILED : v1::WorkerInfo::LEFT);
  past.set_message(Shortened(member.message(), kMaxLastWords));
  past.set_base_version(-1);
  past.set_windows(member.windows());
  past.set_commits(member.commits());
  past.set_pulls(member.pulls());
  past.set_rejected(member.rejected());
  past.set_staleness_sum(member.staleness_sum());
  return past;
}

absl::Status CheckHistory(const state::History& history) {
  if (auto status = Membership::CheckJoin(history.worker(), history.incarnation(), /*nonce=*/1); !status.ok()) {
    return status;
  }
  if (history.numbers_size() % (4 + history.metric_names_size()) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the history of worker '", Quoted(history.worker()), "' has ",
                                                 history.numbers_size(), " numbers, which are no records"));
}

}  // namespace

absl::StatusOr<state::Checkpoint> PastOf(const state::Checkpoint& record) {
  state::Checkpoint past;
  for (const state::Member& member : record.members()) {
    auto left = PastMember(member);
    if (!left.ok()) return left.status();
    *past.add_members() = *std::move(left);
  }
  for (const state::History& history : record.histories()) {
    if (auto status = CheckHistory(history); !status.ok()) return status;
    state::History* const left = past.add_histories();
    *left = history;
    left->clear_nonce();
    left->set_left(true);
  }
  if (!record.has_statistics()) return past;
  *past.mutable_statistics() = record.statistics();
  const state::Statistics& statistics = record.statistics();
  if (!std::isfinite(statistics.staleness_sum()) || !(statistics.training_time_s() >= 0) ||
      !std::isfinite(statistics.training_time_s())) {
    return absl::InvalidArgumentError("the statistics of the model are none");
  }
  return past;
}

}  // namespace paramd
