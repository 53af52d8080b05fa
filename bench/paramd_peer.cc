#include "bench/paramd_peer.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace paramd::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);

struct Kind {
  const char* name;
  paramd::Transport transport;
  Wire wire;
};

constexpr Kind kKinds[] = {
    {"grpc", paramd::Transport::kGrpc, Wire::kFloat32},       {"grpc-f16", paramd::Transport::kGrpc, Wire::kFloat16},
    {"grpc-bf16", paramd::Transport::kGrpc, Wire::kBfloat16}, {"shm", paramd::Transport::kShm, Wire::kFloat32},
    {"shm-inplace", paramd::Transport::kShm, Wire::kFloat32}, {"grpc-tls", paramd::Transport::kGrpc, Wire::kFloat32},
};

class ParamdPeer : public Peer {
 public:
  ParamdPeer(std::unique_ptr<Worker> worker, Buffers buffers) : worker_(std::move(worker)), buffers_(buffers) {}

  absl::Status Run(Operation operation) override {
    switch (operation) {
      case Operation::kPull:
        return worker_->Pull(buffers_.center, kTimeout).status();
      case Operation::kCommit:
        return worker_->Commit(buffers_.update, kTimeout).status();
      case Operation::kExchange:
        break;
    }
    return worker_->Exchange(buffers_.update, buffers_.center, kTimeout).status();
  }

 private:
  const std::unique_ptr<Worker> worker_;
  const Buffers buffers_;
};

class WaitingPeer : public Peer {
 public:
  WaitingPeer(std::unique_ptr<Worker> worker, Buffers buffers)
      : worker_(std::move(worker)),
        pull_([this, buffers] { worker_->Pull(buffers.center, absl::InfiniteDuration()).status().IgnoreError(); }) {}
  ~WaitingPeer() override {
    worker_->Cancel();
    pull_.join();
  }

  absl::Status Run(Operation) override { return absl::UnimplementedError("this worker only waits"); }

 private:
  const std::unique_ptr<Worker> worker_;
  std::thread pull_;
};

WorkerOptions OptionsFor(const std::string& address, const std::string& model, const std::string& algorithm,
                         const std::string& worker, size_t floats) {
  auto spec = std::make_shared<v1::ModelSpec>();
  spec->set_algorithm(algorithm);
  v1::Tensor* const tensor = spec->add_tensors();
  tensor->set_name("parameters");
  tensor->add_shape(static_cast<int64_t>(floats));
  return {.server = address, .model = model, .worker = worker, .create = spec};
}

}  // namespace

absl::StatusOr<WorkerOptions> MakeWorkerOptions(const std::string& kind, const std::string& address,
                                                const std::string& algorithm, const std::string& worker,
                                                size_t floats) {
  const auto* const found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return kind == k.name; });
  if (found == std::end(kKinds)) return absl::InvalidArgumentError(absl::StrCat("no peer of kind ", kind));
  WorkerOptions options = OptionsFor(address, "bench", algorithm, worker, floats);
  options.transport = found->transport;
  options.wire = found->wire;
  options.security = NoSecurity();
  if (const char* const ca = std::getenv("BENCH_TLS_CA"); kind == "grpc-tls" && ca != nullptr) {
    options.security.tls_ca = ca;
  }
  return options;
}

absl::StatusOr<std::unique_ptr<Peer>> ConnectParamdPeer(const std::string& kind, const std::string& address,
                                                        const std::string& algorithm, const std::string& worker,
                                                        Buffers buffers) {
  auto options = MakeWorkerOptions(kind, address, algorithm, worker, buffers.update.size());
  if (!options.ok()) return options.status();
  auto joined = Worker::Join(*options);
  if (!joined.ok()) return joined.status();
  if (auto status = (*joined)->Initialize(buffers.update, kTimeout); !status.ok()) return status;
  // An algorithm that looks at the center last pulled refuses a commit before the first pull.
  if (auto status = (*joined)->Pull(buffers.center, kTimeout).status(); !status.ok()) return status;
  if (kind == "shm-inplace") {
    const absl::Span<float> update = (*joined)->commit_buffer();
    std::copy(buffers.update.begin(), buffers.update.end(), update.begin());
    buffers = {.update = update, .center = (*joined)->center_buffer()};
  }
  return std::make_unique<ParamdPeer>(*std::move(joined), buffers);
}

absl::StatusOr<std::unique_ptr<Peer>> ConnectWaitingPeer(const std::string& address, const std::string& worker,
                                                         Buffers buffers) {
  auto joined = Worker::Join(OptionsFor(address, "waiting", "downpour", worker, buffers.center.size()));
  if (!joined.ok()) return joined.status();
  return std::make_unique<WaitingPeer>(*std::move(joined), buffers);
}

}  // namespace paramd::bench
