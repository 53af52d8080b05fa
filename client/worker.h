// Start here: a Worker is one participant of a model.
//
//   auto worker = paramd::Worker::Join({.server = "127.0.0.1:5000", .model = "mnist", .worker = "worker-0"});
//   if (!worker.ok()) return worker.status();
//   std::vector<float> center((*worker)->model().parameters());
//   auto pulled = (*worker)->Pull(absl::MakeSpan(center), absl::Seconds(60));
//   ... train, compute an update ...
//   auto exchanged = (*worker)->Exchange(update, absl::MakeSpan(center), absl::Seconds(60));
//   (*worker)->Leave().IgnoreError();
//
// or leave all that to RunWorker (below), which drives the training loop of train.h.
//
// The library never exits, aborts or throws across this interface, and does not log: give it `on_event`.
#ifndef PARAMD_CLIENT_WORKER_H_
#define PARAMD_CLIENT_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/exchanger.h"
#include "client/history_state.h"
#include "client/security.h"
#include "client/train.h"
#include "client/window.h"
#include "proto/paramd.pb.h"
#include "shm/segment.h"

namespace paramd {

// How the floats of exchanges travel. Everything else is gRPC.
enum class Transport {
  kAuto,  // kShm if the server is on this host and has room for it, else kGrpc
  kGrpc,
  kShm,  // shared memory; Join fails where that can't be had
};

// How a float of a commit or of a pulled center travels over kGrpc; the server always adds float32. docs/tuning.md
// gives the errors. Through shared memory, and to make the first center, it is always a float32.
enum class Wire { kFloat32, kFloat16, kBfloat16 };

struct WorkerOptions {
  std::string server;        // HOST:PORT or unix:PATH; empty: PARAMD_SERVER
  std::string model;         // must exist, unless `create` is given
  std::string worker;        // unique in the model
  uint64_t incarnation = 0;  // of this name; 0: the server assigns the next one. A lower one than the last is refused
  Security security;         // certificates and token
  // Creates the model first if it isn't there; `name` may be left empty. An identical one that exists is fine, a
  // different one is ALREADY_EXISTS.
  std::shared_ptr<const v1::ModelSpec> create;
  // How long Join may take, waiting for the server to come up included.
  absl::Duration join_timeout = absl::Minutes(1);
  // How long the server may be out of reach, or silent in a call, before the call gives up with UNAVAILABLE. Waiting
  // for other workers does not count: the server gives a sign of life meanwhile.
  absl::Duration rpc_timeout = absl::Minutes(1);
  Transport transport = Transport::kAuto;
  Wire wire = Wire::kFloat32;
  // From a std::stop_source: its request_stop ends Join, exchanges and RunWorker with CANCELLED, those under way and
  // all later ones. It may take two seconds where the server is stopped.
  std::stop_token stop;
  // Told of waiting for the server, reconnects, retries, failed heartbeats and refused reports, from any thread, never
  // under a lock. It may call the worker, but for an exchange within an exchange (FAILED_PRECONDITION).
  std::function<void(absl::string_view)> on_event;
};

// Thread-safe, but for one exchange at a time: Pull, Commit, Exchange and Initialize exclude each other, a second
// caller waits for the first within its own timeout. A call whose commit found no answer leaves it to the next one to
// finish that first, within its own timeout.
//
// It is of the process that joined. In a child forked from that every call is FAILED_PRECONDITION, and its destruction
// tells nobody: fork first, then join in the child. Nor can a process join that was forked while its parent had a
// worker or an Admin.
//
// If the server will not have this worker any more (a newer incarnation, another model of that name, another daemon),
// the call under way and all later ones return that (ABORTED, NOT_FOUND), and on_event is told once. A Window and
// RunWorker end at the next step.
class Worker : public Exchanger {
 public:
  // Errors:
  //   INVALID_ARGUMENT   an option is malformed or contradicts another one, or the server refuses the spec
  //   NOT_FOUND          no such model, and no spec to create it
  //   ALREADY_EXISTS     the model exists with another spec
  //   ABORTED            a newer incarnation of this worker has joined
  //   CANCELLED          `stop` was requested
  //   DEADLINE_EXCEEDED  the server did not come up within join_timeout
  //   RESOURCE_EXHAUSTED  the server has as many models or workers as it may
  //   FAILED_PRECONDITION  this process was forked while its parent was connected
  //   UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED  there is no shared memory, and the transport is kShm
  static absl::StatusOr<std::unique_ptr<Worker>> Join(WorkerOptions options);

