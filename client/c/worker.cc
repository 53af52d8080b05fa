#include "client/worker.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "client/c/call.h"
#include "client/c/handles.h"
#include "client/wire_flags.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

struct paramd_memory {
  std::optional<paramd::Segment> segment;
};

namespace {

// Calls call(timeout), unless a window has the worker, and gives what it brought to `exchanged`, if that is not null.
template <typename Call>
absl::Status Exchange(const paramd_worker* worker, double timeout, paramd_exchanged* exchanged, const Call& call) {
  if (worker->has_window) {
    return absl::FailedPreconditionError(
        "a paramd_window has this worker, whose exchanges would disturb it: free the window first");
  }
  auto duration = paramd::c::Timeout(timeout);
  if (!duration.ok()) return duration.status();
  auto result = call(*duration);
  if (!result.ok()) return result.status();
  if (exchanged != nullptr) {
    *exchanged = {.version = result->version, .staleness = result->applied ? result->staleness : -1};
  }
  return absl::OkStatus();
}

const paramd::v1::ModelSpec& SpecOf(const paramd_worker* worker) { return worker->worker->model().spec(); }

bool Overlap(const float* a, const float* b, size_t floats) {
  const std::less<const float*> less;
  return less(a, b + floats) && less(b, a + floats);
}

}  // namespace

paramd_code paramd_worker_join(const paramd_worker_options* options, paramd_worker** worker) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {worker, "worker"}}); !status.ok()) return status;
    auto made = std::make_unique<paramd_worker>();
    auto joined = paramd::Worker::Join(options->options);
    if (!joined.ok()) return joined.status();
    made->worker = *std::move(joined);
    *worker = made.release();
    return absl::OkStatus();
  });
}

void paramd_worker_free(paramd_worker* worker) {
  Guard([&] {
    delete worker;
    return absl::OkStatus();
  });
}

paramd_memory* paramd_worker_take_memory(paramd_worker* worker) {
  paramd_memory* memory = nullptr;
  Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}}); !status.ok()) return status;
    auto made = std::make_unique<paramd_memory>();
    made->segment = worker->worker->TakeBuffers();
    if (made->segment.has_value()) memory = made.release();
    return absl::OkStatus();
  });
  return memory;
}

void paramd_memory_clear(paramd_memory* memory) {
  if (memory != nullptr) memory->segment->Clear();
}

void paramd_memory_free(paramd_memory* memory) { delete memory; }

uint64_t paramd_worker_incarnation(const paramd_worker* worker) {
  return worker == nullptr ? 0 : worker->worker->incarnation();
}

const char* paramd_worker_transport(const paramd_worker* worker) {
  if (worker == nullptr) return nullptr;
  return worker->worker->transport() == paramd::Transport::kShm ? "shm" : "grpc";
}

const char* paramd_worker_wire(const paramd_worker* worker) {
  if (worker == nullptr) return nullptr;
  switch (worker->worker->wire()) {
    case paramd::Wire::kFloat32:
      return "f32";
    case paramd::Wire::kFloat16:
      return "f16";
    case paramd::Wire::kBfloat16:
      return "bf16";
  }
  return nullptr;
}

const char* paramd_worker_model(const paramd_worker* worker) {
  return worker == nullptr ? nullptr : SpecOf(worker).name().c_str();
}

size_t paramd_worker_parameters(const paramd_worker* worker) {
  return worker == nullptr ? 0 : worker->worker->model().parameters();
}

const char* paramd_worker_algorithm(const paramd_worker* worker) {
  return worker == nullptr ? nullptr : SpecOf(worker).algorithm().c_str();
}

const char* paramd_worker_consistency(const paramd_worker* worker) {
  return worker == nullptr ? nullptr : SpecOf(worker).consistency().c_str();
}

size_t paramd_worker_hyperparameters(const paramd_worker* worker) {
  return worker == nullptr ? 0 : static_cast<size_t>(SpecOf(worker).hyperparameters_size());
}

const char* paramd_worker_hyperparameter_name(const paramd_worker* worker, size_t index) {
  if (index >= paramd_worker_hyperparameters(worker)) return nullptr;
  return SpecOf(worker).hyperparameters(static_cast<int>(index)).name().c_str();
}

double paramd_worker_hyperparameter_value(const paramd_worker* worker, size_t index) {
  if (index >= paramd_worker_hyperparameters(worker)) return 0;
  return SpecOf(worker).hyperparameters(static_cast<int>(index)).value();
}

