// Files that users give: safetensors, flags, tokens, IDX; and a daemon's own log.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/mnist/idx.h"
#include "flags/command_line.h"
#include "security/tokens.h"
#include "state/log.h"
#include "state/model_file.h"
#include "state/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/resealed.h"
#include "tests/fuzz/targets.h"

ABSL_FLAG(bool, fuzz_bool, false, "");
ABSL_FLAG(int, fuzz_int, 0, "");
ABSL_FLAG(std::string, fuzz_text, "", "");
ABSL_FLAG(std::vector<std::string>, fuzz_list, {}, "");
ABSL_FLAG(absl::Duration, fuzz_duration, absl::ZeroDuration(), "");

namespace paramd {
namespace {

// Larger ones take time, and no other way.
constexpr uint64_t kMaxFloats = 1 << 16;

void FuzzSafetensors(std::string_view input) {
  const MemoryFile file(input);
  const auto opened = SafetensorsFile::Open(file.path());
  if (!opened.ok()) return;
  for (const SafetensorsEntry& tensor : opened->tensors()) {
    FUZZ_CHECK(tensor.begin <= tensor.end && tensor.end <= input.size());
    const uint64_t floats = (tensor.end - tensor.begin) / sizeof(float);
    if (floats > kMaxFloats) continue;
    std::vector<float> values(floats);
    opened->Read(tensor, absl::MakeSpan(values)).IgnoreError();
  }
}

void FuzzCheckpoint(std::string_view input) {
  const MemoryFile file(ResealedTensors(input));
  const auto opened = ModelFile::Open(file.path());
  if (!opened.ok()) return;
  opened->Verify().IgnoreError();
  opened->ReadRecord().status().IgnoreError();
  uint64_t floats = 0;
  for (const SafetensorsEntry& tensor : opened->tensors()) floats += (tensor.end - tensor.begin) / sizeof(float);
  if (floats > kMaxFloats) return;
  std::vector<float> values(floats);
  const absl::Span<float> pieces[] = {absl::MakeSpan(values)};
  opened->ReadCenter(pieces).IgnoreError();
  for (size_t i = 0; i < opened->state_vectors(); ++i) opened->ReadState(i, pieces).IgnoreError();
  if (opened->has_sum()) opened->ReadSum(pieces).IgnoreError();
}

void FuzzFlags(std::string_view input) {
  // Devices have no end.
  if (input.find("flagfile") != std::string_view::npos) return;
  const MemoryFile file(input);
  const std::string flag = absl::StrCat("--flagfile=", file.path());
  const char* const arguments[] = {"fuzz", flag.c_str()};
  ParseFlags(2, arguments, Repeated::kRefused).IgnoreError();
}

// Its last line is also a token, and a model's name.
void FuzzTokens(std::string_view input) {
  const absl::string_view text(input.data(), input.size());
  const auto tokens = Tokens::Parse(text);
  const absl::string_view last = text.substr(text.rfind('\n') + 1);
  Covers(text, last);
  if (!tokens.ok()) return;
  for (const Grant& grant : tokens->Find(last)) {
    FUZZ_CHECK(!grant.token.empty() && grant.role != Role::kAnybody && !grant.models.empty());
    Covers(grant.models, last);
  }
}

// Its first byte is the rank.
void FuzzIdx(std::string_view input) {
  if (input.empty()) return;
  const MemoryFile file(input.substr(1));
  const int rank = static_cast<unsigned char>(input[0]) % 4;
  const auto array = mnist::ReadIdx(file.path(), rank);
  if (!array.ok()) return;
  FUZZ_CHECK(array->shape.size() == static_cast<size_t>(rank));
  int64_t values = 1;
  for (const int64_t dimension : array->shape) values *= dimension;
  FUZZ_CHECK(array->values.size() == static_cast<size_t>(values));
}

// Its first byte says whether the checksums are made right; then the bytes of the one segment that there is.
void FuzzLog(std::string_view input) {
  if (input.empty()) return;
  const std::string bytes = input[0] % 2 != 0 ? ResealedSegment(input.substr(1)) : std::string(input.substr(1));
  static const std::string folder = [] {
    std::string pattern = std::filesystem::temp_directory_path() / "paramd_fuzz_XXXXXX";
    FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr);
    return pattern;
  }();
  const std::string segment = folder + "/0000000001.log";
  std::ofstream(segment, std::ios::binary) << bytes;
  uint64_t last = 0;
  const auto state = Log::Read(
      folder,
      [&](const LogRecord& record) {
        FUZZ_CHECK(record.position > last);
        FUZZ_CHECK(record.head.size() + record.payload.size() <= input.size());
        last = record.position;
        return absl::OkStatus();
      },
      nullptr);
  if (state.ok()) FUZZ_CHECK(state->bytes <= input.size());
  std::filesystem::remove(segment);
}

const FuzzTargetRegistration safetensors("safetensors", FuzzSafetensors);
const FuzzTargetRegistration checkpoint("checkpoint", FuzzCheckpoint);
const FuzzTargetRegistration flags("flags", FuzzFlags);
const FuzzTargetRegistration tokens("tokens", FuzzTokens);
const FuzzTargetRegistration idx("idx", FuzzIdx);
const FuzzTargetRegistration log("log", FuzzLog);

}  // namespace
}  // namespace paramd
