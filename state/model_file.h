// A model as a file in the safetensors format, whose tensors any reader of that format finds. Its metadata say the
// rest: algorithm, hyperparameters, consistency, version, rounds. A checkpoint has further tensors, whose names begin
// with "paramd:" (and with one colon more for as long as a tensor of the model begins so, too):
//
//   paramd:state/0 ...   the algorithm's state vectors, flattened as the center is
//   paramd:sum           of a round that is under way
//   paramd:record        a state.Checkpoint, as bytes
#ifndef PARAMD_STATE_MODEL_FILE_H_
#define PARAMD_STATE_MODEL_FILE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/paramd.pb.h"
#include "state/safetensors.h"
#include "state/state.pb.h"

namespace paramd {

// A vector of a model's length that lies in pieces.
using FloatPieces = std::vector<absl::Span<const float>>;

// What to write. All of it outlives the call.
struct ModelFileContent {
  v1::ModelSpec spec;
  int64_t version = 0;
  int64_t rounds = 0;
  FloatPieces center;                         // empty: it has none yet
  std::vector<FloatPieces> state;             // the algorithm's vectors
  FloatPieces sum;                            // empty: none
  const state::Checkpoint* record = nullptr;  // null: a center alone
};

// INVALID_ARGUMENT: the center doesn't fit the spec; else the system's error.
absl::Status WriteModelFile(const std::string& path, const ModelFileContent& content);
absl::Status WriteModelFile(std::ostream* out, const ModelFileContent& content);

// One that is read. Nothing in it is trusted. Thread-safe.
class ModelFile {
 public:
  // Any safetensors file. INVALID_ARGUMENT: it is none, or what it says of a model makes no sense; DATA_LOSS: it has
  // changed since it was written; else the system's error. All begin with the path.
  static absl::StatusOr<ModelFile> Open(const std::string& path);

  const SafetensorsFile& file() const { return file_; }
  // Of the model's own tensors, in the order of their data.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }

  // Whether it was written by WriteModelFile, and so says the following.
  bool whole() const { return whole_; }
  const v1::ModelSpec& spec() const { return spec_; }  // tensors() as well, unless it has no center
  int64_t version() const { return version_; }
  int64_t rounds() const { return rounds_; }

  size_t state_vectors() const { return state_.size(); }
  bool has_sum() const { return sum_.has_value(); }
  bool has_record() const { return record_.has_value(); }

  // To memory that lies in pieces, which together have the vector's length.
  absl::Status ReadCenter(absl::Span<const absl::Span<float>> pieces) const;
  absl::Status ReadState(size_t vector, absl::Span<const absl::Span<float>> pieces) const;
  absl::Status ReadSum(absl::Span<const absl::Span<float>> pieces) const;
  // INVALID_ARGUMENT if it has none, or it contradicts the file.
  absl::StatusOr<state::Checkpoint> ReadRecord() const;

  // Reads all of it, for its checksums.
  absl::Status Verify() const;

 private:
  explicit ModelFile(SafetensorsFile file) : file_(std::move(file)) {}
  absl::Status Sort();
  absl::Status ReadMetadata();
  absl::Status Error(absl::string_view what) const;
  absl::Status Read(absl::Span<const SafetensorsEntry> tensors, absl::Span<const absl::Span<float>> pieces) const;

  SafetensorsFile file_;
  bool whole_ = false;
  v1::ModelSpec spec_;
  int64_t version_ = 0;
  int64_t rounds_ = 0;
  std::vector<SafetensorsEntry> tensors_;
  std::vector<SafetensorsEntry> state_;
  std::optional<SafetensorsEntry> sum_;
  std::optional<SafetensorsEntry> record_;
};

}  // namespace paramd

#endif  // PARAMD_STATE_MODEL_FILE_H_
