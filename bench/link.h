// Exchanges over a network link of 1 Gbit/s between two network namespaces of this machine.
#ifndef PARAMD_BENCH_LINK_H_
#define PARAMD_BENCH_LINK_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/transport.h"

namespace paramd::bench {

struct LinkRow {
  size_t bytes = 0;
  std::string wire;
  double exchanges_per_s = 0;  // of one worker; the median over rounds
  double megabytes_per_s = 0;  // on the link, both directions
  double over_f32 = 0;         // exchanges/s over those of f32, the median over pairs of rounds
  std::string unavailable;     // why nothing was measured, if so
};

// One worker that exchanges a model of `bytes`, with each encoding in turns.
std::vector<LinkRow> RunLink(const Programs& programs, size_t bytes, int rounds, absl::Duration slice);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_LINK_H_
