// Has models record to a log that a test looks after.
#ifndef PARAMD_TESTS_SUPPORT_LOG_RECORDER_H_
#define PARAMD_TESTS_SUPPORT_LOG_RECORDER_H_

#include <functional>
#include <memory>
#include <utility>

#include "server/recorder.h"
#include "state/log.h"

namespace paramd::testing {

// Thread-safe.
class LogRecorder : public Recorder {
 public:
  // `log` outlives it.
  explicit LogRecorder(Log* log) : log_(log) {}

  uint64_t Record(const state::Record& record) override {
    return log_->Append(record.SerializeAsString(), {}, nullptr);
  }
  Log* log() const override { return log_; }
  void AwaitDurable(const std::shared_ptr<Model>& /*model*/, std::function<void(const absl::Status&)> done) override {
    done(absl::OkStatus());
  }

 private:
  Log* const log_;
};

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_LOG_RECORDER_H_
