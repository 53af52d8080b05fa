// What happens to models, for those who want to know: the log, metrics, a journal.
#ifndef PARAMD_SERVER_MODEL_EVENT_H_
#define PARAMD_SERVER_MODEL_EVENT_H_

#include <cstdint>
#include <string>

namespace paramd {

struct ModelEvent {
  enum class Kind {
    kCreated,
    kInitialized,
    kJoined,
    kReturned,  // a worker whose lease had run out gave a sign of life
    kLeft,      // `reason`: with this error, if not empty
    kExpired,
    kFenced,  // `incarnation`: the one that is over
    kCommitted,
    kRejected,
    kDiverged,
    kStalled,  // an answer that its worker never acknowledged was given up
    kDeleted,
    kRestored,  // from disk
  };

  Kind kind = Kind::kCreated;
  std::string model;
  uint64_t model_id = 0;
  std::string worker;  // empty: not about one
  uint64_t incarnation = 0;
  int64_t version = 0;  // of the model
  std::string reason;
};

// "created" and so on.
const char* KindName(ModelEvent::Kind kind);

// A line of `key=value`, of values as below.
std::string FormatEvent(const ModelEvent& event);

// What peers have named or written: cut, and escaped if it is more than one plain word.
std::string LogValue(const std::string& text);

class EventSink {
 public:
  virtual ~EventSink() = default;

  // What is not wanted is not even made. Thread-safe, constant.
  virtual bool Wants(ModelEvent::Kind kind) const = 0;

  // Told under no lock, on any thread; two threads may tell in another order than things happened. Must be quick.
  virtual void Tell(const ModelEvent& event) = 0;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODEL_EVENT_H_
