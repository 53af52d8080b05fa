// The models that a daemon hosts.
#ifndef PARAMD_SERVER_MODELS_H_
#define PARAMD_SERVER_MODELS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/paramd.pb.h"
#include "server/budget.h"
#include "server/identity.h"
#include "server/model.h"
#include "sync/mutex.h"

namespace paramd {

struct ModelsOptions {
  ModelOptions model;
  size_t max_models = 1024;
  uint64_t max_model_bytes = uint64_t{64} << 30;
  BudgetOptions budget;
  size_t max_history_records = 10'000;  // of each worker
  uint64_t max_history_bytes = HistoriesOptions().max_bytes;
  uint64_t daemon_id = RandomId();
};

// Thread-safe.
class Models {
 public:
  explicit Models(ModelsOptions options);

  // An identical repeat is OK. INVALID_ARGUMENT, NOT_FOUND (of the algorithm), ALREADY_EXISTS that names the
  // difference, RESOURCE_EXHAUSTED.
  absl::StatusOr<v1::ModelInfo> Create(const v1::ModelSpec& spec);

  // NOT_FOUND, which names models that there are, or UNAVAILABLE while draining.
  absl::StatusOr<std::shared_ptr<Model>> Find(const std::string& name) const;

  // The model that a participant speaks of. As above, and ABORTED if it is another model of that name, or another
  // daemon, than it has joined; INVALID_ARGUMENT for a worker that does not say which it has joined.
  absl::StatusOr<std::shared_ptr<Model>> Find(const v1::Participant& participant) const;

  // Also the members of an ensemble. Whoever waits in it gets NOT_FOUND.
  absl::Status Delete(const std::string& name);

  // Sorted by name.
  std::vector<std::shared_ptr<Model>> List() const;

  // What paramctl shows: for an ensemble, the workers of all its members.
  absl::StatusOr<v1::ModelInfo> Describe(const std::string& name) const;

  // Joins a model, or a worker's own member of an ensemble, which is created on its first join.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request);

  // Expires leases and waits. To be called every now and then; `overslept`: how much later than due that is.
  void Tick(absl::Duration overslept = absl::ZeroDuration());

  // Refuses everything from now on with UNAVAILABLE, and answers what waits.
  void Drain();

  Budget* budget() { return &budget_; }
  uint64_t daemon_id() const { return options_.daemon_id; }

 private:
  absl::StatusOr<std::shared_ptr<Model>> InsertLocked(CheckedSpec spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Model>> FindLocked(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The member of `ensemble` for a worker: the same for the same name.
  absl::StatusOr<std::shared_ptr<Model>> FindOrCreateMember(const Model& ensemble, const std::string& worker,
                                                            std::shared_ptr<const Snapshot> initial);

  const ModelsOptions options_;
  Budget budget_;
  const std::shared_ptr<Histories> histories_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Model>> models_ ABSL_GUARDED_BY(mutex_);
  // Of each ensemble: which worker has which member, by index.
  std::map<std::string, std::vector<std::string>> ensembles_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODELS_H_
