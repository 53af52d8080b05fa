#include "client/cli/arguments.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace paramd::cli {
namespace {

constexpr char kUsagePayload[] = "paramd/usage";

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

// "; did you mean X?", or nothing if nothing is near.
std::string Suggestion(const std::string& word, const std::vector<std::string>& right) {
  const std::string* nearest = nullptr;
  size_t distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : right) {
    const size_t to_candidate = EditDistance(word, candidate);
    if (to_candidate < std::min(distance, candidate.size())) {
      distance = to_candidate;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean ", *nearest, "?");
}

const FlagSpec& HelpFlag() {
  static const auto& flag = *new FlagSpec{.name = "help", .kind = FlagSpec::kSwitch, .help = "print this and exit"};
  return flag;
}

bool TakesWord(const FlagSpec& flag) { return flag.kind != FlagSpec::kSwitch && flag.kind != FlagSpec::kOptionalValue; }

std::string FlagText(const FlagSpec& flag) {
  switch (flag.kind) {
    case FlagSpec::kSwitch:
      return absl::StrCat("--", flag.name);
    case FlagSpec::kOptionalValue:
      return absl::StrCat("--", flag.name, "[=", flag.placeholder, "]");
    default:
      return absl::StrCat("--", flag.name, "=", flag.placeholder);
  }
}

std::string UsageLine(const CommandSpec& command, const VerbSpec& verb) {
  std::string line = absl::StrCat(command.program, " ", verb.name);
  for (const std::string& operand : verb.operands) absl::StrAppend(&line, " ", operand);
  for (const FlagSpec& flag : verb.flags) {
    const std::string text = FlagText(flag);
    if (flag.kind == FlagSpec::kRequired) {
      absl::StrAppend(&line, " ", text);
    } else {
      absl::StrAppend(&line, " [", text, "]", flag.kind == FlagSpec::kRepeated ? "..." : "");
    }
  }
  return line;
}

std::string Row(const std::string& left, size_t width, const std::string& right) {
  return absl::StrCat("  ", left, std::string(width - left.size() + 2, ' '), right, "\n");
}

std::string FlagRows(const std::vector<FlagSpec>& flags) {
  size_t width = 0;
  for (const FlagSpec& flag : flags) width = std::max(width, FlagText(flag).size());
  std::string rows;
  for (const FlagSpec& flag : flags) rows += Row(FlagText(flag), width, flag.help);
  return rows;
}

std::vector<FlagSpec> WithHelp(std::vector<FlagSpec> flags) {
  flags.push_back(HelpFlag());
  return flags;
}

}  // namespace

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsagePayload).has_value(); }

std::string Arguments::Value(const std::string& flag, const std::string& fallback) const {
  const auto& values = Values(flag);
  return values.empty() ? fallback : values.front();
}

const std::vector<std::string>& Arguments::Values(const std::string& flag) const {
  static const auto& none = *new std::vector<std::string>;
  const auto found = values_.find(flag);
  return found == values_.end() ? none : found->second;
}

absl::StatusOr<double> Arguments::Number(const std::string& flag, double fallback, double min) const {
  if (Values(flag).empty()) return fallback;
  double number = 0;
  if (!absl::SimpleAtod(Value(flag), &number) || !std::isfinite(number) || number < min) {
    return UsageError(absl::StrCat("--", flag, "=", Value(flag), ": not a number of at least ", min));
  }
  return number;
}

absl::StatusOr<int64_t> Arguments::Integer(const std::string& flag, int64_t fallback, int64_t min) const {
  if (Values(flag).empty()) return fallback;
  int64_t number = 0;
  if (!absl::SimpleAtoi(Value(flag), &number) || number < min) {
    return UsageError(absl::StrCat("--", flag, "=", Value(flag), ": not a whole number of at least ", min));
  }
  return number;
}

class ArgumentsParser {
 public:
  ArgumentsParser(const CommandSpec& command, const std::vector<std::string>& words)
      : command_(command), words_(words) {}

  absl::StatusOr<Invocation> Parse() {
    if (const auto status = TakeAll(); !status.ok()) {
      if (invocation_.verb == nullptr) return status;
      return UsageError(
          absl::StrCat(std::string(status.message()), "\nUsage: ", UsageLine(command_, *invocation_.verb)));
    }
    return std::move(invocation_);
  }

