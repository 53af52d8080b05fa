// One body, compiled for each width of vectors. It is inlined into functions that differ in their target, and calls
// nothing: no code for newer processors can end up in a function that others share.
#include "client/mlp/matrix_product.h"

namespace paramd {
namespace {

// kRows × (kVectors vectors) of the result, from (row, column) on. They stay in registers until they are complete.
template <int kBytes, int kRows, int kVectors>
[[gnu::always_inline]] inline void MultiplyTile(const MatrixProduct& product, int64_t row, int64_t column) {
  typedef float Vector __attribute__((vector_size(kBytes), aligned(sizeof(float)), may_alias));
  const float* left = product.left + row * product.left_row;
  const float* right = product.right + column;
  Vector sums[kRows][kVectors] = {};
  if (product.bias != nullptr) {
    const Vector* bias = reinterpret_cast<const Vector*>(product.bias + column);
    for (auto& sum : sums) {
      for (int j = 0; j < kVectors; ++j) sum[j] = bias[j];
    }
  }
  for (int64_t p = 0; p < product.depth; ++p) {
    const Vector* factors = reinterpret_cast<const Vector*>(right + p * product.columns);
    for (int i = 0; i < kRows; ++i) {
      const float factor = left[i * product.left_row + p * product.left_depth];
      for (int j = 0; j < kVectors; ++j) sums[i][j] += factor * factors[j];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    Vector* result = reinterpret_cast<Vector*>(product.result + (row + i) * product.columns + column);
    for (int j = 0; j < kVectors; ++j) result[j] = sums[i][j];
  }
}

// As many whole tiles of that width as there is room for, from `column` on. Returns the first column left.
template <int kBytes, int kVectors>
[[gnu::always_inline]] inline int64_t MultiplyColumns(const MatrixProduct& product, int64_t column) {
  constexpr int kRows = 4;
  constexpr int64_t kWidth = kVectors * kBytes / sizeof(float);
  for (; column + kWidth <= product.columns; column += kWidth) {
    int64_t row = 0;
    for (; row + kRows <= product.rows; row += kRows) MultiplyTile<kBytes, kRows, kVectors>(product, row, column);
    for (; row < product.rows; ++row) MultiplyTile<kBytes, 1, kVectors>(product, row, column);
  }
  return column;
}

// `column`: where wider vectors found no more room.
template <int kBytes>
[[gnu::always_inline]] inline void MultiplyRest(const MatrixProduct& product, int64_t column) {
  column = MultiplyColumns<kBytes, 1>(product, column);
  if constexpr (kBytes > sizeof(float)) MultiplyRest<kBytes / 2>(product, column);
}

using Implementation = void (*)(const MatrixProduct&);

// Each tile fills the registers there are: 16, or 32 with AVX-512.
void MultiplyBaseline(const MatrixProduct& product) { MultiplyRest<16>(product, MultiplyColumns<16, 2>(product, 0)); }

#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void MultiplyAvx2(const MatrixProduct& product) {
  MultiplyRest<32>(product, MultiplyColumns<32, 2>(product, 0));
}

[[gnu::target("avx512f,avx2,fma")]] void MultiplyAvx512(const MatrixProduct& product) {
  MultiplyRest<64>(product, MultiplyColumns<64, 4>(product, 0));
}
#endif

std::vector<Implementation> Implementations() {
  std::vector<Implementation> implementations = {&MultiplyBaseline};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    implementations.push_back(&MultiplyAvx2);
    if (__builtin_cpu_supports("avx512f")) implementations.push_back(&MultiplyAvx512);
  }
#endif
  return implementations;
}

}  // namespace

void Multiply(const MatrixProduct& product) {
  static const Implementation implementation = Implementations().back();
  implementation(product);
}

std::vector<void (*)(const MatrixProduct&)> MultipliesForTest() { return Implementations(); }

}  // namespace paramd
