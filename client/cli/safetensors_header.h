// The JSON header of a safetensors file.
#ifndef PARAMD_CLIENT_CLI_SAFETENSORS_HEADER_H_
#define PARAMD_CLIENT_CLI_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paramd::cli {

// A tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // in bytes, from the begin of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// The key that is no tensor's.
inline constexpr char kSafetensorsMetadata[] = "__metadata__";

// Read as a stream into these fields: whatever is in it, it takes no more than they do. INVALID_ARGUMENT, without the
// file's name, says what is wrong; names from it come printable. Whether the tensors fill the file is not looked at.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_SAFETENSORS_HEADER_H_
