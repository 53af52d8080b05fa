#ifndef PARAMD_TESTS_EXAMPLES_IMAGES_H_
#define PARAMD_TESTS_EXAMPLES_IMAGES_H_

#include <cstdint>
#include <string>

#include "tests/examples/idx_bytes.h"
#include "tests/examples/temporary_folder.h"

namespace paramd {

// Images of 2 x 2 pixels; the label says which half is the brighter one.
inline void WriteImages(const TemporaryFolder& folder, const std::string& prefix, int rows) {
  const auto count = static_cast<uint32_t>(rows);
  std::string images = IdxHeader(kIdxImages, {count, 2, 2}), labels = IdxHeader(kIdxLabels, {count});
  for (int i = 0; i < rows; ++i) {
    const char bright = static_cast<char>(150 + i % 100), dark = static_cast<char>(i % 100);
    images += i % 2 == 0 ? std::string{bright, bright, dark, dark} : std::string{dark, dark, bright, bright};
    labels += static_cast<char>(i % 2);
  }
  folder.Write(prefix + "-images-idx3-ubyte", images);
  folder.Write(prefix + "-labels-idx1-ubyte", labels);
}

}  // namespace paramd

#endif  // PARAMD_TESTS_EXAMPLES_IMAGES_H_
