// The program paramctl, as a function.
#ifndef PARAMD_CLIENT_CLI_PARAMCTL_H_
#define PARAMD_CLIENT_CLI_PARAMCTL_H_

#include <ostream>
#include <string>
#include <vector>

namespace paramd::cli {

// `words`: the command line without the program's name. Returns the exit code: 0 clean, 1 for what went wrong at run
// time, 2 for a command line that makes no sense. Errors go to `err`.
int RunParamctl(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_PARAMCTL_H_
