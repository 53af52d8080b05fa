// Labelled rows of bytes in memory.
#ifndef PARAMD_EXAMPLES_MNIST_DATA_SET_H_
#define PARAMD_EXAMPLES_MNIST_DATA_SET_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace paramd {

struct DataSet {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> features;  // [rows, columns], row-major; 0 to 255 stand for 0.0 to 1.0
  std::vector<uint8_t> labels;    // [rows]
};

// INVALID_ARGUMENT, with layers that would do, unless a network of these takes in the columns and has an output for
// each label: how many classes there are is for its last layer to say.
absl::Status CheckLayers(const std::vector<int64_t>& layers, const DataSet& data);

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_DATA_SET_H_
