// What a daemon keeps on disk.
#ifndef PARAMD_SERVER_STATE_OPTIONS_H_
#define PARAMD_SERVER_STATE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace paramd {

enum class Durability {
  kNone,        // a checkpoint is only written when it is asked for, and at the end
  kCheckpoint,  // every so often
  kJournal,     // and each commit is in the log, on disk, before it is answered
};

// For command lines: none, checkpoint, journal.
bool AbslParseFlag(absl::string_view name, Durability* durability, std::string* error);
std::string AbslUnparseFlag(Durability durability);

struct StateOptions {
  std::string dir;  // empty: nothing is kept
  Durability durability = Durability::kCheckpoint;
  absl::Duration every = absl::Seconds(60);  // between two checkpoints of a model that changes
  uint64_t every_versions = 0;               // also after so many versions; 0: never because of them
  size_t keep = 3;                           // checkpoints of each model
  // A line of `key=value` for the log. On any thread, under no lock. May be null.
  std::function<void(bool error, const std::string& line)> say;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STATE_OPTIONS_H_
