// What the opaque handles hold. Internal to client/c.
#ifndef PARAMD_CLIENT_C_HANDLES_H_
#define PARAMD_CLIENT_C_HANDLES_H_

#include <memory>
#include <stop_token>

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
};

struct paramd_mlp {
  std::unique_ptr<paramd::Mlp> mlp;
  paramd::Batch batch;  // of train_on_batch
};

namespace paramd::c {

// The network behind a trainable that paramd_mlp_trainable has filled, else null.
Mlp* FindMlp(const paramd_trainable& trainable);

}  // namespace paramd::c

#endif  // PARAMD_CLIENT_C_HANDLES_H_
