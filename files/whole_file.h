// Writing files that others read, own, link to, or made something else of.
#ifndef PARAMD_FILES_WHOLE_FILE_H_
#define PARAMD_FILES_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paramd {

// A file that appears under its path whole or not at all, also if the process is killed meanwhile: it has no name until
// it is published. Links are followed, also one whose file is not there yet. A file that is replaced leaves its mode
// and owner to the new one. Where it can't be replaced (it is a mount of its own, its folder or owner is somebody
// else's) its content is, which is not done in one step. Devices, pipes and descriptors (/dev/stdout, /dev/fd/N) are
// written through as they are. Thread-compatible.
class WholeFile {
 public:
  // Waits for the reader of a pipe. INVALID_ARGUMENT for a folder; else the system's error. All errors begin with the
  // path.
  static absl::StatusOr<WholeFile> Open(const std::string& path);
  ~WholeFile();

  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;

  absl::Status Write(absl::string_view bytes);

  // Now it is there, and on the disk unless that is not asked for. Not to be written to any more.
  absl::Status Publish(bool on_disk = true);

  // What is written to is neither a new file nor the content of one.
  bool special() const { return how_ == kThrough; }
  // Of the file. Closed with this.
  int descriptor() const { return descriptor_; }
  // The path with all links followed.
  const std::string& target() const { return target_; }

 private:
  enum How { kNameless, kNamed, kInPlace, kThrough };

  WholeFile(std::string path, std::string target, How how, int descriptor, std::string temporary = "");
  absl::Status Error(absl::string_view what) const;
  absl::Status Link(const std::string& to) const;
  // False with errno.
  bool TakeOwner() const;
  absl::Status Replace();
  absl::Status CopyToTarget();

  const std::string path_;
  const std::string target_;
  How how_;
  int descriptor_;
  std::string temporary_;  // its path meanwhile; empty: it has none
};

}  // namespace paramd

#endif  // PARAMD_FILES_WHOLE_FILE_H_
