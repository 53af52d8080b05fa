// Settings of a whole process, for the mains of daemons and workers. The libraries leave them alone.
#ifndef PARAMD_PROCESS_TUNING_H_
#define PARAMD_PROCESS_TUNING_H_

namespace paramd {

// To be called once, before the first thread starts. Makes malloc keep and reuse large blocks instead of giving them
// back (the page faults of fresh memory cost more than copies), and spares Abseil's locks their search for deadlocks.
void TuneProcess();

}  // namespace paramd

#endif  // PARAMD_PROCESS_TUNING_H_
