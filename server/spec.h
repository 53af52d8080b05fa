// A model's specification, checked.
#ifndef PARAMD_SERVER_SPEC_H_
#define PARAMD_SERVER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/registry.h"
#include "proto/paramd.pb.h"

namespace paramd {

struct Consistency {
  enum Mode { kAsync, kBounded, kSync };
  Mode mode = kAsync;
  uint64_t bound = 0;  // S, in clocks, of kBounded
};

// "async", "bounded:S" or "sync". INVALID_ARGUMENT says what is allowed.
absl::StatusOr<Consistency> ParseConsistency(const std::string& text);

// A model's specification with everything filled in and checked.
struct CheckedSpec {
  v1::ModelSpec spec;  // canonical: algorithm's own name, every hyperparameter sorted by name, consistency spelled out
  const Algorithm* algorithm = nullptr;
  Hyperparameters hyperparameters;
  Consistency consistency;
  size_t floats = 0;
};

// INVALID_ARGUMENT or NOT_FOUND (of the algorithm) says what is wrong, and what would be right.
absl::StatusOr<CheckedSpec> CheckSpec(const v1::ModelSpec& spec, uint64_t max_bytes);

// What differs between two canonical specs, in words; empty if nothing does.
std::string DescribeDifference(const v1::ModelSpec& existing, const v1::ModelSpec& requested);

// "tensor 'dense/kernel' at [3, 17]" for an index into the flattened center.
std::string DescribePosition(const v1::ModelSpec& spec, uint64_t index);

// A tensor as people write it: "dense/kernel [784, 128]".
std::string DescribeTensor(const v1::Tensor& tensor);

// Floats of one tensor, whose shape has been checked.
uint64_t TensorFloats(const v1::Tensor& tensor);

}  // namespace paramd

#endif  // PARAMD_SERVER_SPEC_H_
