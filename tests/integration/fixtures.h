// What the tests over the wire have in common.
#ifndef PARAMD_TESTS_INTEGRATION_FIXTURES_H_
#define PARAMD_TESTS_INTEGRATION_FIXTURES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "client/admin.h"
#include "client/trainable.h"
#include "client/worker.h"
#include "proto/paramd.pb.h"
#include "server/server.h"

namespace paramd {

// For calls that should succeed long before.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(60);

// A model of one tensor "w" of `floats`.
v1::ModelSpec Spec(const std::string& name, const std::string& algorithm, size_t floats,
                   const std::string& consistency = "", const Hyperparameters& hyperparameters = {});

// On a port that the system chooses, or a socket if that is the way of this run (tests/support/transport.h). Fails the
// test if it does not start, as do all functions below.
std::unique_ptr<Server> StartServer(ServerOptions options = {});
std::unique_ptr<Admin> Connect(const std::string& server);
// By this run's way, unless the options name a transport.
std::unique_ptr<Worker> Join(WorkerOptions options);
std::unique_ptr<Worker> Join(const std::string& server, const std::string& model, const std::string& worker);

// Creates the model and sets its first center.
void CreateModel(const std::string& server, const v1::ModelSpec& spec, const std::vector<float>& center);

// The center as a reader sees it, and its version.
std::pair<std::vector<float>, int64_t> ReadCenter(const std::string& server, const std::string& model);

// The description of one worker; an empty one if there is none of that name.
v1::WorkerInfo FindWorker(const v1::ModelInfo& model, const std::string& worker);

// A thread that is joined when it goes out of scope.
class Thread {
 public:
  explicit Thread(std::function<void()> body) : thread_(std::move(body)) {}
  ~Thread() {
    if (thread_.joinable()) thread_.join();
  }
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = delete;
  void Join() { thread_.join(); }

 private:
  std::thread thread_;
};

// Gradient descent on |w - target|² / 2, whatever the batch.
class Quadratic : public Trainable {
 public:
  Quadratic(size_t floats, float start, float target) : parameters_(floats, start), target_(target) {}

  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch& batch) override;
  double learning_rate() const override { return learning_rate_; }
  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

 private:
  std::vector<float> parameters_;
  const float target_;
  double learning_rate_ = 0.1;
};

// `batches` empty minibatches an epoch.
class EmptyBatches : public BatchSource {
 public:
  explicit EmptyBatches(int64_t batches) : batches_(batches) {}

  absl::StatusOr<bool> Next(Batch* batch) override;
  absl::Status Rewind(int64_t epoch) override;
  int64_t batches_per_epoch() const override { return batches_; }

 private:
  const int64_t batches_;
  int64_t next_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_INTEGRATION_FIXTURES_H_
