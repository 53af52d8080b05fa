// What of a model's record is as true of another model that goes on from its center.
#ifndef PARAMD_SERVER_PAST_H_
#define PARAMD_SERVER_PAST_H_

#include "absl/status/statusor.h"
#include "state/state.pb.h"

namespace paramd {

// Members, who have left and whom nobody can go on as, with their counts; counts; and histories. INVALID_ARGUMENT: no
// model has such a record.
absl::StatusOr<state::Checkpoint> PastOf(const state::Checkpoint& record);

}  // namespace paramd

#endif  // PARAMD_SERVER_PAST_H_
