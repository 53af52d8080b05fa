// A worker that trains a large model for a short time between two exchanges: how much of an exchange does training on
// hide?
#ifndef PARAMD_BENCH_OVERLAP_H_
#define PARAMD_BENCH_OVERLAP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/transport.h"

namespace paramd::bench {

// How a worker trains: without exchanges, waiting for each, or training on meanwhile.
enum class Training { kAlone, kWaiting, kOverlapped };

struct OverlapRow {
  size_t bytes = 0;
  absl::Duration window;  // of training between two exchanges
  std::string transport;
  double alone = 0;       // windows/s; as all below, the median over rounds
  double waiting = 0;     // windows/s
  double overlapped = 0;  // windows/s
  // The time that an exchange adds to a window, and the part of it that is gone when overlapped; at best, that is the
  // part that the window's training lasts for.
  double exchange_ms = 0;
  double hidden = 0;
  double hidden_at_best = 0;
  std::string unavailable;  // why nothing was measured, if so
};

std::vector<OverlapRow> RunOverlap(const Programs& programs, size_t bytes, absl::Duration window, int rounds);

// The worker's side, within its own process: trains, and prints the windows/s on stdout. `kind` and `address` as in
// PeerAddress.
absl::Status ServeTraining(const std::string& kind, const std::string& address, const std::string& algorithm,
                           size_t bytes, absl::Duration window, Training training);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_OVERLAP_H_
