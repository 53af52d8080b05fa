#ifndef PARAMD_TESTS_SUPPORT_SKIP_H_
#define PARAMD_TESTS_SUPPORT_SKIP_H_

#include <catch2/catch.hpp>
#include <iostream>
#include <string_view>

namespace paramd::testing {

// Says that the test case under way can't run here, and why; it returns next. scripts/test.sh counts it as skipped, not
// as passed. From the main thread.
inline void Skip(std::string_view why) {
  std::cout << "skipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << why << std::endl;
}

}  // namespace paramd::testing

#endif  // PARAMD_TESTS_SUPPORT_SKIP_H_
