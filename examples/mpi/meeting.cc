#include "examples/mpi/meeting.h"

#include <mpi.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// The text of rank `root` for all.
std::string Broadcast(int root, std::string text) {
  int size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, root, MPI_COMM_WORLD);
  text.resize(size);
  MPI_Bcast(text.data(), size, MPI_CHAR, root, MPI_COMM_WORLD);
  return text;
}

// OK if `status` is on every rank.
absl::Status Agree(const Ranks& ranks, const absl::Status& status) {
  const int failed = status.ok() ? ranks.size : ranks.rank;
  int first = 0;
  MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == ranks.size) return absl::OkStatus();
  const std::string error = Broadcast(first, status.ToString());
  return status.ok() ? absl::AbortedError(absl::StrCat("rank ", first, " failed: ", error)) : status;
}

bool OnOneHost(int size) {
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int ranks_here = 0;
  MPI_Comm_size(host, &ranks_here);
  MPI_Comm_free(&host);
  return ranks_here == size;
}

}  // namespace

absl::StatusOr<std::string> MeetByMpi(Ranks* ranks, const std::string& specification,
                                      const std::function<absl::Status()>& prepare,
                                      const std::function<absl::StatusOr<std::string>(bool one_host)>& make_message) {
  // Before MPI adds variables of its own.
  const auto launched = RanksFromEnvironment();
  if (launched.ok()) *ranks = *launched;
  // An error of MPI itself ends the process with its message, as is its default.
  MPI_Init(nullptr, nullptr);
  const absl::Cleanup finalize = [] { MPI_Finalize(); };
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1 && ranks->size > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the environment says that this is one of ", ranks->size, " ranks (", ranks->source,
                     "), but MPI finds no other: it was not started by a launcher of this MPI, which is Open MPI. "
                     "Start it with Open "
                     "MPI's mpirun (`mpirun -n 1` for one rank alone), or start a daemon and name it by --server"));
  }
  ranks->size = size;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
  if (auto status = Agree(*ranks, prepare()); !status.ok()) return status;
  absl::Status same;
  if (Broadcast(0, specification) != specification) {
    same = absl::InvalidArgumentError(
        "its flags describe another model than rank 0's; give all ranks the same --model, --layers, --algorithm, "
        "--consistency, --window and --learning_rate");
  }
  if (auto status = Agree(*ranks, same); !status.ok()) return status;
  const bool one_host = OnOneHost(size);
  absl::StatusOr<std::string> message("");
  if (ranks->rank == 0) message = make_message(one_host);
  if (auto status = Agree(*ranks, message.status()); !status.ok()) return status;
  return Broadcast(0, *std::move(message));
}

}  // namespace paramd
