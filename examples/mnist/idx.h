// Reads the IDX files of MNIST and its kin (Fashion-MNIST, KMNIST, ...): unsigned bytes behind a big-endian header, as
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

// Reads `path`, or `path`.gz if only that exists; either may be gzipped or not. The array must have `rank` dimensions,
// none of them zero. Errors, all naming the file:
//   NOT_FOUND            neither file exists
//   PERMISSION_DENIED    it can't be opened
//   INVALID_ARGUMENT     it is no IDX file of unsigned bytes with `rank` dimensions, or has bytes after the last value
//   DATA_LOSS            it is truncated, or its compressed data are damaged
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank);

// The images [rows, height, width] of `directory`/PREFIX-images-idx3-ubyte, one row each, with the labels of
// PREFIX-labels-idx1-ubyte; `prefix` is "train" or "t10k". Errors: those of ReadIdx; INVALID_ARGUMENT also if the
// files have different counts, or if a label is above 9.
absl::StatusOr<DataSet> ReadMnist(const std::string& directory, const std::string& prefix);

}  // namespace paramd::mnist

#endif  // PARAMD_EXAMPLES_MNIST_IDX_H_
