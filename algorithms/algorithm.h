// The two halves of an algorithm, and how it names itself. One algorithm is one file: algorithms/NAME.cc holds a
// ServerHalf, a WorkerHalf and one REGISTER_ALGORITHM; see downpour.cc for the smallest one and docs/algorithms.md
// for the mathematics.
//
// Words: θ is the center, W a worker's parameters, W₁ its parameters right after its last pull.
#ifndef PARAMD_ALGORITHMS_ALGORITHM_H_
#define PARAMD_ALGORITHMS_ALGORITHM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paramd {

// Changes whenever a plugin built against the old headers would misbehave with the new ones.
inline constexpr int kAlgorithmInterfaceVersion = 3;

// One hyperparameter that an algorithm takes, with its inclusive range.
struct HyperparameterSpec {
  std::string name;
  double default_value = 0;
  double min = 0;
  double max = 0;
  std::string description;
};

// Every hyperparameter of a model with its value.
using Hyperparameters = std::map<std::string, double>;

// What the server knows of a commit when it merges it.
struct CommitInfo {
  int64_t version = 0;       // of the center that it is merged into
  int64_t base_version = 0;  // the version the worker last pulled
  int64_t staleness = 0;     // version - base_version, >= 0
};

// What the server knows of a round when it finishes it.
struct RoundInfo {
  int64_t commits = 1;  // that were merged in it, >= 1
  int64_t before = 0;   // rounds that the center has finished before this one
};

// A piece of one commit: spans of equal length over the same parameters. None aliases `sum`.
struct MergePiece {
  absl::Span<const float> commit;  // what the worker sent: δ or W
  absl::Span<const float> center;  // θ
  absl::Span<const float> base;    // θ at the worker's last pull; empty unless needs_base()
  absl::Span<float> sum;           // in: the contributions merged so far in this round; out: with this commit's
};

// A piece of the center at the end of a round. `next` may be the same memory as `center`, and never overlaps it
// otherwise: write next[i] from center[i] and nothing further ahead.
struct FinishPiece {
  absl::Span<const float> center;        // θ before the round
  absl::Span<const float> sum;           // Σ of the round's contributions
  absl::Span<float> next;                // out: θ after the round
  std::vector<absl::Span<float>> state;  // in and out: the state vectors, as many as state_vectors()
};

// How commits become the new center. A round is one commit, or with consistency `sync` one of every live worker. A
// model calls Merge over every piece of every commit, and Finish over every piece at the end of the round. The calls of
// one commit or of one round may run on several threads at once, for different pieces; all else of a model is serial.
//
// Invariants that the server relies on: Merge and Finish treat each parameter alone and the same in whatever pieces
// they come; they write to nothing but their piece. What has to be remembered is in state vectors, or follows from the
// number of the round: a commit that turns out to be bad is dropped even after it was merged and finished, and then its
// pieces are forgotten. A half takes no locks, does no I/O and does not log.
//
// For speed, loop over data() or an Eigen map: a hardened Abseil checks every index into a span, and then nothing is
// vectorised. kernel.h has what makes a loop faster still.
class ServerHalf {
 public:
  virtual ~ServerHalf() = default;

  // Vectors of the center's shape that the center keeps for this half, all zero at first.
  virtual int state_vectors() const { return 0; }

  // Whether Merge reads the center that the committing worker last pulled. The server then pins one snapshot a worker.
  virtual bool needs_base() const { return false; }

  // Whether an exchange answers with the center as it was before the commit (elastic averaging), in the same atomic
  // step, rather than as it is after.
  virtual bool answers_before_commit() const { return false; }

  // Whether every worker trains a center of its own (published as NAME/0 ... NAME/n-1).
  virtual bool own_centers() const { return false; }

  // sum += what this commit contributes. By default the commit itself.
  virtual void Merge(const CommitInfo& commit, const MergePiece& piece) const;

  // next = the center after the round. By default θ + Σ.
  virtual void Finish(const RoundInfo& round, const FinishPiece& piece) const;
};

// When a worker exchanges.
enum class ExchangePoint { kWindow, kEpoch, kNever };

// The worker's half. Not thread-safe; the training loop calls it from one thread, or under one lock.
class WorkerHalf {
 public:
  virtual ~WorkerHalf() = default;

  virtual ExchangePoint exchange_point() const { return ExchangePoint::kWindow; }

  // MakeCommit and Absorb get the parameters in pieces, from first to last: spans of equal length over the same
  // parameters, each of which is treated alone.

  // Writes what to commit. `minibatches` >= 1 is λ, the number trained since the last exchange. `commit` may be the
  // same memory as `pulled`.
  virtual void MakeCommit(int64_t minibatches, absl::Span<const float> parameters, absl::Span<const float> pulled,
                          absl::Span<float> commit) = 0;

  // Whether MakeCommit commits the parameters themselves. The loop then sends them from where they are, and neither
  // calls MakeCommit nor keeps W₁.
  virtual bool commits_parameters() const { return false; }

  // The answer has arrived: makes W from θ. By default W ← θ.
  virtual void Absorb(absl::Span<const float> center, absl::Span<float> parameters);

  // Around every local step of the model's own optimizer, with all parameters: in one span or several, from first to
  // last, the same ones each time.
  virtual void BeforeStep(absl::Span<const absl::Span<float>> /*parameters*/) {}
  virtual void AfterStep(absl::Span<const absl::Span<float>> /*parameters*/) {}
};

// An algorithm as the registry holds it.
struct Algorithm {
  std::string name;
  std::vector<std::string> aliases;
  std::string description;  // one line
  std::string default_consistency = "async";
  // Defaults of the two hyperparameters that every model has: λ, and the worker optimizer's learning rate (η). Deltas
  // that are divided by λ want a larger one than plain deltas.
  int default_communication_window = 10;
  double default_learning_rate = 0.1;
  std::vector<HyperparameterSpec> hyperparameters;  // its own
  // Optional: checks what ranges can't say, a product of two for example. Gets every hyperparameter, each within its
  // range. An error says which values are wrong, why, and what to change.
  std::function<absl::Status(const Hyperparameters&)> validate;
  // Both get every hyperparameter, checked against the ranges and by `validate`. make_server is null for an algorithm
  // that has no server (single).
  std::function<std::unique_ptr<ServerHalf>(const Hyperparameters&)> make_server;
  std::function<std::unique_ptr<WorkerHalf>(const Hyperparameters&)> make_worker;
};

}  // namespace paramd

#endif  // PARAMD_ALGORITHMS_ALGORITHM_H_
