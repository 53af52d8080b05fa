#include "server/state_options.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace paramd {
namespace {

constexpr std::pair<absl::string_view, Durability> kNames[] = {
    {"none", Durability::kNone}, {"checkpoint", Durability::kCheckpoint}, {"journal", Durability::kJournal}};

}  // namespace

bool AbslParseFlag(absl::string_view name, Durability* durability, std::string* error) {
  const auto found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& each) { return each.first == name; });
  if (found == std::end(kNames)) {
    *error = "use none, checkpoint or journal";
    return false;
  }
  *durability = found->second;
  return true;
}

std::string AbslUnparseFlag(Durability durability) {
  const auto found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& each) { return each.second == durability; });
  return std::string(found->first);
}

}  // namespace paramd
