#include "process/tuning.h"

#include <malloc.h>
#include <signal.h>

#include "absl/synchronization/mutex.h"

namespace paramd {

void TuneProcess() {
  signal(SIGXFSZ, SIG_IGN);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  // So that most memory is in whole huge pages when it is first used.
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  // What one thread frees, all can use.
  mallopt(M_ARENA_MAX, 1);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace paramd
