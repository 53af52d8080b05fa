// The limit of memory: the same bytes copied within one process, by one thread.
#ifndef PARAMD_BENCH_BASELINE_MEMCPY_H_
#define PARAMD_BENCH_BASELINE_MEMCPY_H_

#include <memory>

#include "bench/peer.h"

namespace paramd::bench {

// A pull copies out of a center, a commit copies into one, an exchange does both. `fresh_pages`: into memory that the
// system has just given, which costs its page faults.
std::unique_ptr<Peer> MakeMemcpyPeer(Buffers buffers, bool fresh_pages);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_BASELINE_MEMCPY_H_
