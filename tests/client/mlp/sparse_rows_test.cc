#include "client/mlp/sparse_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/mlp/mlp.h"

namespace paramd {
namespace {

constexpr int64_t kFeatures = 40;
constexpr int64_t kClasses = 3;

struct Both {
  Batch dense;
  Batch sparse;
};

// Rows with up to four features of the first `used`, the first row with none.
Both RandomRows(int64_t rows, int64_t used, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> value;
  Both both{.dense = {.rows = rows, .features = std::vector<float>(rows * kFeatures)}};
  std::vector<int32_t> starts = {0};
  std::vector<int32_t> columns;
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<int32_t> chosen;
    for (int64_t j = 0; j < i % 5; ++j) chosen.push_back(static_cast<int32_t>(random() % used));
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const int32_t column : chosen) {
      columns.push_back(column);
      values.push_back(value(random));
      both.dense.features[i * kFeatures + column] = values.back();
    }
    starts.push_back(static_cast<int32_t>(columns.size()));
    both.dense.labels.push_back(static_cast<float>(random() % kClasses));
  }
  both.sparse = {.rows = rows, .labels = both.dense.labels};
  both.sparse.inputs = {{.values = starts}, {.values = columns}, {.values = values}};
  return both;
}

std::unique_ptr<Mlp> MakeMlp(const std::vector<int64_t>& layers, const std::string& optimizer, double l2, double norm) {
  auto mlp = Mlp::Create({.layers = layers, .optimizer = {.name = optimizer}, .l2 = l2, .max_gradient_norm = norm});
  REQUIRE(mlp.ok());
  return *std::move(mlp);
}

void CheckClose(absl::Span<const float> a, absl::Span<const float> b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1e-4) FAIL(i << ": " << a[i] << " and " << b[i]);
  }
}

TEST_CASE("sparse rows train as the dense rows that they are") {
  const auto layers =
      GENERATE(std::vector<int64_t>{kFeatures, kClasses}, std::vector<int64_t>{kFeatures, 9, 6, kClasses});
  // The others move what has no gradient, too; with l2 there is a gradient everywhere.
  const auto [optimizer, l2] =
      GENERATE(std::pair<std::string, double>{"sgd", 0}, std::pair<std::string, double>{"sgd", 0.1},
               std::pair<std::string, double>{"momentum", 0.1}, std::pair<std::string, double>{"adam", 0.1});
  const double norm = GENERATE(0, 0.05);
  const auto of_dense = MakeMlp(layers, optimizer, l2, norm);
  const auto of_sparse = MakeMlp(layers, optimizer, l2, norm);
  for (uint64_t step = 1; step <= 6; ++step) {
    const Both both = RandomRows(11, kFeatures, step);
    std::vector<float> dense(of_dense->parameters().size());
    std::vector<float> sparse(dense.size(), 7);
    REQUIRE(of_dense->ComputeGradient(both.dense, absl::MakeSpan(dense)).ok());
    REQUIRE(of_sparse->ComputeGradient(both.sparse, absl::MakeSpan(sparse)).ok());
    CheckClose(dense, sparse);
    const auto a = of_dense->TrainOnBatch(both.dense);
    const auto b = of_sparse->TrainOnBatch(both.sparse);
    REQUIRE((a.ok() && b.ok()));
    CHECK((*a)[0] == Approx((*b)[0]).margin(1e-4));
    CHECK((*a)[1] == (*b)[1]);
    CheckClose(of_dense->parameters(), of_sparse->parameters());
  }
}

TEST_CASE("features that a batch does not have stay as they are, with any optimizer") {
  const std::string optimizer = GENERATE("sgd", "momentum", "adam");
  const auto mlp = MakeMlp({kFeatures, kClasses}, optimizer, 0, 0);
  REQUIRE(mlp->TrainOnBatch(RandomRows(20, kFeatures, 1).sparse).ok());
  const std::vector<float> before(mlp->parameters().begin(), mlp->parameters().end());
  REQUIRE(mlp->TrainOnBatch(RandomRows(20, kFeatures / 2, 2).sparse).ok());
  const auto after = mlp->parameters();
  const size_t half = kFeatures / 2 * kClasses;
  CHECK(std::equal(before.begin() + half, before.end() - kClasses, after.begin() + half));
  CHECK_FALSE(std::equal(before.begin(), before.begin() + half, after.begin()));
  CHECK_FALSE(std::equal(before.end() - kClasses, before.end(), after.end() - kClasses));
}

TEST_CASE("dense and sparse batches take turns") {
  const auto mlp = MakeMlp({kFeatures, kClasses}, "sgd", 0, 0);
  const auto reference = MakeMlp({kFeatures, kClasses}, "sgd", 0, 0);
  for (uint64_t step = 1; step <= 4; ++step) {
    const Both both = RandomRows(8, kFeatures, step);
    REQUIRE(mlp->TrainOnBatch(step % 2 == 0 ? both.dense : both.sparse).ok());
    REQUIRE(reference->TrainOnBatch(both.dense).ok());
  }
  CheckClose(mlp->parameters(), reference->parameters());
  std::vector<float> of_mlp(kClasses);
  std::vector<float> of_reference(kClasses);
  const std::vector<float> row(kFeatures, 0.5f);
  REQUIRE(mlp->Predict(row, absl::MakeSpan(of_mlp)).ok());
  REQUIRE(reference->Predict(row, absl::MakeSpan(of_reference)).ok());
  CheckClose(of_mlp, of_reference);
}

TEST_CASE("inputs that are no sparse rows of the network's features are refused") {
  const auto mlp = MakeMlp({kFeatures, kClasses}, "sgd", 0, 0);
  const Batch good = RandomRows(3, kFeatures, 1).sparse;
  REQUIRE(mlp->TrainOnBatch(good).ok());
  using Starts = std::vector<int32_t>;
  const auto refused = [&](const Batch& batch, const std::string& part) {
    const auto status = mlp->TrainOnBatch(batch).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Catch::Contains(part));
  };
  Batch bad = good;
  bad.inputs.pop_back();
  refused(bad, "are no sparse rows");
  bad = good;
  bad.inputs[0].values = std::vector<int64_t>{0, 0, 1, 3};
  refused(bad, "are no sparse rows");
  for (const Starts& starts : {Starts{}, Starts{0, 0, 1}, Starts{0, 3, 1, 3}, Starts{1, 1, 1, 3}, Starts{0, 0, 1, 9}}) {
    bad.inputs[0].values = starts;
    refused(bad, "must ascend from 0");
  }
  for (const int32_t column : {-1, static_cast<int32_t>(kFeatures)}) {
    bad = good;
    std::get<Starts>(bad.inputs[1].values).back() = column;
    refused(bad, "column " + std::to_string(column));
  }
}

}  // namespace
}  // namespace paramd
