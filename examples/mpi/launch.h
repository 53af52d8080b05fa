// What became of a launch's ranks, as the daemon tells it.
#ifndef PARAMD_EXAMPLES_MPI_LAUNCH_H_
#define PARAMD_EXAMPLES_MPI_LAUNCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/paramd.pb.h"

namespace paramd {

// A rank's name as a worker: "rank-3".
std::string RankName(int rank);

// Thread-compatible.
class Launch {
 public:
  // `earlier`: what the daemon said before this rank joined. Ranks that were done by then are an earlier launch's, if
  // rank 0 has been among them, as it is in every launch. `own_centers`: of an algorithm with a center for each worker.
  Launch(std::string model, int size, bool own_centers, const v1::ServerStatus& earlier);

  void Update(const v1::ServerStatus& now);

  // For the other ranks: false while there has been a rank 0 of an earlier launch alone. This launch's, when it comes,
  // takes whoever was done by then for that launch's, too.
  bool rank_0_came() const { return earlier_[0] == 0 || ranks_[0].worker != nullptr; }

  bool all_came() const;
  bool any_live() const;
  int finished() const;

  // The models that hold what this launch has trained: the model, or those of an ensemble's finished ranks.
  std::vector<std::string> centers() const;
  uint64_t updates() const;  // of these, in this launch
  double mean_staleness() const;

  // "rank 2's lease ran out: it was killed or hangs; rank 3 never came"; empty if all have finished.
  std::string Problems() const;

 private:
  struct Found {
    const v1::ModelInfo* model = nullptr;
    const v1::WorkerInfo* worker = nullptr;
  };
  // What a model has seen.
  struct Totals {
    uint64_t updates = 0;
    double commits = 0;
    double staleness = 0;  // sum over the commits
  };

  // The ranks in `status` that have joined, whichever launch's.
  std::vector<Found> Find(const v1::ServerStatus& status) const;
  static Totals Count(const v1::ModelInfo& model);
  std::vector<const v1::ModelInfo*> Trained() const;
  Totals Sum() const;

  const std::string model_;
  const int size_;
  const bool own_centers_;
  std::vector<uint64_t> earlier_;                 // by rank: the last incarnation of an earlier launch
  std::map<std::string, Totals> earlier_totals_;  // by model
  v1::ServerStatus status_;
  std::vector<Found> ranks_;  // of this launch, in status_
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MPI_LAUNCH_H_
