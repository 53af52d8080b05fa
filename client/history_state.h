// What became of the steps that a worker reported.
#ifndef PARAMD_CLIENT_HISTORY_STATE_H_
#define PARAMD_CLIENT_HISTORY_STATE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace paramd {

struct HistoryState {
  uint64_t queued = 0;    // not sent yet
  uint64_t reported = 0;  // the server has them
  uint64_t dropped = 0;   // left out: the server was away for too long, or has refused them
  absl::Status refused;   // why it refused the last report, if it did
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_HISTORY_STATE_H_
