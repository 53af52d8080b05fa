#include "examples/mpi/ranks.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace paramd {
namespace {

struct Family {
  absl::string_view rank;
  absl::string_view size;
};

// A batch system is around the other launchers far more often than within them.
constexpr Family kFamilies[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};

std::optional<std::string> Value(absl::string_view environment, absl::string_view name) {
  for (absl::string_view entry : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&entry, name) && absl::ConsumePrefix(&entry, "=")) return std::string(entry);
  }
  return std::nullopt;
}

bool Same(const std::string& a, const std::string& b, const Family& family) {
  return Value(a, family.rank) == Value(b, family.rank) && Value(a, family.size) == Value(b, family.size);
}

// Empty if it can't be read.
std::string ReadProc(pid_t pid, const char* name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/", name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

pid_t Parent(pid_t pid) {
  // "PID (NAME) STATE PARENT ...", and a name may hold anything.
  const std::string stat = ReadProc(pid, "stat");
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 1), ' ');
  pid_t parent = 0;
  return fields.size() > 2 && absl::SimpleAtoi(fields[2], &parent) ? parent : 0;
}

}  // namespace

absl::StatusOr<Ranks> RanksFrom(const std::vector<std::string>& environments) {
  if (environments.empty()) return Ranks();
  const std::string& own = environments.front();
  std::vector<Family> families;
  for (const Family& family : kFamilies) {
    if (Value(own, family.rank).has_value() && Value(own, family.size).has_value()) families.push_back(family);
  }
  if (families.empty()) {
    for (const Family& family : kFamilies) {
      const auto rank = Value(own, family.rank);
      if (!rank.has_value()) continue;
      return absl::InvalidArgumentError(absl::StrCat("the environment says ", family.rank, "=", *rank, ", but not ",
                                                     family.size, "; set both, or neither for one rank alone"));
    }
    return Ranks();
  }
  for (size_t i = 1; i < environments.size() && families.size() > 1; ++i) {
    std::vector<Family> inner;
    for (const Family& family : families) {
      if (!Same(own, environments[i], family)) inner.push_back(family);
    }
    if (inner.empty()) continue;
    families = std::move(inner);
    break;
  }
  const Family& family = families.front();
  const std::string rank_text = *Value(own, family.rank), size_text = *Value(own, family.size);
  Ranks ranks{.source = absl::StrCat(family.rank, "=", rank_text, " and ", family.size, "=", size_text)};
  if (!absl::SimpleAtoi(rank_text, &ranks.rank) || !absl::SimpleAtoi(size_text, &ranks.size) || ranks.rank < 0 ||
      ranks.rank >= ranks.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment says ", ranks.source, "; a rank is at least 0 and below the size"));
  }
  return ranks;
}

absl::StatusOr<Ranks> RanksFromEnvironment() {
  std::vector<std::string> environments(1);
  for (char** entry = environ; *entry != nullptr; ++entry) absl::StrAppend(&environments[0], *entry, std::string(1, 0));
  // Up to the first one that is another user's, such as a batch system's daemon.
  for (pid_t pid = getppid(); pid > 0; pid = Parent(pid)) {
    environments.push_back(ReadProc(pid, "environ"));
    if (environments.back().empty()) break;
  }
  return RanksFrom(environments);
}

}  // namespace paramd
