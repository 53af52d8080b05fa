// A model's center from a safetensors file.
#ifndef PARAMD_CLIENT_CLI_CENTER_FILE_H_
#define PARAMD_CLIENT_CLI_CENTER_FILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/paramd.pb.h"
#include "state/model_file.h"

namespace paramd::cli {

using Tensors = google::protobuf::RepeatedPtrField<v1::Tensor>;

// The tensors of a file, in the order of their data. INVALID_ARGUMENT if one is not F32, or there is none.
absl::StatusOr<Tensors> TensorsOf(const ModelFile& file);

// The file's tensors, flattened in the order of `tensors`. They must be the same, by name and shape, in any order:
// INVALID_ARGUMENT names the first that is missing, too much, of another shape or not F32.
absl::StatusOr<std::vector<float>> ReadCenter(const ModelFile& file, const Tensors& tensors);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_CENTER_FILE_H_
