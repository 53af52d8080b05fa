// A daemon's start from what is on disk.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/models.h"
#include "server/state_keeper.h"
#include "state/model_file.h"
#include "state/state_folder.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/resealed.h"
#include "tests/fuzz/targets.h"

namespace paramd {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    path_ = fs::temp_directory_path() / "paramd_fuzz_XXXXXX";
    FUZZ_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { fs::remove_all(path_); }

  // Nothing but these.
  void Fill(const std::string& checkpoint, const state::Checkpoint& record, const std::string& log) const {
    for (const char* const folder : {"/models", "/log"}) fs::remove_all(path_ + folder);
    v1::ModelSpec spec;
    spec.ParseFromString(record.spec());
    const std::string model =
        absl::StrCat(path_, "/models/", EscapedName(spec.name()), ".", absl::Hex(record.id(), absl::kZeroPad16));
    fs::create_directories(model);
    fs::create_directories(path_ + "/log");
    std::ofstream(model + "/1-1.safetensors", std::ios::binary) << checkpoint;
    if (!log.empty()) std::ofstream(path_ + "/log/0000000001.log", std::ios::binary) << log;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Whether a daemon begins with what is there; then it is looked at, used, and written again.
bool Begin(const std::string& path) {
  auto keeper = StateKeeper::Open({.dir = path, .durability = Durability::kJournal, .every = absl::InfiniteDuration()});
  FUZZ_CHECK(keeper.ok());
  ModelsOptions options;
  options.model.recorder = keeper->get();
  options.daemon_id = (*keeper)->daemon_id();
  Models models(options);
  const bool begun = (*keeper)->Start(&models).ok();
  if (begun) {
    for (const v1::ModelInfo& model : models.DescribeAll(/*workers=*/true)) {
      v1::GetHistoryRequest history;
      history.set_model(model.spec().name());
      models.ReadHistory(history).status().IgnoreError();
      v1::JoinRequest join;
      join.set_model(model.spec().name());
      join.set_worker("w");
      join.set_nonce(1);
      models.Join(join).status().IgnoreError();
    }
    models.Tick();
    FUZZ_CHECK((*keeper)->Finish());
  }
  models.Close();
  (*keeper)->StopLog();
  return begun;
}

// A checkpoint, behind its length in two bytes; then the one segment of the log. Checksums are made right.
void FuzzState(std::string_view input) {
  static const Folder folder;
  if (input.size() < 2) return;
  const size_t length = static_cast<unsigned char>(input[0]) | static_cast<unsigned char>(input[1]) << 8;
  input.remove_prefix(2);
  const std::string checkpoint = ResealedTensors(input.substr(0, length));
  const std::string log = length < input.size() ? ResealedSegment(input.substr(length)) : "";
  const MemoryFile file(checkpoint);
  const auto opened = ModelFile::Open(file.path());
  if (!opened.ok()) return;
  const auto record = opened->ReadRecord();
  if (!record.ok()) return;
  folder.Fill(checkpoint, *record, log);
  // What it wrote is as good as what it read.
  if (Begin(folder.path())) FUZZ_CHECK(Begin(folder.path()));
}

const FuzzTargetRegistration registration("state", FuzzState);

}  // namespace
}  // namespace paramd
