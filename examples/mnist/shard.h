// A worker's share of a data set, as the training loop's source of minibatches.
#ifndef PARAMD_EXAMPLES_MNIST_SHARD_H_
#define PARAMD_EXAMPLES_MNIST_SHARD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/trainable.h"
#include "examples/mnist/data_set.h"

namespace paramd {

struct ShardOptions {
  int64_t worker = 0;   // which share, in [0, workers)
  int64_t workers = 1;  // shares in all
  int64_t batch_size = 32;
  // The same for all workers: it deals the rows. Each worker's own order of each epoch comes from it too, so that equal
  // options give equal batches.
  uint64_t seed = 1;
  bool shuffle = true;  // false: the data set's own order, in every epoch
};

// INVALID_ARGUMENT if the options make no sense, whatever the data.
absl::Status CheckShardOptions(const ShardOptions& options);

// The shares of all workers are disjoint, cover every row, and differ in size by one row at most. An epoch passes once
// over the share, in as few minibatches of at most batch_size rows as it takes, which differ by one row at most: a last
// one of a few rows would be as large a step as any, and by chance in any direction. Thread-compatible.
class Shard : public BatchSource {
 public:
  // `data` must outlive the shard. Errors: those of CheckShardOptions; INVALID_ARGUMENT if a worker is left without
  // rows.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(const DataSet* data, const ShardOptions& options);

  int64_t rows() const { return static_cast<int64_t>(share_.size()); }

  absl::StatusOr<bool> Next(Batch* batch) override;
  absl::Status Rewind(int64_t epoch) override;
  int64_t batches_per_epoch() const override { return (rows() + options_.batch_size - 1) / options_.batch_size; }

 private:
  Shard(const DataSet* data, const ShardOptions& options, std::vector<int64_t> share);

  const DataSet* const data_;
  const ShardOptions options_;
  const std::vector<int64_t> share_;  // rows of data_
  std::vector<int64_t> order_;        // share_ as this epoch passes over it
  int64_t batch_ = 0;                 // the next of this epoch
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_SHARD_H_
