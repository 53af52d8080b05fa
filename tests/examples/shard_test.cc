#include "examples/mnist/shard.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

namespace paramd {
namespace {

// Row i has the features {i, 255 − i} and the label i mod 10.
DataSet Rows(int count) {
  DataSet data{.rows = count, .columns = 2};
  for (int i = 0; i < count; ++i) {
    data.features.push_back(static_cast<uint8_t>(i));
    data.features.push_back(static_cast<uint8_t>(255 - i));
    data.labels.push_back(static_cast<uint8_t>(i % 10));
  }
  return data;
}

struct Epoch {
  std::vector<int> rows;  // in order
  std::vector<int64_t> batches;
};

Epoch Drain(Shard* shard, int64_t epoch) {
  Epoch drained;
  REQUIRE(shard->Rewind(epoch).ok());
  Batch batch;
  while (true) {
    const auto more = shard->Next(&batch);
    REQUIRE(more.ok());
    if (!*more) break;
    REQUIRE(static_cast<int64_t>(batch.features.size()) == batch.rows * 2);
    REQUIRE(static_cast<int64_t>(batch.labels.size()) == batch.rows);
    drained.batches.push_back(batch.rows);
    for (int64_t i = 0; i < batch.rows; ++i) {
      const float first = batch.features[2 * i];
      const int row = static_cast<int>(first * 255 + 0.5f);
      CHECK(first == Approx(row / 255.0));
      CHECK(batch.features[2 * i + 1] == Approx((255 - row) / 255.0));
      CHECK(batch.labels[i] == static_cast<float>(row % 10));
      drained.rows.push_back(row);
    }
  }
  CHECK_FALSE(*shard->Next(&batch));
  return drained;
}

Epoch Drain(const DataSet& data, const ShardOptions& options, int64_t epoch) {
  auto shard = Shard::Create(&data, options);
  REQUIRE(shard.ok());
  return Drain(shard->get(), epoch);
}

TEST_CASE("shares are disjoint, cover every row and differ in size by one at most") {
  const DataSet data = Rows(103);
  for (const int workers : {1, 2, 4, 7, 103}) {
    std::multiset<int> seen;
    for (int worker = 0; worker < workers; ++worker) {
      const Epoch epoch = Drain(data, {.worker = worker, .workers = workers, .batch_size = 8}, 3);
      CHECK(static_cast<int>(epoch.rows.size()) >= 103 / workers);
      CHECK(static_cast<int>(epoch.rows.size()) <= 103 / workers + 1);
      seen.insert(epoch.rows.begin(), epoch.rows.end());
    }
    INFO(workers << " workers");
    CHECK(seen.size() == 103);
    CHECK(std::set<int>(seen.begin(), seen.end()).size() == 103);
  }
}

TEST_CASE("rows are dealt at random, not in the data set's order") {
  const DataSet data = Rows(200);
  const Epoch epoch = Drain(data, {.workers = 2, .batch_size = 10}, 0);
  const std::set<int> share(epoch.rows.begin(), epoch.rows.end());
  CHECK(*share.rbegin() >= 100);
  const Epoch other = Drain(data, {.workers = 2, .batch_size = 10, .seed = 2}, 0);
  CHECK(std::set<int>(other.rows.begin(), other.rows.end()) != share);
}

TEST_CASE("rows are spread evenly over the minibatches of an epoch") {
  const DataSet data = Rows(50);
  CHECK(Drain(data, {.batch_size = 16}, 0).batches == std::vector<int64_t>{12, 13, 12, 13});
  CHECK(Drain(data, {.batch_size = 25}, 0).batches == std::vector<int64_t>{25, 25});
  CHECK(Drain(data, {.batch_size = 64}, 0).batches == std::vector<int64_t>{50});
}

TEST_CASE("every epoch has its own order of the same rows") {
  const DataSet data = Rows(100);
  auto shard = Shard::Create(&data, {.worker = 1, .workers = 2, .batch_size = 7});
  REQUIRE(shard.ok());
  CHECK((*shard)->rows() == 50);
  const Epoch first = Drain(shard->get(), 0);
  const Epoch second = Drain(shard->get(), 1);
  CHECK(first.rows != second.rows);
  CHECK(std::set<int>(first.rows.begin(), first.rows.end()) == std::set<int>(second.rows.begin(), second.rows.end()));
  CHECK(Drain(shard->get(), 0).rows == first.rows);
}

TEST_CASE("equal options give equal batches, other seeds others") {
  const DataSet data = Rows(100);
  const ShardOptions options{.worker = 2, .workers = 3, .batch_size = 7, .seed = uint64_t{5} << 32};
  const Epoch epoch = Drain(data, options, 4);
  CHECK(Drain(data, options, 4).rows == epoch.rows);
  ShardOptions other = options;
  other.seed = uint64_t{6} << 32;
  CHECK(Drain(data, other, 4).rows != epoch.rows);
}

TEST_CASE("without shuffling rows come in the data set's order") {
  const DataSet data = Rows(6);
  CHECK(Drain(data, {.batch_size = 4, .shuffle = false}, 5).rows == std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(Drain(data, {.worker = 1, .workers = 2, .shuffle = false}, 0).rows == std::vector<int>{3, 4, 5});
}

TEST_CASE("options that make no sense are refused") {
  const DataSet data = Rows(3);
  const auto message = [&](const ShardOptions& options) {
    const auto shard = Shard::Create(&data, options);
    REQUIRE_FALSE(shard.ok());
    CHECK(shard.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(shard.status().message());
  };
  CHECK_THAT(message({.batch_size = 0}), Catch::Contains("batch size 0"));
  CHECK_THAT(message({.worker = 2, .workers = 2}), Catch::Contains("worker 2 of 2"));
  CHECK_THAT(message({.worker = -1}), Catch::Contains("worker -1"));
  CHECK_THAT(message({.workers = 0}), Catch::Contains("worker 0 of 0"));
  CHECK_THAT(message({.workers = 4}), Catch::Contains("too few for 4 workers"));
}

}  // namespace
}  // namespace paramd
