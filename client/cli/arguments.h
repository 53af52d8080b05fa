// The command line of a program with verbs: what it may hold is declared in tables, from which the parser's errors and
// the help pages come, too.
#ifndef PARAMD_CLIENT_CLI_ARGUMENTS_H_
#define PARAMD_CLIENT_CLI_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paramd::cli {

struct FlagSpec {
  enum Kind {
    kSwitch,         // --name
    kValue,          // --name=VALUE or --name VALUE
    kOptionalValue,  // --name or --name=VALUE
    kRepeated,       // as kValue, any number of times
    kRequired,       // as kValue, and must be there
  };
  std::string name;         // without the dashes
  std::string placeholder;  // what stands for the value in help
  Kind kind = kSwitch;
  std::string help;
};

struct VerbSpec {
  std::string name;
  std::vector<std::string> operands;  // their names in help; all must be given, but for one in brackets, the last
  std::string summary;                // one line
  std::vector<FlagSpec> flags;
  std::string example;  // one or more command lines
};

// An INVALID_ARGUMENT of the person who typed, which the program answers with exit code 2. A server's is none.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

// What one command line holds.
class Arguments {
 public:
  const std::vector<std::string>& operands() const { return operands_; }

  bool Has(const std::string& flag) const { return values_.count(flag) > 0; }
  // Of a flag that was given once; `fallback` if it was not, or without a value.
  std::string Value(const std::string& flag, const std::string& fallback = "") const;
  const std::vector<std::string>& Values(const std::string& flag) const;

  // Usage errors if the value is no number of at least `min`.
  absl::StatusOr<double> Number(const std::string& flag, double fallback, double min) const;
  absl::StatusOr<int64_t> Integer(const std::string& flag, int64_t fallback, int64_t min) const;

 private:
  friend class ArgumentsParser;
  std::vector<std::string> operands_;
  std::map<std::string, std::vector<std::string>> values_;
};

struct Invocation {
  const VerbSpec* verb = nullptr;  // null: none was named
  bool help = false;               // --help, or `help [VERB]`
  Arguments arguments;
};

// Program, verbs and the flags that go with every verb; --help is there anyway.
struct CommandSpec {
  std::string program;
  std::string summary;
  std::vector<FlagSpec> flags;
  std::vector<VerbSpec> verbs;
};

// Flags may stand anywhere, those of a verb after it; `--` ends them. The result points into `command`. Usage errors
// name the word that is wrong and the nearest right one, and end in the verb's usage.
absl::StatusOr<Invocation> ParseArguments(const CommandSpec& command, const std::vector<std::string>& words);

// The help pages.
std::string CommandHelp(const CommandSpec& command);
std::string VerbHelp(const CommandSpec& command, const VerbSpec& verb);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_ARGUMENTS_H_
