#include "tests/support/model_worker.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "server/spec.h"

namespace paramd::testing {

v1::ModelSpec MakeSpec(const std::string& algorithm, size_t floats, const std::string& consistency,
                       const Hyperparameters& hyperparameters) {
  v1::ModelSpec spec;
  spec.set_name("m");
  spec.set_algorithm(algorithm);
  spec.set_consistency(consistency);
  v1::Tensor* tensor = spec.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(static_cast<int64_t>(floats));
  for (const auto& [name, value] : hyperparameters) {
    v1::Hyperparameter* h = spec.add_hyperparameters();
    h->set_name(name);
    h->set_value(value);
  }
  return spec;
}

std::unique_ptr<Model> MakeModel(const v1::ModelSpec& spec, ModelOptions options) {
  auto checked = CheckSpec(spec, uint64_t{1} << 40);
  INFO(checked.status());
  REQUIRE(checked.ok());
  return std::make_unique<Model>(*std::move(checked), options);
}

CommitBuffer MakeBuffer(std::vector<float> floats) {
  CommitBuffer buffer(floats.size());
  const auto owner = std::make_shared<const std::vector<float>>(std::move(floats));
  const std::string_view bytes(reinterpret_cast<const char*>(owner->data()), owner->size() * sizeof(float));
  if (!buffer.Append(0, {bytes}, owner).ok()) throw std::logic_error("the buffer refused its own length");
  return buffer;
}

std::vector<float> Floats(const Snapshot& snapshot) {
  std::vector<float> floats;
  floats.reserve(snapshot.floats);
  for (const BlockRef& block : snapshot.blocks) {
    floats.insert(floats.end(), block.floats().begin(), block.floats().end());
  }
  return floats;
}

absl::Status TryInitialize(Model* model, CommitBuffer center) {
  // Kept by whoever answers, on whatever thread, until it is done with it.
  const auto status = std::make_shared<std::promise<absl::Status>>();
  model->Initialize(std::move(center), Reservation(), [status](const absl::Status& s) { status->set_value(s); });
  return status->get_future().get();
}

std::shared_ptr<const Snapshot> TakeSnapshot(Model* model) {
  if (!model->Describe(/*workers=*/false).initialized()) return nullptr;
  std::promise<std::shared_ptr<const Snapshot>> snapshot;
  model->Pull({.pull = true}, Reservation(), [&](const ExchangeAnswer& answer) {
    snapshot.set_value(answer.status.ok() ? answer.center->snapshot : nullptr);
  });
  return snapshot.get_future().get();
}

ExchangeAnswer ExchangeAtOnce(Model* model, const ExchangeCall& call, CommitBuffer commit) {
  const auto answer = std::make_shared<std::promise<ExchangeAnswer>>();
  model->Exchange(call, std::move(commit), Reservation(),
                  [answer](ExchangeAnswer got) { answer->set_value(std::move(got)); });
  return answer->get_future().get();
}

void Initialize(Model* model, std::vector<float> center) {
  const absl::Status status = TryInitialize(model, MakeBuffer(std::move(center)));
  INFO(status);
  REQUIRE(status.ok());
}

v1::WorkerInfo DescribeWorker(const Model& model, const std::string& worker) {
  const v1::ModelInfo described = model.Describe();
  for (const v1::WorkerInfo& info : described.workers()) {
    if (info.worker() == worker) return info;
  }
  FAIL("no worker " << worker);
  return {};
}

ModelWorker::ModelWorker(Model* model, std::string name, uint64_t incarnation) : model_(model), name_(std::move(name)) {
  // Also among children, each of which goes on from its parent's.
  static std::atomic<uint64_t> nonces{1000};
  caller_ = {.worker = name_, .nonce = ++nonces + (static_cast<uint64_t>(getpid()) << 32)};
  auto joined = model_->Join(name_, incarnation, caller_.nonce);
  if (!joined.ok()) throw std::runtime_error(joined.status().ToString());
  caller_.incarnation = *joined;
}

ModelWorker::~ModelWorker() { Cancel(); }

void ModelWorker::Start(std::vector<float> commit, bool pull) {
  commit_ = std::move(commit);
  slowly_ = false;
  ++sequence_;
  Begin(/*with_commit=*/true, pull);
}

void ModelWorker::StartSlowly(std::vector<float> commit, bool pull) {
  commit_ = std::move(commit);
  slowly_ = true;
  ++sequence_;
  Begin(/*with_commit=*/true, pull);
}

void ModelWorker::StartRetry() { Begin(/*with_commit=*/true, call_.pull); }

void ModelWorker::StartPull() {
  Begin(/*with_commit=*/false, /*pull=*/true);
  Wait();
}

void ModelWorker::StartAskAgain() {
  Begin(/*with_commit=*/false, call_.pull);
  call_.sequence = sequence_;
  Wait();
}

void ModelWorker::Begin(bool with_commit, bool pull) {
  {
    MutexLock lock(&mutex_);
    if (stage_ != Stage::kIdle) throw std::logic_error("one exchange at a time");
    ended_ = false;
    stage_ = with_commit ? Stage::kBeginning : Stage::kExchanging;
  }
  call_ = {.caller = caller_,
           .sequence = with_commit ? sequence_ : 0,
           .base_version = base_version_,
           .floats = with_commit ? commit_.size() : 0,
           .pull = pull,
           .deadline = model_->Now() + wait_,
           .tag = this};
  if (with_commit) model_->BeginCommit(call_, [this](ExchangeAnswer answer) { Began(std::move(answer)); });
}

void ModelWorker::Began(ExchangeAnswer answer) {
  if (!answer.status.ok()) return EndWith({.status = answer.status});
  if (answer.committed) return CallExchange(/*with_bytes=*/false);
  if (!slowly_) return CallExchange(/*with_bytes=*/true);
  MutexLock lock(&mutex_);
  stage_ = Stage::kMaySend;
  changed_.SignalAll();
}

void ModelWorker::SendBytes() { CallExchange(/*with_bytes=*/true); }

void ModelWorker::CallExchange(bool with_bytes) {
  {
    MutexLock lock(&mutex_);
    stage_ = Stage::kExchanging;
  }
  std::optional<CommitBuffer> bytes;
  if (with_bytes) bytes = make_buffer_(commit_);
  model_->Exchange(call_, std::move(bytes), Reservation(),
                   [this](ExchangeAnswer answer) { Exchanged(std::move(answer)); });
}

void ModelWorker::Wait() {
  Model::Done done = [this](ExchangeAnswer answer) { Exchanged(std::move(answer)); };
  call_.sequence == 0 ? model_->BeginPull(call_, std::move(done)) : model_->Await(call_, std::move(done));
}

void ModelWorker::Exchanged(ExchangeAnswer answer) {
  const bool committed = call_.sequence == 0 || answer.committed;
  if (answer.status.ok() && call_.pull && committed && answer.center == nullptr) {
    return model_->Pull(call_, Reservation(), [this](ExchangeAnswer pulled) { Exchanged(std::move(pulled)); });
  }
  Outcome outcome{
      .status = answer.status, .committed = answer.committed, .version = answer.version, .staleness = answer.staleness};
  if (answer.center != nullptr) {
    outcome.center = answer.center->snapshot;
    base_version_ = outcome.center->version;
  }
  EndWith(std::move(outcome));
}

void ModelWorker::EndWith(Outcome outcome) {
  MutexLock lock(&mutex_);
  outcome_ = std::move(outcome);
  stage_ = Stage::kIdle;
  changed_.SignalAll();
}

bool ModelWorker::may_send() const {
  MutexLock lock(&mutex_);
  return stage_ == Stage::kMaySend;
}

bool ModelWorker::waiting() const {
  MutexLock lock(&mutex_);
  return stage_ == Stage::kBeginning || stage_ == Stage::kExchanging;
}

bool ModelWorker::training() const {
  MutexLock lock(&mutex_);
  return stage_ == Stage::kIdle && ended_;
}

Outcome ModelWorker::End() {
  MutexLock lock(&mutex_);
  while (stage_ != Stage::kIdle) {
    if (changed_.WaitWithTimeout(&mutex_, absl::Minutes(1))) throw std::runtime_error("the exchange does not end");
  }
  ended_ = true;
  return std::exchange(outcome_, {});
}

Outcome ModelWorker::Exchange(std::vector<float> commit) {
  Start(std::move(commit));
  return End();
}

Outcome ModelWorker::Commit(std::vector<float> commit) {
  Start(std::move(commit), /*pull=*/false);
  return End();
}

Outcome ModelWorker::Pull() {
  StartPull();
  return End();
}

Outcome ModelWorker::Retry() {
  StartRetry();
  return End();
}

}  // namespace paramd::testing
