// How the ranks of one launch meet by MPI.
#ifndef PARAMD_EXAMPLES_MPI_MEETING_H_
#define PARAMD_EXAMPLES_MPI_MEETING_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/mpi/ranks.h"

namespace paramd {

// MPI is begun and ended in here: the ranks need neither it nor one another afterwards. Every rank prepares, and if all
// could and all have the same `specification`, rank 0 makes the message, knowing whether all ranks run on its host, and
// every rank gets it. `ranks` is set as soon as it is known. Call it once, before there are other threads. Errors, of
// every rank:
//   FAILED_PRECONDITION  the launcher is none that this MPI knows
//   INVALID_ARGUMENT     its specification is not rank 0's
//   ABORTED              another rank failed, with its number and error; that rank's error is its own
absl::StatusOr<std::string> MeetByMpi(Ranks* ranks, const std::string& specification,
                                      const std::function<absl::Status()>& prepare,
                                      const std::function<absl::StatusOr<std::string>(bool one_host)>& make_message);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MPI_MEETING_H_
