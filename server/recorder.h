// Where models record what must outlive the daemon.
#ifndef PARAMD_SERVER_RECORDER_H_
#define PARAMD_SERVER_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "state/log.h"
#include "state/state.pb.h"

namespace paramd {

class Model;

// Thread-safe.
class Recorder {
 public:
  virtual ~Recorder() = default;

  // Appends it to the log, soon, and returns its position, which is greater than any before. Quick: to be called under
  // the model's lock, so that the order of records is that of what happened.
  virtual uint64_t Record(const state::Record& record) = 0;

  // The log itself, for what has floats.
  virtual Log* log() const = 0;

  // Calls `done` when all that has happened to the model so far but its commits is on disk; at the latest after a
  // checkpoint. Or with why it is not. At once, or on another thread; under no lock.
  virtual void AwaitDurable(const std::shared_ptr<Model>& model, std::function<void(const absl::Status&)> done) = 0;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_RECORDER_H_
