// Files of tensors in the safetensors format of Hugging Face: eight bytes of header length, little-endian; a JSON
// header that may end in spaces; then the tensors' data, whose places in the header count from the data's begin.
// Source: https://github.com/huggingface/safetensors#format
//
// Files that are written here have checksums (CRC-32, zlib's) among their metadata: of each tensor's data, and of
// length and header. Whoever reads one here is told of any byte that has changed since; other readers may pass them
// over.
#ifndef PARAMD_STATE_SAFETENSORS_H_
#define PARAMD_STATE_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "state/safetensors_header.h"

namespace paramd {

// A file that is open for reading. Nothing in it is trusted: Open checks the whole header, and every tensor lies inside
// the file. A pipe is read to its end first, into memory. Thread-safe. DATA_LOSS: a checksum says that it has changed.
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
  // Without the checksums.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  bool has_checksums() const { return has_checksums_; }

  // Reads one of tensors(), bit by bit. INVALID_ARGUMENT if it is not F32 or `values` has another length; other codes
  // if reading fails.
  absl::Status Read(const SafetensorsEntry& tensor, absl::Span<float> values) const;
  // The same of any dtype, to memory that lies in pieces.
  absl::Status Read(const SafetensorsEntry& tensor, absl::Span<const absl::Span<char>> pieces) const;

 private:
  SafetensorsFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status Prepare(bool standard_input);
  absl::Status ReadHeader();
  absl::Status CheckHeader(uint64_t length, std::string text);
  // Of what can only be read once: that so many bytes of it are there, or all.
  absl::Status Fill(uint64_t bytes);
  absl::Status ReadBytes(uint64_t offset, char* bytes, uint64_t size) const;

  std::string path_;
  int descriptor_;
  int source_ = -1;           // of a pipe, what is to be copied to descriptor_; -1: nothing
  uint64_t bytes_ = 0;        // that the file has, or that were copied
  uint64_t data_offset_ = 0;  // of the data, in the file
  SafetensorsHeader header_;
  bool has_checksums_ = false;
};

// A file to write. The places of its tensors follow from their dtypes and shapes.
struct SafetensorsContent {
  SafetensorsHeader header;
  std::vector<absl::string_view> data;  // of all tensors, one after the other, in any pieces
};

// Writes it as a WholeFile. INVALID_ARGUMENT for a name that the format can't hold, a name that comes twice, or data
// that don't fit the shapes; other codes if writing fails.
absl::Status WriteSafetensorsContent(const std::string& path, SafetensorsContent content);

// The same, to a stream.
absl::Status WriteSafetensorsContent(std::ostream* out, SafetensorsContent content);

// A tensor to write.
struct SafetensorsTensor {
  std::string name;
  std::vector<int64_t> shape;
  absl::Span<const float> values;
};

// Writes tensors as F32, in this order. Errors as above.
absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});
absl::Status WriteSafetensors(std::ostream* out, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace paramd

#endif  // PARAMD_STATE_SAFETENSORS_H_
