// Real daemons and workers that are killed, stopped, cut off and started again at random, and what must hold all the
// same: commits are applied exactly once or not at all, as their workers were told, and no call takes longer than it
// may.
#ifndef PARAMD_TESTS_CHAOS_RUN_H_
#define PARAMD_TESTS_CHAOS_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace paramd::chaos {

struct Options {
  uint64_t seed = 0;
  int kills = 10;  // SIGKILLs of daemon and workers, after which it ends
  bool tls = false;
  bool credentials = false;  // with tls: clients have certificates and tokens, which are replaced meanwhile
  bool small_disk = false;   // the state folder's, which is full now and then; needs a journal
  std::string durability;    // the daemon's; empty: it has no state folder, and only workers are killed
  bool only_daemon = false;  // nothing else is done to anybody than to kill it
  std::string checkpoint_every = "200ms";
};

struct Report {
  std::vector<std::string> wrong;  // what did not hold; empty if all did
  std::string figures;
  std::string skipped;  // why it could not be; empty if it was
};

// From a thread that outlives it. Needs //tests/chaos:worker and //server:paramd as data.
Report Run(const Options& options);

}  // namespace paramd::chaos

#endif  // PARAMD_TESTS_CHAOS_RUN_H_
