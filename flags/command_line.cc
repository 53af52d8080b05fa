#include "flags/command_line.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace paramd {

namespace {

// A flag file that names itself, or another that does, would not end.
constexpr int kMaxDepth = 8;

absl::StatusOr<std::vector<std::string>> ReadFlagFile(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> arguments;
  std::string line;
  while (std::getline(file, line)) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty() && stripped.front() != '#') arguments.emplace_back(stripped);
  }
  if (!file.eof()) return absl::InvalidArgumentError(absl::StrCat("can't read the flag file '", path, "'"));
  return arguments;
}

// Why a flag can't have a value, and what to write.
std::string Hint(const absl::CommandLineFlag& flag, const std::string& error) {
  if (flag.IsOfType<absl::Duration>()) return ": write a number with its unit, as in 30s, 500ms or 2m";
  // Abseil's text ends in a full stop, or is empty.
  return error.empty() ? "" : ": " + error;
}

// `seen`: in this list, or in one that it is part of.
absl::Status Parse(const std::vector<std::string>& arguments, int depth, Repeated rule, std::set<std::string>* seen) {
  std::set<std::string> here;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (!absl::ConsumePrefix(&argument, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", arguments[i], "' is no flag, and nothing else is expected; --help lists the flags"));
    }
    if (absl::ConsumePrefix(&argument, "flagfile=")) {
      if (depth == kMaxDepth) return absl::InvalidArgumentError("flag files that name flag files without end");
      auto file = ReadFlagFile(std::string(argument));
      if (!file.ok()) return file.status();
      if (auto status = Parse(*file, depth + 1, rule, seen); !status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(argument, ": ", status.message()));
      }
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::string value;
    if (flag == nullptr && equals == absl::string_view::npos && absl::ConsumePrefix(&argument, "no")) {
      flag = absl::FindCommandLineFlag(argument);
      if (flag != nullptr && !flag->IsOfType<bool>()) flag = nullptr;
      value = "false";
    } else if (equals != absl::string_view::npos) {
      value = std::string(argument.substr(equals + 1));
    } else if (flag != nullptr && flag->IsOfType<bool>()) {
      value = "true";
    } else if (flag != nullptr) {
      if (++i == arguments.size()) return absl::InvalidArgumentError(absl::StrCat("flag --", name, " wants a value"));
      value = arguments[i];
    }
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name, "; --help lists the flags"));
    }
    const bool repeated = !seen->insert(std::string(flag->Name())).second;
    const bool twice = !here.insert(std::string(flag->Name())).second;
    if (flag->IsOfType<std::vector<std::string>>()) {
      if (repeated && !flag->CurrentValue().empty()) value = absl::StrCat(flag->CurrentValue(), ",", value);
    } else if (twice && rule == Repeated::kRefused) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --", flag->Name(), " is given twice, and can have one value only; remove one of them"));
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " can't be '", value, "'", Hint(*flag, error)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseFlags(int argc, const char* const* argv, Repeated repeated) {
  std::set<std::string> seen;
  return Parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), 0, repeated, &seen);
}

bool WantsHelp(int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + argc, [](std::string_view argument) { return argument == "--help"; });
}

std::string FlagsHelp(const std::string& path) {
  std::map<std::string, std::string> entries;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), path)) continue;
    entries[std::string(name)] =
        absl::StrCat("  --", name, "\n      ", flag->Help(), "; default: '", flag->DefaultValue(), "'\n");
  }
  std::string help;
  for (const auto& [name, entry] : entries) help += entry;
  return help;
}

}  // namespace paramd
