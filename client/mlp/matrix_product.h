// The one product that training dense layers needs, on the calling thread alone.
#ifndef PARAMD_CLIENT_MLP_MATRIX_PRODUCT_H_
#define PARAMD_CLIENT_MLP_MATRIX_PRODUCT_H_

#include <cstdint>
#include <vector>

namespace paramd {

// a · b + bias. Element (i, p) of a is left[i × left_row + p × left_depth], so that a may also be the transpose of
// what lies in memory. b, [depth, columns], and the result, [rows, columns], are row-major and without gaps; the
// result overlaps nothing that is read. One row of bias is added to every row, unless it is null.
struct MatrixProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  const float* left = nullptr;
  int64_t left_row = 0;
  int64_t left_depth = 0;
  const float* right = nullptr;
  const float* bias = nullptr;
  float* result = nullptr;
};

// Uses the widest vectors that this machine has. The same machine gives the same bits for the same input; others
// may round differently.
void Multiply(const MatrixProduct& product);

// Every Multiply that this machine can run, of the narrowest vectors first; the last is the one that Multiply calls.
std::vector<void (*)(const MatrixProduct&)> MultipliesForTest();

}  // namespace paramd

#endif  // PARAMD_CLIENT_MLP_MATRIX_PRODUCT_H_
