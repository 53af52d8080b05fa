// What is fuzzed, by name: libFuzzer runs one of them (tests/fuzz/run.sh), and corpus_test all on what was kept.
#ifndef PARAMD_TESTS_FUZZ_TARGETS_H_
#define PARAMD_TESTS_FUZZ_TARGETS_H_

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace paramd {

// Reads the input as whoever gets it from a peer or a user would. Ends the process if anything but an error comes of
// it.
using FuzzTarget = void (*)(std::string_view input);

inline std::map<std::string, FuzzTarget>& FuzzTargets() {
  static auto* const targets = new std::map<std::string, FuzzTarget>();
  return *targets;
}

struct FuzzTargetRegistration {
  FuzzTargetRegistration(const char* name, FuzzTarget target) { FuzzTargets()[name] = target; }
};

// In both builds, whatever NDEBUG says.
#define FUZZ_CHECK(condition)                                                                \
  if (!(condition)) {                                                                        \
    std::fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #condition); \
    std::abort();                                                                            \
  }

}  // namespace paramd

#endif  // PARAMD_TESTS_FUZZ_TARGETS_H_