  // Leaves if nobody did; never blocks longer than a second.
  ~Worker() override;

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // As the server described it at the join. For an ensemble it is this worker's own member, NAME/i.
  const v1::ModelInfo& model() const;
  uint64_t incarnation() const;

  // What exchanges go over at the moment: kGrpc or kShm. It changes from kShm to kGrpc if the shared memory was lost
  // in a break and the server has none any more. Thread-safe.
  Transport transport() const;
  // And as what: WorkerOptions::wire over kGrpc, kFloat32 over kShm. Thread-safe.
  Wire wire() const;

  // Makes `center` the model's center, unless it has one: ALREADY_EXISTS then if it differs, OK if it is the same or if
  // the center has already moved on from it.
  absl::Status Initialize(absl::Span<const float> center, absl::Duration timeout);

  absl::StatusOr<Exchanged> Pull(absl::Span<float> center, absl::Duration timeout) override;
  absl::StatusOr<Exchanged> Commit(absl::Span<const float> update, absl::Duration timeout) override;
  absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> center,
                                     absl::Duration timeout) override;
  void Cancel() override;
  // Takes back a Cancel, unless `stop` was requested: later calls work again. To be called while no other call is under
  // way.
  void Resume();
  absl::Status ended() const override;
  CommitState last_commit() const override;
  absl::Span<float> commit_buffer() override;
  absl::Span<float> center_buffer() override;

  // Adds to this worker's history on the server. Records queue here and travel with the heartbeats, at the latest with
  // Leave. Faster than they are sent it holds the caller up; while the server is away the oldest are dropped instead.
  //   INVALID_ARGUMENT     a step has not as many metrics as there are names, and nothing was kept; or the server has
  //                        refused the last report (state in history(), and on_event is told)
  //   FAILED_PRECONDITION  the worker has left
  absl::Status Report(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps);
  // After a call whose commit's state is kUnknown: adds the steps once a later call, or Leave, finds that it was
  // applied, and never if it was not.
  void ReportOnceApplied(const std::vector<std::string>& metric_names, const std::vector<StepResult>& steps);
  HistoryState history() const;
  // Of the last step of a MakeWindow's: WindowOptions::last_step. Not thread-safe.
  int64_t* last_step();

  // Tells the server that this worker is done, so that nobody waits for it, and takes `timeout` or rpc_timeout at most.
  // `error`: why it failed, if it did. Later calls return FAILED_PRECONDITION. Idempotent; nothing cancels it.
  absl::Status Leave(absl::string_view error = "", absl::Duration timeout = absl::Seconds(10));

  // The memory of commit_buffer and center_buffer, which stay good for as long as it lives; nullopt if there is none.
  // Only destruction may follow, and no other call may be under way.
  std::optional<Segment> TakeBuffers();

 private:
  class Impl;
  explicit Worker(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // the heartbeats' thread keeps it, too
};

// The windows of a training loop of one's own, with the model's algorithm, which must be linked in or loaded as a
// plugin. `parameters`: spans over the model's parameters, in its tensor order; if the model has no center they are
// made that. Steps go to the worker's history, with the metrics of these names. The worker must outlive it, and
// exchange nothing else meanwhile. Errors: those of Initialize and Window::Create; NOT_FOUND for the algorithm;
// INVALID_ARGUMENT if the parameters are not as many as the model's.
absl::StatusOr<std::unique_ptr<Window>> MakeWindow(Worker* worker, const std::vector<absl::Span<float>>& parameters,
                                                   WindowOptions options, std::vector<std::string> metric_names = {});

// Everything a worker process does: joins, initializes the center with the model's own parameters if it is the first,
// trains with the model's algorithm, reports history, and leaves, with the error if there was one. The algorithm named
// by the server must be linked in or loaded as a plugin. Errors: those of Join and TrainLoop::Run. `summary`, if given,
// tells how far it came also if it failed.
// `on_joined`, if given, receives the worker and its loop before training starts, for Cancel, and two null pointers
// when they are about to go.
absl::StatusOr<TrainSummary> RunWorker(const WorkerOptions& worker_options, const TrainOptions& train_options,
                                       Trainable* model, BatchSource* source,
                                       const std::function<void(Worker*, TrainLoop*)>& on_joined = nullptr,
                                       TrainSummary* summary = nullptr);

}  // namespace paramd

#endif  // PARAMD_CLIENT_WORKER_H_
