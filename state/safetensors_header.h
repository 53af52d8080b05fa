// The JSON header of a safetensors file.
#ifndef PARAMD_STATE_SAFETENSORS_HEADER_H_
#define PARAMD_STATE_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paramd {

// A tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // in bytes, from the begin of the data
  uint64_t end = 0;
  std::optional<uint32_t> checksum;  // CRC-32 of its data, in files that have checksums
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// The key that is no tensor's.
inline constexpr char kSafetensorsMetadata[] = "__metadata__";

// Bits of one element; 0 for a dtype that the format doesn't have.
int ElementBits(const std::string& dtype);

// Read as a stream into these fields: whatever is in it, it takes no more than they do. INVALID_ARGUMENT, without the
// file's name, says what is wrong; names from it come printable. Whether the tensors fill the file is not looked at.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json);

}  // namespace paramd

#endif  // PARAMD_STATE_SAFETENSORS_HEADER_H_
