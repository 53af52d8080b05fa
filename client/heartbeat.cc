#include "client/heartbeat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/retry.h"

namespace paramd {
namespace {

// Between a failure, which has taken its own retries, and the next try.
constexpr absl::Duration kPause = absl::Seconds(1);

// The server knows another worker of that name, another model, another daemon, or none.
bool IsRefusal(const absl::Status& status) { return absl::IsAborted(status) || absl::IsNotFound(status); }

}  // namespace

Heartbeat::Heartbeat(Options options, HistoryQueue* history)
    : options_(std::move(options)),
      third_(options_.lease / 3),
      history_(history),
      last_(options_.clock->Now()),
      again_(absl::InfinitePast()) {}

Heartbeat::~Heartbeat() {
  Stop();
  // Its last owner was a callback on the thread itself.
  if (thread_.joinable()) thread_.detach();
}

void Heartbeat::Start(std::shared_ptr<void> alive) {
  MutexLock lock(&mutex_);
  thread_ = std::thread([this, alive = std::move(alive)] { Run(); });
}

void Heartbeat::Stop() {
  stop_.Cancel();
  Wake();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void Heartbeat::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.SignalAll();
}

void Heartbeat::Run() {
  { const MutexLock started(&mutex_); }
  while (true) {
    const absl::Time next = Turn();
    MutexLock lock(&mutex_);
    while (!woken_ && options_.clock->Now() < next) options_.clock->Wait(&changed_, &mutex_, next);
    if (stopping()) return;
    woken_ = false;
  }
}

absl::Time Heartbeat::Turn() {
  if (options_.clock->Now() < again_) return again_;
  while (!stopping()) {
    const absl::Time now = options_.clock->Now();
    absl::Status status;
    // A report renews the lease, too.
    const bool reported = history_->due() <= now && Report(now + third_, &stop_, &status);
    if (!reported) {
      if (now < last_ + third_) return std::min(last_ + third_, history_->due());
      status = options_.beat(now + third_, &stop_);
    }
    if (stopping()) break;
    if (IsRefusal(status)) {
      options_.on_refused(status);
      break;
    }
    if (status.ok()) last_ = options_.clock->Now();
    const bool lost = !status.ok() && (!reported || IsUnreachable(status));
    if (lost && status != told_) options_.on_event(absl::StrCat("heartbeat: ", status.message()));
    told_ = status;
    if (lost) return again_ = options_.clock->Now() + kPause;
  }
  return absl::InfiniteFuture();
}

bool Heartbeat::Report(absl::Time deadline, Cancellation* cancellation, absl::Status* status) {
  const v1::ReportHistoryRequest* const report = history_->Next();
  if (report == nullptr) return false;
  *status = options_.report(*report, deadline, cancellation);
  history_->Sent(*status, IsUnreachable(*status) || absl::IsCancelled(*status));
  return true;
}

absl::Status Heartbeat::Flush(absl::Time deadline) {
  Cancellation never;
  absl::Status status;
  while (Report(deadline, &never, &status)) {
    if (IsUnreachable(status) || absl::IsCancelled(status) || IsRefusal(status)) return status;
  }
  return absl::OkStatus();
}

}  // namespace paramd
