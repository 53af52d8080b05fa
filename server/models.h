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
#include "server/ensemble.h"
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
  ~Models();

  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  // An identical repeat is OK. INVALID_ARGUMENT, NOT_FOUND (of the algorithm), ALREADY_EXISTS that names the
  // difference, RESOURCE_EXHAUSTED; INTERNAL: the algorithm threw.
  absl::StatusOr<v1::ModelInfo> Create(const v1::ModelSpec& spec);

  // NOT_FOUND, or UNAVAILABLE while draining.
  absl::StatusOr<std::shared_ptr<Model>> Find(const std::string& name) const;

  // The model that a participant speaks of. As above, and ABORTED if it is another model of that name, or another
  // daemon, than it has joined; INVALID_ARGUMENT for a worker that does not say which it has joined.
  absl::StatusOr<std::shared_ptr<Model>> Find(const v1::Participant& participant) const;

  // FAILED_PRECONDITION for an ensemble, which has no trained center of its own: names the members, who have.
  absl::Status CheckPull(const Model& model) const;

  struct Deleted {
    std::vector<uint64_t> ids;        // the members of an ensemble before itself
    std::shared_ptr<Model> ensemble;  // whose member was deleted; null: it was none's
  };
  // Also the members of an ensemble. Whoever waits in it gets NOT_FOUND.
  absl::Status Delete(const std::string& name, Deleted* deleted = nullptr);

  // Hosts a model that was saved. ALREADY_EXISTS, RESOURCE_EXHAUSTED, NOT_FOUND (of its ensemble), INTERNAL.
  absl::Status Adopt(CheckedSpec spec, ModelImage image);
  // Adds to the record of a model's image what this knows of it.
  void Save(const Model& model, state::Checkpoint* record) const;

  // Sorted by name.
  std::vector<std::shared_ptr<Model>> List() const;

  // Of an ensemble with the workers of all its members. `workers`: also each of them.
  absl::StatusOr<v1::ModelInfo> Describe(const std::string& name, bool workers = true) const;
  // Each model on its own.
  std::vector<v1::ModelInfo> DescribeAll(bool workers) const;

  // A page; of an ensemble: of all its members. INVALID_ARGUMENT: its token is not of this history.
  absl::StatusOr<v1::GetHistoryReply> ReadHistory(const v1::GetHistoryRequest& request) const;

  // Joins a model, or a worker's own member of an ensemble, which is created on its first join.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request);

  // Expires leases and waits. To be called every now and then; `overslept`: how much later than due that is.
  void Tick(absl::Duration overslept = absl::ZeroDuration());

  // Refuses what is new from now on with UNAVAILABLE, and answers so what waits. What was begun goes on.
  void Drain();

  // Ends that, too.
  void Close();

  Budget* budget() { return &budget_; }
  uint64_t max_model_bytes() const { return options_.max_model_bytes; }
  uint64_t daemon_id() const { return options_.daemon_id; }

 private:
  struct Entry {
    std::shared_ptr<Model> model;
    std::shared_ptr<Ensemble> ensemble;   // whose whole the model is
    std::shared_ptr<Ensemble> member_of;  // an ensemble of which the model is a member
  };

  // Under no lock: a plugin's code makes its part of it.
  absl::StatusOr<std::shared_ptr<Model>> MakeModel(CheckedSpec spec, bool whole, uint64_t id = RandomId()) const;
  void Tell(ModelEvent::Kind kind, const Model& model) const;
  absl::Status CheckRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry> FindLocked(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The worker's member: the same for the same name.
  absl::StatusOr<std::shared_ptr<Model>> FindOrCreateMember(const std::shared_ptr<Ensemble>& ensemble,
                                                            const std::string& worker);
  // Null: there is none yet, and `place` is where it goes.
  absl::StatusOr<std::shared_ptr<Model>> FindMemberLocked(const std::shared_ptr<Ensemble>& ensemble,
                                                          const std::string& worker, std::string* place) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ModelsOptions options_;
  mutable Budget budget_;  // thread-safe
  const std::shared_ptr<Histories> histories_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Entry> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODELS_H_
