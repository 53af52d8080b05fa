#include "server/effects.h"

namespace paramd {

Effects::~Effects() {
  // What is held goes before the answers, so that who is answered finds its room.
  sessions_.clear();
  centers_.clear();
  for (const std::string& worker : left_) targets_.histories->Left(targets_.model_id, worker);
  for (const std::string& worker : forgotten_) targets_.histories->Forget(targets_.model_id, worker);
  for (auto& [owner, why] : gone_) owner->OnGone(why);
  for (auto& [done, answer] : answers_) {
    if (!answer.status.ok()) answer.center.reset();
    if (quick_ && answer.status.ok()) {
      targets_.post([done = std::move(done), answer = std::move(answer)] { done(answer); });
    } else {
      done(std::move(answer));
    }
  }
  for (const ModelEvent& event : events_) targets_.events->Tell(event);
  if (task_ != nullptr) targets_.post(std::move(task_));
}

void Effects::Gone(const ExchangesUnderWay& under_way, const absl::Status& why) {
  for (const std::weak_ptr<ExchangeOwner>& exchange : under_way.exchanges()) {
    if (auto owner = exchange.lock(); owner != nullptr) gone_.emplace_back(std::move(owner), why);
  }
}

void Effects::Drop(MemberSession session, const absl::Status& why) {
  Gone(session.under_way, why);
  sessions_.push_back(std::move(session));
}

}  // namespace paramd
