#include "examples/mpi/ranks.h"

#include <mpi.h>

#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

constexpr std::pair<const char*, const char*> kVariables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}, {"PMI_RANK", "PMI_SIZE"}};

// Rank 0's text for all.
std::string Broadcast(std::string text) {
  int size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(size);
  MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
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

absl::StatusOr<Ranks> RanksFromEnvironment() {
  for (const auto& [rank_name, size_name] : kVariables) {
    const char* const rank_text = std::getenv(rank_name);
    const char* const size_text = std::getenv(size_name);
    if (rank_text == nullptr || size_text == nullptr) continue;
    Ranks ranks;
    if (!absl::SimpleAtoi(rank_text, &ranks.rank) || !absl::SimpleAtoi(size_text, &ranks.size) || ranks.rank < 0 ||
        ranks.rank >= ranks.size) {
      return absl::InvalidArgumentError(absl::StrCat("the environment says ", rank_name, "=", rank_text, " and ",
                                                     size_name, "=", size_text, "; a rank is below the size"));
    }
    return ranks;
  }
  return Ranks();
}

absl::StatusOr<Meeting> MeetByMpi(const std::function<absl::StatusOr<std::string>(bool one_host)>& make_message) {
  // An error of MPI itself ends the process with its message, as is its default.
  MPI_Init(nullptr, nullptr);
  const absl::Cleanup finalize = [] { MPI_Finalize(); };
  Meeting meeting;
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting.ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &meeting.ranks.size);
  const bool one_host = OnOneHost(meeting.ranks.size);
  absl::Status status;
  if (meeting.ranks.rank == 0) {
    auto message = make_message(one_host);
    status = message.status();
    if (message.ok()) meeting.message = *std::move(message);
  }
  const std::string error = Broadcast(std::string(status.message()));
  meeting.message = Broadcast(std::move(meeting.message));
  if (!status.ok()) return status;
  if (!error.empty()) return absl::AbortedError(absl::StrCat("rank 0 failed: ", error));
  return meeting;
}

}  // namespace paramd
