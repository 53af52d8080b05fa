// Sets Abseil flags from a command line, without ending the process over a mistake in it.
#ifndef PARAMD_FLAGS_COMMAND_LINE_H_
#define PARAMD_FLAGS_COMMAND_LINE_H_

#include <string>

#include "absl/status/status.h"

namespace paramd {

// Sets the flags named by arguments 1 to argc − 1: --name=value, --name value, and --name or --noname for a bool.
// A repeated flag that holds a list (std::vector<std::string>) adds to it. Another one replaces the value before, or is
// refused, but for what a flag file has said before.
// --flagfile=FILE stands for the flags in a file, one a line; blank lines and lines that begin with # are skipped.
// INVALID_ARGUMENT for an unknown flag, for a bad, missing or second value, and for an argument that is no flag.
enum class Repeated { kReplaces, kRefused };
absl::Status ParseFlags(int argc, const char* const* argv, Repeated repeated = Repeated::kReplaces);

// Whether one of the arguments is --help.
bool WantsHelp(int argc, const char* const* argv);

// Every flag defined in a file whose path contains `path`, with its help and default, sorted by name.
std::string FlagsHelp(const std::string& path);

}  // namespace paramd

#endif  // PARAMD_FLAGS_COMMAND_LINE_H_
