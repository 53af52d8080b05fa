// Time that passes by waiting alone.
#ifndef PARAMD_TESTS_CLIENT_WAITING_CLOCK_H_
#define PARAMD_TESTS_CLIENT_WAITING_CLOCK_H_

#include "absl/time/time.h"
#include "tests/support/fake_clock.h"

namespace paramd::testing {

// For tests of one thread: nobody else could end its waits. Thread-safe.
class WaitingClock : public FakeClock {
 public:
  void Wait(CondVar* /*changed*/, Mutex* /*mutex*/, absl::Time deadline) const override {
    if (deadline > Now()) const_cast<WaitingClock*>(this)->Advance(deadline - Now());
  }
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_CLIENT_WAITING_CLOCK_H_
