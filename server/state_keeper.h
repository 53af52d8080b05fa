// What keeps the daemon's models on disk: checkpoints every so often, on request and at the end; all of it at start.
#ifndef PARAMD_SERVER_STATE_KEEPER_H_
#define PARAMD_SERVER_STATE_KEEPER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/paramd.pb.h"
#include "server/models.h"
#include "server/recorder.h"
#include "server/state_options.h"
#include "state/log.h"
#include "state/state_folder.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// Thread-safe. One thread of its own does all that takes long; callbacks run there, under no lock, or at once on the
// caller's. A model's image is taken on its strand, and written from there on without it.
class StateKeeper : public Recorder {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Takes the folder. Errors as StateFolder's.
  static absl::StatusOr<std::unique_ptr<StateKeeper>> Open(StateOptions options);
  ~StateKeeper() override;

  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  uint64_t daemon_id() const { return folder_->daemon_id(); }

  // Brings all models back, each from its newest checkpoint that is good, and begins to look after them; they outlive
  // this. DATA_LOSS: a model has no good one; other codes say why one can't be hosted.
  absl::Status Start(Models* models);

  uint64_t Record(const state::Record& record) override;
  Log* log() const override { return log_.get(); }

  void AwaitDurable(const std::shared_ptr<Model>& model, Done done) override;

  // Writes a checkpoint of each, however little has changed.
  void Checkpoint(const std::vector<std::shared_ptr<Model>>& models, Done done);

  // Their checkpoints go. Nothing of them may be asked for from now on.
  void Remove(const Models::Deleted& deleted, Done done);

  // Writes what has changed, and ends; false: not all of it could be written. Later calls are answered UNAVAILABLE.
  bool Finish();
  // To be called when the models are closed and nothing of them is gone yet: what the log holds of them is let go.
  void StopLog();

  // The checkpoints of these models, of each the newest first, and at most so many.
  absl::StatusOr<v1::CheckpointReply> List(const std::vector<std::shared_ptr<Model>>& models,
                                           size_t of_each = SIZE_MAX) const;

  // Brings a model back to a checkpoint, as itself (Model::GoBack) or as a new model, and answers when that is on the
  // disk. NOT_FOUND, ALREADY_EXISTS; FAILED_PRECONDITION: it has no center, or is an ensemble's; DATA_LOSS and others
  // as Start.
  void Restore(const v1::RestoreModelRequest& request, Done done);

  // What is known of a model's checkpoints, and of the log.
  void Describe(uint64_t id, v1::ModelInfo* info) const;
  void DescribeLog(v1::ServerStatus* status) const;

 private:
  struct Waiter {
    SavePoint need;
    uint64_t attempt = 0;  // that it waits for, however little has changed; 0: none
    Done done;
  };
  struct Tracked {
    SavePoint saved;
    bool any = false;            // a checkpoint that is good
    uint64_t saved_before = 0;   // position of the one before the last
    bool fell_back = false;      // to that one, at start: the newest was damaged
    uint64_t lost_up_to = 0;     // position of the last record that could not be written: a checkpoint has to have it
    std::weak_ptr<Model> model;  // of the waiters
    absl::Time saved_at;
    absl::Time next_attempt;  // by time
    absl::Status problem;     // of the last attempt
    uint64_t begun = 0;       // attempts
    uint64_t succeeded = 0;   // the last that did
    bool queued = false;
    std::vector<Waiter> waiters;
  };
  using Task = std::function<void()>;

  StateKeeper(StateOptions options, std::unique_ptr<StateFolder> folder);
  absl::Status Load(const StoredModel& stored, bool members);
  absl::Status LoadCheckpoint(const StoredCheckpoint& checkpoint, const StoredModel& stored, bool members);
  // A checkpoint that was read.
  struct Loaded {
    CheckedSpec spec;
    ModelImage image;
  };
  absl::StatusOr<Loaded> Read(const std::string& path) const;
  absl::StatusOr<Loaded> ReadOrThrow(const std::string& path) const;
  absl::StatusOr<Loaded> ReadVersion(const Model& model, const v1::RestoreModelRequest& request) const;
  absl::Status RestoreNow(const v1::RestoreModelRequest& request);
  absl::Status RestoreInPlace(const std::shared_ptr<Model>& model, ModelImage image);
  absl::Status RestoreAs(Loaded loaded, const std::string& name);
  absl::Status OpenLog();
  // A record of the model is on disk, or why not.
  void Recorded(uint64_t id, const absl::Status& status);
  void DropRecords();
  void Say(bool error, const std::string& line) const;
  void Run();
  void SaveDue();
  // What could not be removed.
  void RemoveAgain();
  void QueueLocked(const std::shared_ptr<Model>& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Covers(const Tracked& tracked, const Waiter& waiter) const;
  // Whether records of the model that come up to where the log is are all on disk.
  static bool LogIsWhole(const Tracked& tracked) { return tracked.lost_up_to <= tracked.saved.position; }
  void Save(const std::shared_ptr<Model>& model);
  absl::Status Write(const std::shared_ptr<Model>& model, SavePoint* at);
  absl::Status WriteImage(const Model& model, const ModelImage& image);
  void NoteSavedLocked(Tracked* tracked, const SavePoint& at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StateOptions options_;
  const Clock* const clock_ = Clock::Steady();
  const std::unique_ptr<StateFolder> folder_;
  std::unique_ptr<Log> log_;  // constant after Start
  Models* models_ = nullptr;  // constant after Start

  mutable Mutex mutex_;
  CondVar changed_;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;  // what Finish could not write
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> unremoved_ ABSL_GUARDED_BY(mutex_);      // ids of deleted models whose files are still there
  std::map<uint64_t, Tracked> tracked_ ABSL_GUARDED_BY(mutex_);  // by the model's id

  std::thread thread_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STATE_KEEPER_H_
