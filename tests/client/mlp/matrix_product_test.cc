#include "client/mlp/matrix_product.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace paramd {
namespace {

constexpr float kUntouched = 12345;

std::vector<float> RandomFloats(int64_t count, std::mt19937_64* random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> floats(count);
  for (float& value : floats) value = uniform(*random);
  return floats;
}

TEST_CASE("every implementation computes products of any size, by the definition in double") {
  const auto transposed = GENERATE(false, true);
  const auto with_bias = GENERATE(false, true);
  const int64_t rows = GENERATE(1, 4, 7);
  const int64_t columns = GENERATE(1, 2, 3, 5, 10, 16, 31, 64, 95, 128);
  const int64_t depth = GENERATE(0, 1, 33);
  CAPTURE(transposed, with_bias, rows, columns, depth);
  std::mt19937_64 random(rows * 1000 + columns * 100 + depth);
  const std::vector<float> left = RandomFloats(rows * depth, &random);
  const std::vector<float> right = RandomFloats(depth * columns, &random);
  const std::vector<float> bias = RandomFloats(columns, &random);
  const int64_t left_row = transposed ? 1 : depth;
  const int64_t left_depth = transposed ? rows : 1;

  size_t number = 0;
  for (const auto multiply : MultipliesForTest()) {
    CAPTURE(number++);
    std::vector<float> result(rows * columns + 1, kUntouched);
    multiply({.rows = rows,
              .columns = columns,
              .depth = depth,
              .left = left.data(),
              .left_row = left_row,
              .left_depth = left_depth,
              .right = right.data(),
              .bias = with_bias ? bias.data() : nullptr,
              .result = result.data()});
    double largest_error = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = with_bias ? bias[j] : 0;
        for (int64_t p = 0; p < depth; ++p) {
          sum += static_cast<double>(left[i * left_row + p * left_depth]) * right[p * columns + j];
        }
        largest_error = std::max(largest_error, std::abs(result[i * columns + j] - sum));
      }
    }
    CHECK(largest_error < 1e-5);
    CHECK(result.back() == kUntouched);
  }
}

TEST_CASE("a product takes the last implementation, and repeats bit by bit") {
  std::mt19937_64 random(1);
  const std::vector<float> left = RandomFloats(9 * 50, &random);
  const std::vector<float> right = RandomFloats(50 * 77, &random);
  std::vector<float> first(9 * 77), second(9 * 77);
  MatrixProduct product{.rows = 9,
                        .columns = 77,
                        .depth = 50,
                        .left = left.data(),
                        .left_row = 50,
                        .left_depth = 1,
                        .right = right.data(),
                        .result = first.data()};
  Multiply(product);
  product.result = second.data();
  MultipliesForTest().back()(product);
  CHECK(first == second);
}

}  // namespace
}  // namespace paramd
