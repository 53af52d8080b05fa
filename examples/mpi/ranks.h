// Which of the processes of one launch this is, and how the first tells the others something.
#ifndef PARAMD_EXAMPLES_MPI_RANKS_H_
#define PARAMD_EXAMPLES_MPI_RANKS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace paramd {

struct Ranks {
  int rank = 0;  // in [0, size)
  int size = 1;
};

// From what the launcher put into the environment: Open MPI's mpirun, Slurm's srun, or any that sets PMI_RANK and
// PMI_SIZE. One of one if there is nothing. INVALID_ARGUMENT for variables that make no sense.
absl::StatusOr<Ranks> RanksFromEnvironment();

struct Meeting {
  Ranks ranks;
  std::string message;
};

// By MPI, which is begun and ended in here: the ranks need neither it nor one another afterwards. Rank 0 makes the
// message, knowing whether all ranks run on its host; the others get it. An error of `make_message` is the error of
// every rank. Call it once, before there are other threads.
absl::StatusOr<Meeting> MeetByMpi(const std::function<absl::StatusOr<std::string>(bool one_host)>& make_message);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MPI_RANKS_H_
