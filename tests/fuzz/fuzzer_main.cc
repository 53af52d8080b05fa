// libFuzzer, with the target that PARAMD_FUZZ_TARGET names.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const paramd::FuzzTarget target = [] {
    const char* const name = std::getenv("PARAMD_FUZZ_TARGET");
    const auto& targets = paramd::FuzzTargets();
    const auto found = targets.find(name != nullptr ? name : "");
    if (found != targets.end()) return found->second;
    std::fprintf(stderr, "PARAMD_FUZZ_TARGET must be one of\n");
    for (const auto& [known, unused] : targets) std::fprintf(stderr, "  %s\n", known.c_str());
    std::exit(2);
  }();
  target(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
