#include <algorithm>
#include <functional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "client/guarded.h"
#include "client/worker.h"

namespace paramd {
namespace {

struct Half {
  Hyperparameters hyperparameters;
  std::unique_ptr<WorkerHalf> half;
};

// That of the model's algorithm.
absl::StatusOr<Half> MakeHalf(const Worker& worker) {
  const v1::ModelSpec& spec = worker.model().spec();
  auto algorithm = FindAlgorithm(spec.algorithm());
  if (!algorithm.ok()) return algorithm.status();
  Half made;
  for (const v1::Hyperparameter& h : spec.hyperparameters()) made.hyperparameters[h.name()] = h.value();
  auto half = MakeWorkerHalf(**algorithm, made.hyperparameters);
  if (!half.ok()) return half.status();
  made.half = *std::move(half);
  return made;
}

// Makes the parameters the model's center if it has none.
absl::Status InitializeIfFirst(Worker* worker, const std::vector<absl::Span<float>>& parameters,
                               absl::Duration timeout) {
  size_t floats = 0;
  for (const absl::Span<float> span : parameters) floats += span.size();
  const v1::ModelInfo& model = worker->model();
  if (floats != model.parameters()) {
    return absl::InvalidArgumentError(absl::StrCat("this worker's network has ", floats, " parameters, but model '",
                                                   model.spec().name(), "' has ", model.parameters(),
                                                   "; compare its layers with the model's tensors"));
  }
  if (model.initialized()) return absl::OkStatus();
  absl::Span<const float> center = parameters[0];
  std::vector<float> gathered;
  if (parameters.size() > 1) {
    gathered.reserve(floats);
    for (const absl::Span<float> span : parameters) gathered.insert(gathered.end(), span.begin(), span.end());
    center = gathered;
  }
  const absl::Status status = worker->Initialize(center, timeout);
  // Another worker was first: its center is as good.
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

// `next`, after the steps went to the worker's history.
std::function<absl::Status(const std::vector<StepResult>&)> Reporting(
    Worker* worker, std::vector<std::string> metric_names,
    std::function<absl::Status(const std::vector<StepResult>&)> next) {
  return
      [worker, metric_names = std::move(metric_names), next = std::move(next)](const std::vector<StepResult>& steps) {
        worker->Report(metric_names, steps).IgnoreError();  // on_event has been told
        return next != nullptr ? next(steps) : absl::OkStatus();
      };
}

// `next`, after the worker kept the steps until it knows.
std::function<void(const std::vector<StepResult>&)> ReportingOnceApplied(
    Worker* worker, std::vector<std::string> metric_names, std::function<void(const std::vector<StepResult>&)> next) {
  return
      [worker, metric_names = std::move(metric_names), next = std::move(next)](const std::vector<StepResult>& steps) {
        worker->ReportOnceApplied(metric_names, steps);
        if (next != nullptr) next(steps);
      };
}

absl::StatusOr<TrainSummary> Train(Worker* worker, const std::stop_token& stop, TrainOptions options, Trainable* model,
                                   BatchSource* source, const std::function<void(Worker*, TrainLoop*)>& on_joined,
                                   TrainSummary* summary) {
  auto half = MakeHalf(*worker);
  if (!half.ok()) return half.status();
  const GuardedTrainable guarded(model);
  auto parameters = guarded.parameters();
  if (!parameters.ok()) return parameters.status();
  auto names = guarded.metric_names();
  if (!names.ok()) return names.status();
  const absl::Duration timeout = options.exchange_timeout;
  options.on_unknown = ReportingOnceApplied(worker, *names, std::move(options.on_unknown));
  options.on_window = Reporting(worker, *std::move(names), std::move(options.on_window));
  TrainLoop loop(model, source, worker, std::move(half->half), half->hyperparameters, std::move(options));
  // The first center is for good, so whatever can be refused comes before it.
  if (auto status = loop.Prepare(); !status.ok()) return status;
  if (auto status = InitializeIfFirst(worker, {*parameters}, timeout); !status.ok()) return status;
  const auto tell = [&](Worker* of, TrainLoop* its) {
    return on_joined == nullptr ? absl::OkStatus() : RunUserCode([&] { on_joined(of, its); }, "on_joined");
  };
  if (auto told = tell(worker, &loop); !told.ok()) return told;
  const std::stop_callback<std::function<void()>> on_stop(stop, [&loop] { loop.Cancel(); });
  auto trained = loop.Run();
  if (summary != nullptr) *summary = loop.summary();
  if (auto told = tell(nullptr, nullptr); trained.ok() && !told.ok()) return told;
  return trained;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Window>> MakeWindow(Worker* worker, const std::vector<absl::Span<float>>& parameters,
                                                   WindowOptions options, std::vector<std::string> metric_names) {
  auto half = MakeHalf(*worker);
  if (!half.ok()) return half.status();
  const absl::Duration timeout = options.exchange_timeout;
  options.last_step = worker->last_step();
  options.on_unknown = ReportingOnceApplied(worker, metric_names, std::move(options.on_unknown));
  options.on_window = Reporting(worker, std::move(metric_names), std::move(options.on_window));
  auto window = Window::Create(parameters, worker, std::move(half->half), half->hyperparameters, std::move(options));
  if (!window.ok()) return window.status();
  // The first center is for good, so whatever can be refused comes before it.
  if (auto status = InitializeIfFirst(worker, parameters, timeout); !status.ok()) return status;
  return window;
}

absl::StatusOr<TrainSummary> RunWorker(const WorkerOptions& worker_options, const TrainOptions& train_options,
                                       Trainable* model, BatchSource* source,
                                       const std::function<void(Worker*, TrainLoop*)>& on_joined,
                                       TrainSummary* summary) {
  if (model == nullptr || source == nullptr) {
    return absl::InvalidArgumentError("there is no model or no batch source to train with: both must be given");
  }
  // A training that is refused neither creates its model nor leaves a failed worker.
  if (auto status = TrainLoop::CheckOptions(train_options); !status.ok()) return status;
  auto worker = Worker::Join(worker_options);
  if (!worker.ok()) return worker.status();
  auto trained = Train(worker->get(), worker_options.stop, train_options, model, source, on_joined, summary);
  // Whoever cancelled does not want to wait for a server that may be away, nor for one that was found to be.
  const bool hurry = absl::IsCancelled(trained.status()) || absl::IsUnavailable(trained.status()) ||
                     absl::IsDeadlineExceeded(trained.status());
  const absl::Duration timeout = hurry ? absl::Seconds(1) : absl::Seconds(10);
  const absl::Status left = (*worker)->Leave(trained.ok() ? "" : trained.status().message(), timeout);
  // Everything it learned is committed: a server that went away meanwhile takes nothing from that.
  if (const auto tell = GuardedEvents(worker_options.on_event); !left.ok() && tell != nullptr) {
    tell(absl::StrCat("leave: ", left.message()));
  }
  return trained;
}

}  // namespace paramd
