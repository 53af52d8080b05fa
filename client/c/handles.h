// What the opaque handles hold. Internal to client/c.
#ifndef PARAMD_CLIENT_C_HANDLES_H_
#define PARAMD_CLIENT_C_HANDLES_H_

#include <atomic>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "client/admin.h"
#include "client/c/paramd.h"
#include "client/mlp/mlp.h"
#include "client/worker.h"
#include "proto/paramd.pb.h"

struct paramd_canceller {
  std::stop_source source;
};

struct paramd_model_spec {
  paramd::v1::ModelSpec spec;
};

struct paramd_worker_options {
  paramd::WorkerOptions options;
};

struct paramd_worker {
  std::unique_ptr<paramd::Worker> worker;
  std::atomic<bool> has_window{false};
};

struct paramd_admin {
  std::unique_ptr<paramd::Admin> admin;
};

struct paramd_models {
  std::vector<paramd::v1::ModelInfo> models;
};

struct paramd_mlp {
  std::unique_ptr<paramd::Mlp> mlp;
  paramd::Batch batch;  // of train_on_batch
};

namespace paramd::c {

// A minibatch as a callback gets it, which refers to `batch` and to `inputs`.
paramd_batch View(const Batch& batch, std::vector<paramd_input>* inputs);
// Copies what a callback gave. INVALID_ARGUMENT if it can't be one.
absl::Status Copy(const paramd_batch& view, Batch* batch);
// Without the inputs, which a batch that a program of ABI version 1 made does not have.
absl::Status CopyFloats(const paramd_batch& view, Batch* batch);

paramd_model_info Summarize(const v1::ModelInfo& model);

// The network behind a trainable that paramd_mlp_trainable has filled, else null.
Mlp* FindMlp(const paramd_trainable& trainable);

}  // namespace paramd::c

#endif  // PARAMD_CLIENT_C_HANDLES_H_
