#ifndef PARAMD_TESTS_EXAMPLES_RUNNING_H_
#define PARAMD_TESTS_EXAMPLES_RUNNING_H_

#include <sys/types.h>

#include <fstream>
#include <string>

namespace paramd {

// Whether a process is there and no zombie.
inline bool Running(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return static_cast<bool>(stat >> number >> name >> state) && state != "Z";
}

}  // namespace paramd

#endif  // PARAMD_TESTS_EXAMPLES_RUNNING_H_
