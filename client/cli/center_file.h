// A model's center as a safetensors file.
#ifndef PARAMD_CLIENT_CLI_CENTER_FILE_H_
#define PARAMD_CLIENT_CLI_CENTER_FILE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/paramd.pb.h"
#include "state/safetensors.h"

namespace paramd::cli {

using Tensors = google::protobuf::RepeatedPtrField<v1::Tensor>;

// The tensors of a file, in the order of their data. INVALID_ARGUMENT if one is not F32, or there is none.
absl::StatusOr<Tensors> TensorsOf(const SafetensorsFile& file);

// The file's tensors, flattened in the order of `tensors`. They must be the same, by name and shape, in any order:
// INVALID_ARGUMENT names the first that is missing, too much, of another shape or not F32.
absl::StatusOr<std::vector<float>> ReadCenter(const SafetensorsFile& file, const Tensors& tensors);

// Writes a center of `model.tensors()`; model, algorithm and version are kept as metadata.
absl::Status WriteCenter(const std::string& path, const v1::ModelSpec& model, int64_t version,
                         absl::Span<const float> center);

// The same, to a stream.
absl::Status WriteCenter(std::ostream* out, const v1::ModelSpec& model, int64_t version,
                         absl::Span<const float> center);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_CENTER_FILE_H_
