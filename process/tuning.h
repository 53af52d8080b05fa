// Settings of a whole process, for the mains of daemons and workers. The libraries leave them alone.
#ifndef PARAMD_PROCESS_TUNING_H_
#define PARAMD_PROCESS_TUNING_H_

namespace paramd {

// To be called once, before the first thread starts. Makes malloc keep and reuse large blocks instead of giving them
// back (the page faults of fresh memory cost more than copies), spares Abseil's locks their search for deadlocks, and
// makes an error of what is written past the limit on files (`ulimit -f`), which would be the end of the process.
void TuneProcess();

}  // namespace paramd

#endif  // PARAMD_PROCESS_TUNING_H_
