#include <signal.h>

#include <iostream>
#include <string>
#include <vector>

#include "client/cli/paramctl.h"

int main(int argc, char** argv) {
  // What is written past `ulimit -f` is an error.
  signal(SIGXFSZ, SIG_IGN);
  return paramd::cli::RunParamctl(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
}
