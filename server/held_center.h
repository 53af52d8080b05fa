// A center that is held on a worker's behalf.
#ifndef PARAMD_SERVER_HELD_CENTER_H_
#define PARAMD_SERVER_HELD_CENTER_H_

#include <memory>

#include "server/budget.h"
#include "server/center.h"

namespace paramd {

// With the room that it takes. Shared by whoever sends it and by the model, if that keeps it for a retry: the last one
// gives the room back.
struct HeldCenter {
  std::shared_ptr<const Snapshot> snapshot;
  mutable Reservation room;  // empty: counted elsewhere
};

}  // namespace paramd

#endif  // PARAMD_SERVER_HELD_CENTER_H_
