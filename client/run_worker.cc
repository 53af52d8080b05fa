#include <functional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "client/worker.h"

namespace paramd {
namespace {

absl::StatusOr<TrainSummary> Train(Worker* worker, const std::stop_token& stop, TrainOptions options, Trainable* model,
                                   BatchSource* source, const std::function<void(Worker*, TrainLoop*)>& on_joined) {
  const v1::ModelSpec& spec = worker->model().spec();
  auto algorithm = FindAlgorithm(spec.algorithm());
  if (!algorithm.ok()) return algorithm.status();
  Hyperparameters hyperparameters;
  for (const v1::Hyperparameter& h : spec.hyperparameters()) hyperparameters[h.name()] = h.value();
  if (model->parameters().size() != worker->model().parameters()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this worker's network has ", model->parameters().size(), " parameters, but model '", spec.name(), "' has ",
        worker->model().parameters(), "; compare its layers with `paramctl show ", spec.name(), "`"));
  }
  if (!worker->model().initialized()) {
    const absl::Status status = worker->Initialize(model->parameters(), options.exchange_timeout);
    // Another worker was first: its center is as good.
    if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  }
  const auto report = [worker, names = model->metric_names(),
                       next = options.on_window](const std::vector<StepResult>& steps) {
    worker->Report(names, steps);
    return next != nullptr ? next(steps) : absl::OkStatus();
  };
  options.on_window = report;
  TrainLoop loop(model, source, worker, (*algorithm)->make_worker(hyperparameters), hyperparameters,
                 std::move(options));
  if (on_joined != nullptr) on_joined(worker, &loop);
  const std::stop_callback<std::function<void()>> on_stop(stop, [&loop] { loop.Cancel(); });
  auto summary = loop.Run();
  if (on_joined != nullptr) on_joined(nullptr, nullptr);
  return summary;
}

}  // namespace

absl::StatusOr<TrainSummary> RunWorker(const WorkerOptions& worker_options, const TrainOptions& train_options,
                                       Trainable* model, BatchSource* source,
                                       const std::function<void(Worker*, TrainLoop*)>& on_joined) {
  auto worker = Worker::Join(worker_options);
  if (!worker.ok()) return worker.status();
  auto summary = Train(worker->get(), worker_options.stop, train_options, model, source, on_joined);
  // Whoever cancelled does not want to wait for a server that may be away.
  const absl::Duration timeout = absl::IsCancelled(summary.status()) ? absl::Seconds(1) : absl::Seconds(10);
  const absl::Status left = (*worker)->Leave(summary.ok() ? "" : summary.status().message(), timeout);
  // Everything it learned is committed: a server that went away meanwhile takes nothing from that.
  if (!left.ok() && worker_options.on_event != nullptr) {
    worker_options.on_event(absl::StrCat("leave: ", left.message()));
  }
  return summary;
}

}  // namespace paramd
