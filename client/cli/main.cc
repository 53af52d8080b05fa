#include <iostream>
#include <string>
#include <vector>

#include "client/cli/paramctl.h"

int main(int argc, char** argv) {
  return paramd::cli::RunParamctl(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
}
