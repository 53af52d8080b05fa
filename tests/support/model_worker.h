// A worker of a model inside the process: it calls the model the way the transport does for a session.
#ifndef PARAMD_TESTS_SUPPORT_MODEL_WORKER_H_
#define PARAMD_TESTS_SUPPORT_MODEL_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "algorithms/algorithm.h"
#include "proto/paramd.pb.h"
#include "server/center.h"
#include "server/commit_buffer.h"
#include "server/model.h"
#include "sync/mutex.h"

namespace paramd::testing {

// The specification of a model of one tensor, "w", of `floats`.
v1::ModelSpec MakeSpec(const std::string& algorithm, size_t floats, const std::string& consistency = "",
                       const Hyperparameters& hyperparameters = {});

// Fails the test if the specification is wrong.
std::unique_ptr<Model> MakeModel(const v1::ModelSpec& spec, ModelOptions options = {});

// Received whole, in one piece.
CommitBuffer MakeBuffer(std::vector<float> floats);

std::vector<float> Floats(const Snapshot& snapshot);

absl::Status TryInitialize(Model* model, CommitBuffer center);
// Gives the model its initial center.
void Initialize(Model* model, std::vector<float> center);

// Waits for an apply that is under way. Null without a center.
std::shared_ptr<const Snapshot> TakeSnapshot(Model* model);

// An exchange at once, without BeginCommit, whose answer must not have to wait.
ExchangeAnswer ExchangeAtOnce(Model* model, const ExchangeCall& call, CommitBuffer commit);

// Fails the test unless the model has a worker of that name.
v1::WorkerInfo DescribeWorker(const Model& model, const std::string& worker);

// How an exchange ended.
struct Outcome {
  absl::Status status;
  bool committed = false;
  int64_t version = 0;  // of the center that was pulled, else after the commit
  int64_t staleness = 0;
  std::shared_ptr<const Snapshot> center;  // null unless one was pulled
};

// Does one exchange at a time. Must be destroyed before its model. Its methods are called by one thread; the model may
// answer on others.
class ModelWorker {
 public:
  // Joins; fails the test if it can't.
  ModelWorker(Model* model, std::string name, uint64_t incarnation = 0);
  ~ModelWorker();

  ModelWorker(const ModelWorker&) = delete;
  ModelWorker& operator=(const ModelWorker&) = delete;

  const std::string& name() const { return name_; }
  const Caller& caller() const { return caller_; }
  uint64_t sequence() const { return sequence_; }
  int64_t base_version() const { return base_version_; }

  // How commits come from now on. As MakeBuffer's at first.
  void set_buffers(std::function<CommitBuffer(std::vector<float>)> make) { make_buffer_ = std::move(make); }
  // How long the model may hold up the exchanges that begin from now on. Without end at first.
  void set_wait(absl::Duration wait) { wait_ = wait; }
  // What the next commit claims to be based on; a pull sets it.
  void set_base_version(int64_t version) { base_version_ = version; }

  // Begin an exchange: its answer may come now or later.
  void Start(std::vector<float> commit, bool pull = true);
  void StartPull();
  // The last commit again, as if no answer had arrived; as slowly as the first time.
  void StartRetry();
  // Asks for the answer to the last commit, without sending the commit.
  void StartAskAgain();

  // As Start, but the commit's bytes only come with SendBytes, which must not be called before may_send().
  void StartSlowly(std::vector<float> commit, bool pull = true);
  bool may_send() const;
  void SendBytes();

  // Whether the model holds the exchange up.
  bool waiting() const;
  // Whether the last exchange was ended with End, and the next may begin.
  bool training() const;
  // Waits for the end of the exchange.
  Outcome End();
  void Cancel() { model_->CancelWait(this); }

  Outcome Exchange(std::vector<float> commit);
  Outcome Commit(std::vector<float> commit);
  Outcome Pull();
  Outcome Retry();

  void Acknowledge() { model_->Acknowledge(caller_, sequence_); }
  absl::Status Heartbeat() { return model_->Heartbeat(caller_); }
  absl::Status Leave(const std::string& error = "") { return model_->Leave(caller_, error); }

 private:
  enum class Stage { kIdle, kBeginning, kMaySend, kExchanging };

  void Begin(bool with_commit, bool pull);
  void Began(ExchangeAnswer answer);
  void CallExchange(bool with_bytes);
  void Wait();
  void Exchanged(ExchangeAnswer answer);
  void EndWith(Outcome outcome);

  Model* const model_;
  const std::string name_;
  Caller caller_;

  // Only change between exchanges.
  std::function<CommitBuffer(std::vector<float>)> make_buffer_ = MakeBuffer;
  absl::Duration wait_ = absl::InfiniteDuration();
  uint64_t sequence_ = 0;
  int64_t base_version_ = -1;
  std::vector<float> commit_;
  ExchangeCall call_;
  bool slowly_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kIdle;
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;  // and taken
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_MODEL_WORKER_H_
