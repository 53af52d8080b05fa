#include "bench/paramd_peer.h"

#include <utility>

#include "absl/time/time.h"
#include "client/worker.h"

namespace paramd::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);

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

}  // namespace

absl::StatusOr<std::unique_ptr<Peer>> ConnectParamdPeer(const std::string& address, const std::string& algorithm,
                                                        const std::string& worker, Buffers buffers) {
  auto spec = std::make_shared<v1::ModelSpec>();
  spec->set_algorithm(algorithm);
  v1::Tensor* const tensor = spec->add_tensors();
  tensor->set_name("parameters");
  tensor->add_shape(static_cast<int64_t>(buffers.update.size()));
  auto joined = Worker::Join({.server = address, .model = "bench", .worker = worker, .create = spec});
  if (!joined.ok()) return joined.status();
  if (auto status = (*joined)->Initialize(buffers.update, kTimeout); !status.ok()) return status;
  // An algorithm that looks at the center last pulled refuses a commit before the first pull.
  if (auto status = (*joined)->Pull(buffers.center, kTimeout).status(); !status.ok()) return status;
  return std::make_unique<ParamdPeer>(*std::move(joined), buffers);
}

}  // namespace paramd::bench
