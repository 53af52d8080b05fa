// A model as it is saved.
#ifndef PARAMD_SERVER_MODEL_IMAGE_H_
#define PARAMD_SERVER_MODEL_IMAGE_H_

#include <cstdint>
#include <optional>

#include "server/budget.h"
#include "server/center.h"
#include "state/state.pb.h"

namespace paramd {

// How far a model is, for whoever saves it.
struct SavePoint {
  uint64_t changes = 0;      // of whatever an image has
  uint64_t position = 0;     // in the log, of its last record
  uint64_t recorded = 0;     // of its last one that Recorder::Record was given
  bool initialized = false;  // which only an image has
  int64_t version = 0;
};

// Everything that a model is made of at one version.
struct ModelImage {
  std::optional<Image> image;  // none without a center
  state::Checkpoint record;
  SavePoint at;
  Reservation room;  // empty: it is in nobody's budget
};

}  // namespace paramd

#endif  // PARAMD_SERVER_MODEL_IMAGE_H_