 private:
  absl::Status TakeAll() {
    bool flags_ended = false;
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (!flags_ended && word == "--") {
        flags_ended = true;
      } else if (!flags_ended && word.size() > 1 && word[0] == '-') {
        if (auto status = TakeFlag(word); !status.ok()) return status;
      } else if (auto status = TakeWord(word); !status.ok()) {
        return status;
      }
    }
    return CheckComplete();
  }

  const FlagSpec* FindFlag(const std::string& name) const {
    if (name == HelpFlag().name) return &HelpFlag();
    // A verb's own goes before one of the same name that goes with every verb.
    for (const auto* const flags :
         {invocation_.verb == nullptr ? nullptr : &invocation_.verb->flags, &command_.flags}) {
      if (flags == nullptr) continue;
      for (const FlagSpec& flag : *flags) {
        if (flag.name == name) return &flag;
      }
    }
    return nullptr;
  }

  absl::Status UnknownFlag(const std::string& text) const {
    std::vector<std::string> right;
    for (const FlagSpec& flag : WithHelp(command_.flags)) right.push_back("--" + flag.name);
    if (invocation_.verb != nullptr) {
      for (const FlagSpec& flag : invocation_.verb->flags) right.push_back("--" + flag.name);
    }
    return UsageError(absl::StrCat("unknown flag ", text,
                                   invocation_.verb == nullptr ? " before the verb" : " of " + invocation_.verb->name,
                                   Suggestion(text, right)));
  }

  absl::Status TakeFlag(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string text = word.substr(0, equals);
    const FlagSpec* const flag = text.rfind("--", 0) == 0 ? FindFlag(text.substr(2)) : nullptr;
    if (flag == nullptr) return UnknownFlag(text);
    auto& values = invocation_.arguments.values_;
    if (flag->kind != FlagSpec::kRepeated && values.count(flag->name) > 0) {
      return UsageError(absl::StrCat(text, " is given twice"));
    }
    auto& list = values[flag->name];
    if (equals != std::string::npos) {
      if (flag->kind == FlagSpec::kSwitch) return UsageError(absl::StrCat(text, " takes no value"));
      list.push_back(word.substr(equals + 1));
    } else if (TakesWord(*flag)) {
      if (next_ == words_.size()) {
        return UsageError(absl::StrCat(text, " needs a value: ", FlagText(*flag)));
      }
      list.push_back(words_[next_++]);
    }
    if (!list.empty() && list.back().empty()) {
      return UsageError(absl::StrCat(text, " has an empty value: ", FlagText(*flag)));
    }
    if (flag == &HelpFlag()) invocation_.help = true;
    return absl::OkStatus();
  }

  absl::Status TakeWord(const std::string& word) {
    if (invocation_.verb == nullptr && word == "help") {
      invocation_.help = true;
      return absl::OkStatus();
    }
    if (invocation_.verb == nullptr) {
      std::vector<std::string> right;
      for (const VerbSpec& verb : command_.verbs) {
        if (verb.name == word) invocation_.verb = &verb;
        right.push_back(verb.name);
      }
      if (invocation_.verb != nullptr) return absl::OkStatus();
      return UsageError(absl::StrCat("unknown verb '", word, "'", Suggestion(word, right)));
    }
    auto& operands = invocation_.arguments.operands_;
    if (!invocation_.help && operands.size() == invocation_.verb->operands.size()) {
      return UsageError(absl::StrCat("'", word, "' is one word too many"));
    }
    operands.push_back(word);
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    if (invocation_.help || invocation_.verb == nullptr) return absl::OkStatus();
    const VerbSpec& verb = *invocation_.verb;
    const size_t given = invocation_.arguments.operands_.size();
    if (given < verb.operands.size() && verb.operands[given].front() != '[') {
      return UsageError(absl::StrCat(verb.name, " needs a ", verb.operands[given]));
    }
    for (const FlagSpec& flag : verb.flags) {
      if (flag.kind == FlagSpec::kRequired && !invocation_.arguments.Has(flag.name)) {
        return UsageError(absl::StrCat(verb.name, " needs ", FlagText(flag), ": ", flag.help));
      }
    }
    return absl::OkStatus();
  }

  const CommandSpec& command_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  Invocation invocation_;
};

absl::StatusOr<Invocation> ParseArguments(const CommandSpec& command, const std::vector<std::string>& words) {
  return ArgumentsParser(command, words).Parse();
}

std::string CommandHelp(const CommandSpec& command) {
  std::string help = absl::StrCat(command.summary, "\n\nUsage: ", command.program, " [FLAG...] VERB [ARGUMENT...]\n\n");
  size_t width = 0;
  for (const VerbSpec& verb : command.verbs) width = std::max(width, verb.name.size());
  absl::StrAppend(&help, "Verbs:\n");
  for (const VerbSpec& verb : command.verbs) help += Row(verb.name, width, verb.summary);
  absl::StrAppend(&help, "\nFlags, before or after the verb:\n", FlagRows(WithHelp(command.flags)), "\n`",
                  command.program, " help VERB` says more of a verb.\n");
  return help;
}

std::string VerbHelp(const CommandSpec& command, const VerbSpec& verb) {
  std::string help = absl::StrCat(verb.summary, "\n\nUsage: ", UsageLine(command, verb), "\n\n");
  if (!verb.flags.empty()) absl::StrAppend(&help, "Flags:\n", FlagRows(verb.flags), "\n");
  absl::StrAppend(&help, "Flags of every verb:\n", FlagRows(WithHelp(command.flags)), "\nExample:\n");
  for (const auto& line : absl::StrSplit(verb.example, '\n')) absl::StrAppend(&help, "  ", line, "\n");
  return help;
}

}  // namespace paramd::cli
