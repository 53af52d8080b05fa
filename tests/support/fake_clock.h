// Time that stands still until a test moves it.
#ifndef PARAMD_TESTS_SUPPORT_FAKE_CLOCK_H_
#define PARAMD_TESTS_SUPPORT_FAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "sync/clock.h"

namespace paramd::testing {

// Thread-safe.
class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(now_ns_.load()); }
  void Advance(absl::Duration by) { now_ns_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_FAKE_CLOCK_H_
