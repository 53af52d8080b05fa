// The three verbs of the data plane, as the training loop uses them. Worker is the real one; tests have others.
#ifndef PARAMD_CLIENT_EXCHANGER_H_
#define PARAMD_CLIENT_EXCHANGER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace paramd {

// What an exchange brought.
struct Exchanged {
  int64_t version = 0;    // of the pulled center; of the center after the commit if nothing was pulled
  int64_t staleness = 0;  // of the commit when it was applied; 0 without one
  // False: the server came back from disk, where it is older than what this worker had pulled, so that the commit was
  // not applied; what was pulled is the center to go on from. After a commit alone: pull before the next one.
  bool applied = true;
};

// What became of a commit.
enum class CommitState {
  kNone,        // there was none
  kApplied,     // the center has it, or will when its round is over
  kNotApplied,  // the center does not have it, and never will
  kUnknown,     // its answer did not arrive; the next call finds out, before it does anything else
};

class Exchanger {
 public:
  virtual ~Exchanger() = default;

  // Each moves the whole center: spans have exactly model().parameters() floats. `timeout` bounds the call, retries and
  // waiting for other workers (bounded, sync) or for initialization included.

  // Reads the center into `center`. Errors: as Exchange.
  virtual absl::StatusOr<Exchanged> Pull(absl::Span<float> center, absl::Duration timeout) = 0;

  // Commits `update` (δ or W, as the model's algorithm wants) and, once that is applied, returns. Errors: as Exchange.
  virtual absl::StatusOr<Exchanged> Commit(absl::Span<const float> update, absl::Duration timeout) = 0;

  // Both in one round trip. `update` and `center` must not overlap. On an error `center` holds nothing useful, and
  // last_commit() says what became of the commit.
  //   INVALID_ARGUMENT     the commit has a wrong length, non-finite values, or values too large for the wire's
  //   encoding;
  //                        nothing was changed
  //   FAILED_PRECONDITION  the center has values too large for the wire's encoding; a commit was applied
  //   UNIMPLEMENTED        the server does not know the wire's encoding
  //   RESOURCE_EXHAUSTED   the server has no memory for it
  //   DEADLINE_EXCEEDED    no answer in time: last_commit() says what became of the commit, which never is applied
  //                        twice
  //   ABORTED              a newer incarnation of this worker has joined, or this is not the model or the daemon any
  //                        more that it joined: stop, or join again
  //   NOT_FOUND            the model is gone
  //   UNAVAILABLE          the server can't be reached, in spite of retries
  //   CANCELLED            Cancel was called
  virtual absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> center,
                                             absl::Duration timeout) = 0;

  // What became of the commit that was given to the last Commit or Exchange. Thread-safe.
  virtual CommitState last_commit() const { return CommitState::kNone; }

  // Two vectors of the center's length that belong to the exchanger, for its whole life, at addresses that stay; empty
  // if it has none. Given as `update` and as `center`, exactly these may spare a copy each. Between calls they are the
  // caller's to use, but not in a forked child.
  //
  // The commit buffer is only read, and only by a call that is given it: what the caller wrote there stays. The center
  // buffer is scratch of every call: it holds a center after a call that was given it, until the next call of any kind;
  // and after one that failed it may still change. A Window takes both for its life.
  virtual absl::Span<float> commit_buffer() { return {}; }
  virtual absl::Span<float> center_buffer() { return {}; }

  // Makes a call that is under way, and all later ones, return CANCELLED. Thread-safe.
  virtual void Cancel() = 0;

  // Why no exchange will work any more, whatever is done: what calls return then; OK otherwise. Quick and thread-safe:
  // a Window asks at each step, so that nobody trains on for nothing.
  virtual absl::Status ended() const { return absl::OkStatus(); }
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_EXCHANGER_H_
