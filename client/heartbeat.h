// What a worker tells the server by itself. Internal to the client.
#ifndef PARAMD_CLIENT_HEARTBEAT_H_
#define PARAMD_CLIENT_HEARTBEAT_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/history_queue.h"
#include "proto/paramd.pb.h"
#include "sync/clock.h"
#include "sync/mutex.h"

namespace paramd {

// Renews the worker's lease, by heartbeats or by reports of its history, from a thread of its own. Thread-safe but for
// Start and Turn.
class Heartbeat {
 public:
  struct Options {
    absl::Duration lease;
    // Calls of the server; each takes until the deadline at most, retries included, and tells nobody.
    std::function<absl::Status(absl::Time deadline, Cancellation*)> beat;
    std::function<absl::Status(const v1::ReportHistoryRequest& report, absl::Time deadline, Cancellation*)> report;
    // The server will not have this worker any more. It is the last thing that happens.
    std::function<void(const absl::Status&)> on_refused;
    std::function<void(absl::string_view)> on_event;
    const Clock* clock = Clock::Steady();
  };
  // `history` must outlive it.
  Heartbeat(Options options, HistoryQueue* history);
  ~Heartbeat();

  // `alive` is kept for as long as the thread runs.
  void Start(std::shared_ptr<void> alive);

  // Nothing begins any more; waits for the end of what is under way, unless that is who calls.
  void Stop();

  // A report may be due.
  void Wake();

  // What the thread does between two waits: what is due. Returns when to come again; InfiniteFuture: never.
  absl::Time Turn();

  // Sends what is queued, once Stop has returned. Errors: those of `report`.
  absl::Status Flush(absl::Time deadline);

 private:
  void Run();
  // One report, if there is one. `*status`: what became of it.
  bool Report(absl::Time deadline, Cancellation* cancellation, absl::Status* status);
  bool stopping() const { return !stop_.status().ok(); }

  const Options options_;
  const absl::Duration third_;  // of the lease
  HistoryQueue* const history_;

  absl::Time last_;   // sign of life that the server has taken
  absl::Time again_;  // nothing is sent before, after a failure
  absl::Status told_;

  Cancellation stop_;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_HEARTBEAT_H_
