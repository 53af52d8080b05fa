#include "state/state_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "files/whole_file.h"
#include "process/system_call.h"
#include "state/log_segment.h"

namespace paramd {
namespace {

namespace fs = std::filesystem;

// Of a model's name in a path; with all that comes behind it less than the 255 that file systems allow.
constexpr size_t kMaxEscaped = 180;
constexpr char kModels[] = "/models";
constexpr char kSuffix[] = ".safetensors";
// Beginnings of what is not there any more, or not yet (files/whole_file.cc).
constexpr char kRemoved[] = ".removed-";
constexpr char kUnfinished[] = ".paramd-";

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status FileSystemError(const std::string& path, absl::string_view what, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": ", what));
}

// Below a folder that is there. It is on the disk, too.
absl::Status MakeFolder(const std::string& path) {
  // What is in it is nobody else's to read: workers' nonces, too.
  if (mkdir(path.c_str(), 0700) == 0) return SyncFolder(fs::path(path).parent_path());
  return errno == EEXIST ? absl::OkStatus() : SystemError(path, "can't make the folder");
}

// NUMBER-VERSION.safetensors.
bool ParseCheckpointName(absl::string_view name, StoredCheckpoint* checkpoint) {
  if (!absl::ConsumeSuffix(&name, kSuffix)) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &checkpoint->number) &&
         absl::SimpleAtoi(parts[1], &checkpoint->version);
}

std::vector<StoredCheckpoint> ListCheckpoints(const std::string& folder) {
  std::vector<StoredCheckpoint> checkpoints;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    StoredCheckpoint checkpoint{.path = it->path().string()};
    if (!ParseCheckpointName(it->path().filename().string(), &checkpoint)) continue;
    struct stat file {};
    if (stat(checkpoint.path.c_str(), &file) == 0) {
      checkpoint.bytes = static_cast<uint64_t>(file.st_size);
      checkpoint.written = absl::TimeFromTimespec(file.st_mtim);
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  std::sort(checkpoints.begin(), checkpoints.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  return checkpoints;
}

std::string IdText(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

// The id behind the last dot.
bool ParseFolderName(const std::string& name, uint64_t* id) {
  const size_t dot = name.rfind('.');
  return dot != std::string::npos && dot > 0 && name.size() - dot == 17 &&
         absl::SimpleHexAtoi(name.substr(dot + 1), id) && *id != 0;
}

std::string IdentityText(uint64_t id) {
  const std::string text = absl::StrCat("paramd state 1\nid ", IdText(id), "\n");
  const uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return absl::StrCat(text, "checksum ", absl::Hex(static_cast<uint32_t>(checksum), absl::kZeroPad8), "\n");
}

}  // namespace

std::string EscapedName(absl::string_view name) {
  std::string escaped;
  for (const char c : name) {
    const bool plain =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || (c == '.' && !escaped.empty());
    const std::string next =
        plain ? std::string(1, c) : absl::StrCat("%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    if (escaped.size() + next.size() > kMaxEscaped) break;
    escaped += next;
  }
  return escaped;
}

absl::StatusOr<std::vector<StoredModel>> ListStoredModels(const std::string& state_dir) {
  std::vector<StoredModel> models;
  const std::string folder = state_dir + kModels;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    StoredModel model{.folder = it->path().string()};
    if (ParseFolderName(it->path().filename().string(), &model.id)) models.push_back(std::move(model));
  }
  if (error) return FileSystemError(folder, "can't read the folder", error);
  for (StoredModel& model : models) model.checkpoints = ListCheckpoints(model.folder);
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.folder < b.folder; });
  return models;
}

StateFolder::~StateFolder() { close(lock_); }

absl::StatusOr<std::unique_ptr<StateFolder>> StateFolder::Open(const std::string& path,
                                                               const std::function<uint64_t()>& make_id) {
  std::error_code error;
  std::string whole = fs::absolute(path, error).lexically_normal().string();
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  // Its parents are the operator's.
  if (auto status = MakeFolder(whole); !status.ok()) return status;
  const std::string lock_path = whole + "/lock";
  const int lock = RetryInterrupted([&] { return open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); });
  if (lock < 0) return SystemError(lock_path, "can't open");
  std::unique_ptr<StateFolder> folder(new StateFolder(whole, lock));
  // Who can read it can lock it.
  if (fchmod(lock, 0600) != 0) return SystemError(lock_path, "can't keep it to ourselves");
  struct flock request {};
  request.l_type = F_WRLCK;
  if (RetryInterrupted([&] { return fcntl(lock, F_OFD_SETLK, &request); }) != 0) {
    if (errno != EAGAIN && errno != EACCES) return SystemError(lock_path, "can't lock it");
    std::ifstream file(lock_path);
    std::string holder;
    std::getline(file, holder);
    return absl::FailedPreconditionError(absl::StrCat(whole, ": another daemon uses this state",
                                                      holder.empty() ? "" : absl::StrCat(" (process ", holder, ")"),
                                                      "; stop it, or give this one another --state_dir"));
  }
  const std::string process = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock, 0) == 0) static_cast<void>(pwrite(lock, process.data(), process.size(), 0) < 0);  // words only
  if (auto status = folder->ReadOrMakeIdentity(make_id); !status.ok()) return status;
  if (auto status = MakeFolder(whole + kModels); !status.ok()) return status;
  if (chmod((whole + kModels).c_str(), 0700) != 0) return SystemError(whole + kModels, "can't keep it to ourselves");
  if (auto status = folder->RemoveUnfinished(); !status.ok()) return status;
  return folder;
}

