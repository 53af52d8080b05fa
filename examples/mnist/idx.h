// Reads the IDX files of MNIST and its kin (Fashion-MNIST, EMNIST, ...): unsigned bytes behind a big-endian header, as
// http://yann.lecun.com/exdb/mnist describes, plain or gzipped.
#ifndef PARAMD_EXAMPLES_MNIST_IDX_H_
#define PARAMD_EXAMPLES_MNIST_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/mnist/data_set.h"

namespace paramd::mnist {

// An array of unsigned bytes, row-major.
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};

// Reads `path`, gzipped or not. The array must have `rank` dimensions, none of them zero. Errors, all naming the file:
//   NOT_FOUND            it does not exist
//   PERMISSION_DENIED    it can't be opened
//   INVALID_ARGUMENT     it is no IDX file of unsigned bytes with `rank` dimensions, or has bytes after the last value
//   DATA_LOSS            it is truncated, or its compressed data are damaged
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank);

enum class Part { kTraining, kTest };

// The images [rows, height, width] of `directory`/train-images-idx3-ubyte, one row each, with the labels of
// train-labels-idx1-ubyte; for the test it is t10k or test instead of train. The names may have a dot before idx, the
// data set's name and a hyphen before all, and .gz behind. Errors: those of ReadIdx; INVALID_ARGUMENT also if the files
// have different counts, if there are several data sets, or if the files, or those for training and for the test, are
// of different ones.
absl::StatusOr<DataSet> ReadImages(const std::string& directory, Part part);

}  // namespace paramd::mnist

#endif  // PARAMD_EXAMPLES_MNIST_IDX_H_
