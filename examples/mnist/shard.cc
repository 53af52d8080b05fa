#include "examples/mnist/shard.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

// std::shuffle's order is the library's choice; this one is the same everywhere.
void Shuffle(std::vector<int64_t>* rows, std::seed_seq seed) {
  std::mt19937_64 random(seed);
  for (size_t i = rows->size(); i > 1; --i) std::swap((*rows)[i - 1], (*rows)[random() % i]);
}

}  // namespace

absl::Status CheckShardOptions(const ShardOptions& options) {
  if (options.batch_size <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("batch size ", options.batch_size, " is not positive; 32 is usual"));
  }
  if (options.worker < 0 || options.worker >= options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", options.worker, " of ", options.workers,
                                                   ": workers are counted from 0 and must be fewer than their number"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(const DataSet* data, const ShardOptions& options) {
  if (const absl::Status status = CheckShardOptions(options); !status.ok()) return status;
  if (options.workers > data->rows) {
    return absl::InvalidArgumentError(absl::StrCat("the data set's ", data->rows, " rows are too few for ",
                                                   options.workers, " workers; start fewer workers"));
  }
  std::vector<int64_t> rows(data->rows);
  std::iota(rows.begin(), rows.end(), 0);
  if (options.shuffle) Shuffle(&rows, {options.seed, options.seed >> 32});
  const auto cut = [&](int64_t worker) {
    return rows.begin() + worker * (data->rows / options.workers) + std::min(worker, data->rows % options.workers);
  };
  return std::unique_ptr<Shard>(
      new Shard(data, options, std::vector<int64_t>(cut(options.worker), cut(options.worker + 1))));
}

Shard::Shard(const DataSet* data, const ShardOptions& options, std::vector<int64_t> share)
    : data_(data), options_(options), share_(std::move(share)), order_(share_) {}

absl::StatusOr<bool> Shard::Next(Batch* batch) {
  if (batch_ == batches_per_epoch()) return false;
  const int64_t begin = rows() * batch_ / batches_per_epoch();
  const int64_t rows = this->rows() * (batch_ + 1) / batches_per_epoch() - begin;
  ++batch_;
  batch->rows = rows;
  batch->features.resize(rows * data_->columns);
  batch->labels.resize(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = order_[begin + i];
    const uint8_t* features = &data_->features[row * data_->columns];
    std::transform(features, features + data_->columns, &batch->features[i * data_->columns],
                   [](uint8_t byte) { return static_cast<float>(byte) * (1.0f / 255); });
    batch->labels[i] = data_->labels[row];
  }
  return true;
}

absl::Status Shard::Rewind(int64_t epoch) {
  batch_ = 0;
  order_ = share_;
  if (options_.shuffle) {
    // Never the sequence that dealt the rows: that one has two words.
    Shuffle(&order_,
            {options_.seed, options_.seed >> 32, static_cast<uint64_t>(options_.worker), static_cast<uint64_t>(epoch)});
  }
  return absl::OkStatus();
}

}  // namespace paramd