absl::StatusOr<uint64_t> ReadDaemonId(const std::string& state_dir) {
  const std::string file = state_dir + "/daemon";
  std::ifstream in(file);
  if (!in) return SystemError(file, "can't read");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar(" \n"));
  uint64_t id = 0;
  if (words.size() < 5 || !absl::SimpleHexAtoi(words[4], &id) || id == 0 || text != IdentityText(id)) {
    return absl::DataLossError(absl::StrCat(
        file,
        ": the daemon's identity can't be read; bring the file back from a backup, or remove it: then workers that "
        "had joined have to join again"));
  }
  return id;
}

absl::Status StateFolder::ReadOrMakeIdentity(const std::function<uint64_t()>& make_id) {
  const auto known = ReadDaemonId(path_);
  if (known.ok()) {
    daemon_id_ = *known;
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(known.status())) return known.status();
  daemon_id_ = make_id();
  auto out = WholeFile::Open(path_ + "/daemon");
  if (!out.ok()) return out.status();
  if (auto status = out->Write(IdentityText(daemon_id_)); !status.ok()) return status;
  if (auto status = out->Publish(); !status.ok()) return status;
  return SyncFolder(path_);
}

absl::Status StateFolder::RemoveUnfinished() const {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::recursive_directory_iterator it(path_ + kModels, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!absl::StartsWith(name, kRemoved) && !absl::StartsWith(name, kUnfinished)) continue;
    unfinished.push_back(it->path());
    it.disable_recursion_pending();
  }
  if (error) return FileSystemError(path_ + kModels, "can't read the folder", error);
  for (const fs::path& path : unfinished) {
    fs::remove_all(path, error);
    if (error) return FileSystemError(path.string(), "can't remove it", error);
  }
  return absl::OkStatus();
}

std::vector<StoredCheckpoint> StateFolder::Checkpoints(uint64_t id) const {
  const auto models = ListStoredModels(path_);
  if (!models.ok()) return {};
  for (const StoredModel& model : *models) {
    if (model.id == id) return model.checkpoints;
  }
  return {};
}

absl::Status StateFolder::Write(absl::string_view name, const ModelFileContent& content, size_t keep) {
  const std::string folder = absl::StrCat(path_, kModels, "/", EscapedName(name), ".", IdText(content.record->id()));
  if (auto status = MakeFolder(folder); !status.ok()) return status;
  std::vector<StoredCheckpoint> checkpoints = ListCheckpoints(folder);
  const uint64_t number = checkpoints.empty() ? 1 : checkpoints.front().number + 1;
  const std::string file = absl::StrCat(folder, "/", absl::Dec(number, absl::kZeroPad8), "-", content.version, kSuffix);
  if (auto status = WriteModelFile(file, content); !status.ok()) return status;
  if (auto status = SyncFolder(folder); !status.ok()) return status;
  // A file that can't be removed costs room only.
  for (size_t i = keep - 1; i < checkpoints.size(); ++i) unlink(checkpoints[i].path.c_str());
  return absl::OkStatus();
}

void StateFolder::KeepNewest(uint64_t id) {
  const std::vector<StoredCheckpoint> checkpoints = Checkpoints(id);
  if (checkpoints.size() < 2) return;
  const auto newest = ModelFile::Open(checkpoints.front().path);
  if (!newest.ok() || !newest->Verify().ok()) return;
  for (size_t i = 1; i < checkpoints.size(); ++i) unlink(checkpoints[i].path.c_str());
}

absl::Status StateFolder::RemoveModel(uint64_t id) {
  const auto models = ListStoredModels(path_);
  if (!models.ok()) return models.status();
  for (const StoredModel& model : *models) {
    if (model.id != id) continue;
    // In one step; what is left of it then goes now, or at the next start.
    const std::string removed = absl::StrCat(path_, kModels, "/", kRemoved, IdText(id));
    if (rename(model.folder.c_str(), removed.c_str()) != 0) return SystemError(model.folder, "can't remove it");
    if (auto status = SyncFolder(path_ + kModels); !status.ok()) return status;
    std::error_code ignored;
    fs::remove_all(removed, ignored);
  }
  return absl::OkStatus();
}

}  // namespace paramd
