// The folder that a daemon keeps its state in:
//
//   lock                                    held by the daemon that uses it
//   daemon                                  its identity
//   log/                                    see state/log.h
//   models/NAME.ID/NUMBER-VERSION.safetensors   checkpoints of a model, which count up
//
// NAME is the model's name, escaped and cut: what it is exactly is in the files.
#ifndef PARAMD_STATE_STATE_FOLDER_H_
#define PARAMD_STATE_STATE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "state/model_file.h"

namespace paramd {

struct StoredCheckpoint {
  std::string path;
  uint64_t number = 0;
  int64_t version = 0;
  uint64_t bytes = 0;
  absl::Time written;
};

struct StoredModel {
  std::string folder;  // its path
  uint64_t id = 0;
  std::vector<StoredCheckpoint> checkpoints;  // the newest first
};

// Of a folder that is there; nothing is changed. In the order of names.
absl::StatusOr<std::vector<StoredModel>> ListStoredModels(const std::string& state_dir);

// Of a folder that is there: its daemon's. NOT_FOUND, DATA_LOSS; else the system's error.
absl::StatusOr<uint64_t> ReadDaemonId(const std::string& state_dir);

// A part of a path that nothing in it leads out of, and that no file system finds too long.
std::string EscapedName(absl::string_view name);

// Thread-compatible.
class StateFolder {
 public:
  // Makes what is missing. FAILED_PRECONDITION: another daemon has it; DATA_LOSS: its identity can't be read; else the
  // system's error.
  static absl::StatusOr<std::unique_ptr<StateFolder>> Open(const std::string& path,
                                                           const std::function<uint64_t()>& make_id);
  ~StateFolder();

  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const std::string& path() const { return path_; }
  uint64_t daemon_id() const { return daemon_id_; }
  std::string log_folder() const { return path_ + "/log"; }

  // Writes the model's next checkpoint, on the disk when it returns, and then removes all but the last `keep`.
  absl::Status Write(absl::string_view name, const ModelFileContent& content, size_t keep);

  // Removes all checkpoints of the model but the newest, if that is good.
  void KeepNewest(uint64_t id);

  // OK if there is none. On the disk when it returns.
  absl::Status RemoveModel(uint64_t id);

  // The newest first; empty if there is none.
  std::vector<StoredCheckpoint> Checkpoints(uint64_t id) const;

 private:
  StateFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  absl::Status ReadOrMakeIdentity(const std::function<uint64_t()>& make_id);
  // Leftovers of a daemon that was killed.
  absl::Status RemoveUnfinished() const;

  const std::string path_;
  const int lock_;
  uint64_t daemon_id_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_STATE_STATE_FOLDER_H_
