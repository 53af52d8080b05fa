// Waiting for a condition that another thread or process brings about.
#ifndef PARAMD_TESTS_SUPPORT_AWAIT_H_
#define PARAMD_TESTS_SUPPORT_AWAIT_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace paramd {

// Long enough that only a hang exceeds it, also under a sanitizer on a busy machine.
inline constexpr absl::Duration kAwaitTimeout = absl::Seconds(60);

// Looks again and again until `condition` holds. False if `timeout` passed first.
template <typename Condition>
bool Await(const Condition& condition, absl::Duration timeout = kAwaitTimeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace paramd

#endif  // PARAMD_TESTS_SUPPORT_AWAIT_H_
