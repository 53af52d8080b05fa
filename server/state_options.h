// What a daemon keeps on disk.
#ifndef PARAMD_SERVER_STATE_OPTIONS_H_
#define PARAMD_SERVER_STATE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"

namespace paramd {

struct StateOptions {
  std::string dir;                           // empty: nothing is kept
  absl::Duration every = absl::Seconds(60);  // between two checkpoints of a model that changes
  uint64_t every_versions = 0;               // also after so many versions; 0: never because of them
  size_t keep = 3;                           // checkpoints of each model
  // A line of `key=value` for the log. On any thread, under no lock. May be null.
  std::function<void(bool error, const std::string& line)> say;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_STATE_OPTIONS_H_