size_t paramd_worker_tensors(const paramd_worker* worker) {
  return worker == nullptr ? 0 : static_cast<size_t>(SpecOf(worker).tensors_size());
}

const char* paramd_worker_tensor_name(const paramd_worker* worker, size_t index) {
  return index < paramd_worker_tensors(worker) ? SpecOf(worker).tensors(static_cast<int>(index)).name().c_str()
                                               : nullptr;
}

const int64_t* paramd_worker_tensor_shape(const paramd_worker* worker, size_t index, size_t* rank) {
  if (rank != nullptr) *rank = 0;
  if (index >= paramd_worker_tensors(worker)) return nullptr;
  const auto& shape = SpecOf(worker).tensors(static_cast<int>(index)).shape();
  if (rank != nullptr) *rank = static_cast<size_t>(shape.size());
  return shape.empty() ? nullptr : shape.data();
}

paramd_code paramd_worker_initialize(paramd_worker* worker, const float* center, size_t floats, double timeout) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}, {center, "center"}}); !status.ok()) return status;
    auto duration = paramd::c::Timeout(timeout);
    if (!duration.ok()) return duration.status();
    return worker->worker->Initialize(absl::MakeConstSpan(center, floats), *duration);
  });
}

paramd_code paramd_worker_pull(paramd_worker* worker, float* center, size_t floats, double timeout,
                               paramd_exchanged* exchanged) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}, {center, "center"}}); !status.ok()) return status;
    return Exchange(worker, timeout, exchanged, [&](absl::Duration duration) {
      return worker->worker->Pull(absl::MakeSpan(center, floats), duration);
    });
  });
}

paramd_code paramd_worker_commit(paramd_worker* worker, const float* update, size_t floats, double timeout,
                                 paramd_exchanged* exchanged) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}, {update, "update"}}); !status.ok()) return status;
    return Exchange(worker, timeout, exchanged, [&](absl::Duration duration) {
      return worker->worker->Commit(absl::MakeConstSpan(update, floats), duration);
    });
  });
}

paramd_code paramd_worker_exchange(paramd_worker* worker, const float* update, float* center, size_t floats,
                                   double timeout, paramd_exchanged* exchanged) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}, {update, "update"}, {center, "center"}}); !status.ok()) {
      return status;
    }
    if (Overlap(update, center, floats)) {
      return absl::InvalidArgumentError("update and center overlap; give each memory of its own");
    }
    return Exchange(worker, timeout, exchanged, [&](absl::Duration duration) {
      return worker->worker->Exchange(absl::MakeConstSpan(update, floats), absl::MakeSpan(center, floats), duration);
    });
  });
}

float* paramd_worker_commit_buffer(paramd_worker* worker) {
  return worker == nullptr ? nullptr : worker->worker->commit_buffer().data();
}

float* paramd_worker_center_buffer(paramd_worker* worker) {
  return worker == nullptr ? nullptr : worker->worker->center_buffer().data();
}

paramd_commit_state paramd_worker_commit_state(const paramd_worker* worker) {
  if (worker == nullptr) return PARAMD_COMMIT_NONE;
  switch (worker->worker->last_commit()) {
    case paramd::CommitState::kNone:
      return PARAMD_COMMIT_NONE;
    case paramd::CommitState::kApplied:
      return PARAMD_COMMIT_APPLIED;
    case paramd::CommitState::kNotApplied:
      return PARAMD_COMMIT_NOT_APPLIED;
    case paramd::CommitState::kUnknown:
      return PARAMD_COMMIT_UNKNOWN;
  }
  return PARAMD_COMMIT_UNKNOWN;
}

paramd_code paramd_worker_cancel(paramd_worker* worker) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}}); !status.ok()) return status;
    worker->worker->Cancel();
    return absl::OkStatus();
  });
}

paramd_code paramd_worker_resume(paramd_worker* worker) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}}); !status.ok()) return status;
    worker->worker->Resume();
    return absl::OkStatus();
  });
}

paramd_code paramd_worker_leave(paramd_worker* worker, const char* error, double timeout) {
  return Guard([&] {
    if (auto status = CheckGiven({{worker, "worker"}}); !status.ok()) return status;
    auto duration = paramd::c::Timeout(timeout);
    if (!duration.ok()) return duration.status();
    return worker->worker->Leave(error == nullptr ? "" : error, *duration);
  });
}
