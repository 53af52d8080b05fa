#include "sync/clock.h"

#include <chrono>

namespace paramd {
namespace {

class SteadyClock : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

const Clock* Clock::Steady() {
  static const SteadyClock clock;
  return &clock;
}

}  // namespace paramd
