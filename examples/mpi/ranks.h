// Which of the processes of one launch this is, by what launchers put into the environment.
#ifndef PARAMD_EXAMPLES_MPI_RANKS_H_
#define PARAMD_EXAMPLES_MPI_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paramd {

struct Ranks {
  int rank = 0;  // in [0, size)
  int size = 1;
  std::string source;  // the variables that said so; empty: there were none
};

// From the variables of Open MPI's mpirun, of any launcher that sets PMI_RANK and PMI_SIZE, or of Slurm's srun. One of
// one if there are none. Where launchers are nested (a batch system's variables around another launcher's) the
// innermost wins: the one whose variables the nearest ancestors of this process did not have yet; among those that came
// together, the order above. INVALID_ARGUMENT for variables that make no sense.
absl::StatusOr<Ranks> RanksFromEnvironment();

// The same from blocks of NAME=VALUE, each ended by a NUL, as /proc/PID/environ has them: of this process, of its
// parent, and so on.
absl::StatusOr<Ranks> RanksFrom(const std::vector<std::string>& environments);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MPI_RANKS_H_
