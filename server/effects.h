// What a call of a model leaves to be done when the model's lock is released.
#ifndef PARAMD_SERVER_EFFECTS_H_
#define PARAMD_SERVER_EFFECTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "server/history.h"
#include "server/membership.h"
#include "server/model_event.h"
#include "server/waiters.h"

namespace paramd {

// Whom effects reach. Outlives them.
struct EffectsTargets {
  uint64_t model_id = 0;
  EventSink* events = nullptr;  // may be null
  std::shared_ptr<Histories> histories;
  std::function<void(std::function<void()>)> post;  // runs a task that may take long

  bool Wants(ModelEvent::Kind kind) const { return events != nullptr && events->Wants(kind); }
};

// Collected under the lock, done on destruction: declare one before the lock. Thread-compatible.
class Effects {
 public:
  // `quick`: of a call that must not take long. Whom it lets go on, and who may then have a commit applied, is answered
  // by a posted task.
  explicit Effects(const EffectsTargets* targets, bool quick = false) : targets_(*targets), quick_(quick) {}
  ~Effects();

  Effects(const Effects&) = delete;
  Effects& operator=(const Effects&) = delete;

  void Answer(std::function<void(ExchangeAnswer)> done, ExchangeAnswer answer) {
    answers_.emplace_back(std::move(done), std::move(answer));
  }

  // Letting go of what has room may give others their turn.
  void Drop(std::shared_ptr<const HeldCenter> center) {
    if (center != nullptr) centers_.push_back(std::move(center));
  }
  // Tells those that are not over.
  void Gone(const ExchangesUnderWay& under_way, const absl::Status& why);
  // Tells its exchanges, too.
  void Drop(MemberSession session, const absl::Status& why);

  // The history of a worker that is gone, or even forgotten.
  void Leave(const std::string& worker) { left_.push_back(worker); }
  void Forget(const std::string& worker) { forgotten_.push_back(worker); }

  // One that is wanted.
  void Tell(ModelEvent event) { events_.push_back(std::move(event)); }

  void Post(std::function<void()> task) { task_ = std::move(task); }

 private:
  const EffectsTargets& targets_;
  const bool quick_;
  absl::InlinedVector<std::pair<std::function<void(ExchangeAnswer)>, ExchangeAnswer>, 1> answers_;
  std::vector<MemberSession> sessions_;
  std::vector<std::shared_ptr<const HeldCenter>> centers_;
  std::vector<std::pair<std::shared_ptr<ExchangeOwner>, absl::Status>> gone_;
  std::vector<std::string> left_;
  std::vector<std::string> forgotten_;
  std::vector<ModelEvent> events_;
  std::function<void()> task_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_EFFECTS_H_
