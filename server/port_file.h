// The file in which a daemon says where it listens.
#ifndef PARAMD_SERVER_PORT_FILE_H_
#define PARAMD_SERVER_PORT_FILE_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "files/whole_file.h"
#include "sync/mutex.h"

namespace paramd {

// Locked for as long as its daemon lives, by which a file that was left over is known. A path of several daemons is the
// last one's; each removes its own file only. What is no regular file is written through, and stays. Thread-safe.
class PortFile {
 public:
  // Removes a file that a daemon has left there which is no more. Empty: there is no port file.
  explicit PortFile(std::string path);

  // Writes it whole or not at all. A pipe is written to once it has a reader, which is not waited for.
  absl::Status Write(const std::string& line);

  // To be called at the end.
  void Remove();

 private:
  absl::Status WriteLocked(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::string line_ ABSL_GUARDED_BY(mutex_);
  std::optional<WholeFile> file_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_PORT_FILE_H_
