// A plugin whose algorithm, `throwing`, throws where its hyperparameter says, and else adds commits up; or while it
// registers itself, if the environment says so.
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "algorithms/registry.h"

namespace {

enum Place { kNowhere, kValidate, kMakeServer, kMerge, kFinish, kMakeWorker };

void ThrowIn(Place place, const paramd::Hyperparameters& h) {
  if (h.at("place") == static_cast<double>(place)) throw std::runtime_error("out of magic");
}

class Server : public paramd::ServerHalf {
 public:
  explicit Server(const paramd::Hyperparameters& h) : h_(h) { ThrowIn(kMakeServer, h); }

  void Merge(const paramd::CommitInfo& commit, const paramd::MergePiece& piece) const override {
    ThrowIn(kMerge, h_);
    ServerHalf::Merge(commit, piece);
  }
  void Finish(const paramd::RoundInfo& round, const paramd::FinishPiece& piece) const override {
    ThrowIn(kFinish, h_);
    ServerHalf::Finish(round, piece);
  }

 private:
  const paramd::Hyperparameters h_;
};

class Worker : public paramd::WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float> parameters, absl::Span<const float> pulled,
                  absl::Span<float> commit) override {
    for (size_t i = 0; i < commit.size(); ++i) commit[i] = parameters[i] - pulled[i];
  }
};

paramd::Algorithm Throwing() {
  if (std::getenv("PARAMD_TEST_THROW_IN_REGISTRATION") != nullptr) throw std::runtime_error("out of magic");
  return {.name = "throwing",
          .hyperparameters = {{.name = "place", .default_value = kNowhere, .min = kNowhere, .max = kMakeWorker}},
          .validate =
              [](const paramd::Hyperparameters& h) {
                ThrowIn(kValidate, h);
                return absl::OkStatus();
              },
          .make_server = [](const paramd::Hyperparameters& h) { return std::make_unique<Server>(h); },
          .make_worker =
              [](const paramd::Hyperparameters& h) {
                ThrowIn(kMakeWorker, h);
                return std::make_unique<Worker>();
              }};
}

REGISTER_ALGORITHM(Throwing());

}  // namespace
