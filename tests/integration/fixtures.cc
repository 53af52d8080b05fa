#include "tests/integration/fixtures.h"

#include <catch2/catch.hpp>

#include "tests/support/process.h"
#include "tests/support/transport.h"

namespace paramd {

v1::ModelSpec Spec(const std::string& name, const std::string& algorithm, size_t floats, const std::string& consistency,
                   const Hyperparameters& hyperparameters) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_algorithm(algorithm);
  spec.set_consistency(consistency);
  v1::Tensor* tensor = spec.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(static_cast<int64_t>(floats));
  for (const auto& [hyperparameter, value] : hyperparameters) {
    v1::Hyperparameter* h = spec.add_hyperparameters();
    h->set_name(hyperparameter);
    h->set_value(value);
  }
  return spec;
}

std::unique_ptr<Server> StartServer(ServerOptions options) {
  if (options.listen == ServerOptions().listen) {
    options.listen = TestTransport() == "unix" ? "unix:" + TemporaryPath("socket") : "127.0.0.1:0";
  }
  auto server = Server::Start(options);
  INFO(server.status());
  REQUIRE(server.ok());
  return *std::move(server);
}

std::unique_ptr<Admin> Connect(const std::string& server) {
  auto admin = Admin::Connect(server, kCallTimeout);
  INFO(admin.status());
  REQUIRE(admin.ok());
  return *std::move(admin);
}

std::unique_ptr<Worker> Join(WorkerOptions options) {
  if (options.transport == Transport::kAuto) options.transport = TestWorkerTransport();
  auto worker = Worker::Join(std::move(options));
  INFO(worker.status());
  REQUIRE(worker.ok());
  return *std::move(worker);
}

std::unique_ptr<Worker> Join(const std::string& server, const std::string& model, const std::string& worker) {
  return Join({.server = server, .model = model, .worker = worker});
}

void CreateModel(const std::string& server, const v1::ModelSpec& spec, const std::vector<float>& center) {
  const auto admin = Connect(server);
  const auto created = admin->CreateModel(spec);
  INFO(created.status());
  REQUIRE(created.ok());
  const absl::Status initialized = admin->Initialize(spec.name(), center);
  INFO(initialized);
  REQUIRE(initialized.ok());
}

std::pair<std::vector<float>, int64_t> ReadCenter(const std::string& server, const std::string& model) {
  const auto admin = Connect(server);
  const auto info = admin->GetModel(model);
  INFO(info.status());
  REQUIRE(info.ok());
  std::vector<float> center(info->parameters());
  const auto pulled = admin->Pull(model, absl::MakeSpan(center));
  INFO(pulled.status());
  REQUIRE(pulled.ok());
  return {center, pulled->version};
}

v1::WorkerInfo FindWorker(const v1::ModelInfo& model, const std::string& worker) {
  for (const v1::WorkerInfo& info : model.workers()) {
    if (info.worker() == worker) return info;
  }
  return {};
}

absl::StatusOr<std::vector<double>> Quadratic::TrainOnBatch(const Batch& /*batch*/) {
  double loss = 0;
  for (float& w : parameters_) {
    const float error = w - target_;
    loss += error * error / 2;
    w -= static_cast<float>(learning_rate_) * error;
  }
  return std::vector<double>{loss};
}

absl::StatusOr<bool> EmptyBatches::Next(Batch* batch) {
  batch->rows = 1;
  return next_++ < batches_;
}

absl::Status EmptyBatches::Rewind(int64_t /*epoch*/) {
  next_ = 0;
  return absl::OkStatus();
}

}  // namespace paramd
