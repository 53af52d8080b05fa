// Where a program that starts others finds them, and keeps what they write.
#ifndef PARAMD_EXAMPLES_MNIST_PATHS_H_
#define PARAMD_EXAMPLES_MNIST_PATHS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace paramd {

// A temporary folder, removed with the object.
class Folder {
 public:
  // PREFIX.XXXXXX, where the system keeps such. UNKNOWN, with the system's text, if it can't be made.
  static absl::StatusOr<std::unique_ptr<Folder>> Make(const std::string& prefix);
  ~Folder() { Remove(); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void Remove() const;

  std::string Path(const std::string& name) const;

 private:
  explicit Folder(std::string path);

  const std::string path_;
};

// The file `relative` to the folder of this program.
std::string Beside(const std::string& relative);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_PATHS_H_
