// Files of tensors in the safetensors format of Hugging Face: eight bytes of header length, little-endian; a JSON
// header that may end in spaces; then the tensors' data, whose places in the header count from the data's begin.
// Source: https://github.com/huggingface/safetensors#format
#ifndef PARAMD_CLIENT_CLI_SAFETENSORS_H_
#define PARAMD_CLIENT_CLI_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/safetensors_header.h"

namespace paramd::cli {

// A file that is open for reading. Nothing in it is trusted: Open checks the whole header, and every tensor lies inside
// the file. A pipe is read to its end first, into memory. Thread-safe.
class SafetensorsFile {
 public:
  // "-": standard input. Errors name the file, the tensor if there is one, and the cause:
  //   NOT_FOUND, PERMISSION_DENIED, ...   the file can't be opened or read
  //   INVALID_ARGUMENT                    it is a directory, or not in the format
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  ~SafetensorsFile();

  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;

  const std::string& path() const { return path_; }                                 // or "standard input"
  const std::vector<SafetensorsEntry>& tensors() const { return header_.tensors; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Reads one of tensors(), bit by bit. INVALID_ARGUMENT if it is not F32 or `values` has another length; other codes
  // if reading fails.
  absl::Status Read(const SafetensorsEntry& tensor, absl::Span<float> values) const;

 private:
  SafetensorsFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status Prepare(bool standard_input);
  absl::Status ReadHeader();
  // Of what can only be read once: that so many bytes of it are there, or all.
  absl::Status Fill(uint64_t bytes);
  absl::Status ReadBytes(uint64_t offset, char* bytes, uint64_t size) const;

  std::string path_;
  int descriptor_;
  int source_ = -1;           // of a pipe, what is to be copied to descriptor_; -1: nothing
  uint64_t bytes_ = 0;        // that the file has, or that were copied
  uint64_t data_offset_ = 0;  // of the data, in the file
  SafetensorsHeader header_;
};

// A tensor to write.
struct SafetensorsTensor {
  std::string name;
  std::vector<int64_t> shape;
  absl::Span<const float> values;
};

// Writes tensors as F32, in this order, as a WholeFile. INVALID_ARGUMENT for a name that the format can't hold, a name
// that comes twice, or values that don't fit their shape; other codes if writing fails.
absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// The same, to a stream.
absl::Status WriteSafetensors(std::ostream* out, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_SAFETENSORS_H_
