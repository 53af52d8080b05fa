// Time as the server sees it: steady, and replaceable in tests.
#ifndef PARAMD_SERVER_CLOCK_H_
#define PARAMD_SERVER_CLOCK_H_

#include "absl/time/time.h"

namespace paramd {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Never goes back. Only differences mean something.
  virtual absl::Time Now() const = 0;

  static const Clock* Steady();
};

}  // namespace paramd

#endif  // PARAMD_SERVER_CLOCK_H_
