#include "client/window.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/c/call.h"
#include "client/c/handles.h"
#include "client/worker.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

struct paramd_window {
  ~paramd_window() {
    window.reset();
    if (worker != nullptr) worker->has_window = false;
  }

  paramd_worker* worker = nullptr;  // marked as this window's
  size_t metrics = 0;
  std::unique_ptr<paramd::Window> window;
};

namespace {

struct Options {
  paramd::WindowOptions window;
  std::vector<std::string> metric_names;
};

absl::StatusOr<Options> ReadOptions(const paramd_window_options* given) {
  Options options;
  if (given == nullptr) return options;
  auto read = paramd::c::ReadSized(given, "paramd_window_options");
  if (!read.ok()) return read.status();
  options.window.communication_window = read->communication_window;
  options.window.overlap = read->overlap != 0;
  if (read->exchange_timeout != 0) {
    auto timeout = paramd::c::Timeout(read->exchange_timeout);
    if (!timeout.ok()) return timeout.status();
    options.window.exchange_timeout = *timeout;
  }
  if (auto status = paramd::c::CheckNames(read->metric_names, read->metrics); !status.ok()) return status;
  options.metric_names.assign(read->metric_names, read->metric_names + read->metrics);
  return options;
}

absl::Status Make(paramd_worker* worker, const paramd_span* parameters, size_t spans,
                  const paramd_window_options* options, paramd_window** window) {
  if (auto status = CheckGiven({{worker, "worker"}, {parameters, "parameters"}, {window, "window"}}); !status.ok()) {
    return status;
  }
  std::vector<absl::Span<float>> tensors;
  for (size_t i = 0; i < spans; ++i) {
    if (parameters[i].floats == nullptr && parameters[i].count > 0) {
      return absl::InvalidArgumentError(absl::StrCat("span ", i, " of the parameters is at a null pointer"));
    }
    tensors.push_back(absl::MakeSpan(parameters[i].floats, parameters[i].count));
  }
  auto read = ReadOptions(options);
  if (!read.ok()) return read.status();
  auto made = std::make_unique<paramd_window>();
  if (worker->has_window.exchange(true)) {
    return absl::FailedPreconditionError("the worker has a paramd_window already: free that first");
  }
  made->worker = worker;
  made->metrics = read->metric_names.size();
  auto windows =
      paramd::MakeWindow(worker->worker.get(), tensors, std::move(read->window), std::move(read->metric_names));
  if (!windows.ok()) return windows.status();
  made->window = *std::move(windows);
  *window = made.release();
  return absl::OkStatus();
}

// Calls one of the window's methods.
paramd_code Call(paramd_window* window, absl::Status (paramd::Window::*method)()) {
  return Guard([&] {
    if (auto status = CheckGiven({{window, "window"}}); !status.ok()) return status;
    return (window->window.get()->*method)();
  });
}

}  // namespace

paramd_code paramd_window_new(paramd_worker* worker, const paramd_span* parameters, size_t spans,
                              const paramd_window_options* options, paramd_window** window) {
  return Guard([&] { return Make(worker, parameters, spans, options, window); });
}

void paramd_window_free(paramd_window* window) {
  Guard([&] {
    delete window;
    return absl::OkStatus();
  });
}

paramd_code paramd_window_begin(paramd_window* window) { return Call(window, &paramd::Window::Begin); }
paramd_code paramd_window_before_step(paramd_window* window) { return Call(window, &paramd::Window::BeforeStep); }
paramd_code paramd_window_end(paramd_window* window) { return Call(window, &paramd::Window::End); }
paramd_code paramd_window_finish(paramd_window* window) { return Call(window, &paramd::Window::Finish); }
paramd_code paramd_window_abandon(paramd_window* window) { return Call(window, &paramd::Window::Abandon); }

paramd_code paramd_window_after_step(paramd_window* window, double epoch, const double* results, int* full) {
  return Guard([&] {
    if (auto status = CheckGiven({{window, "window"}, {results, "results"}, {full, "full"}}); !status.ok()) {
      return status;
    }
    auto status = window->window->AfterStep(
        {.epoch = epoch, .loss = results[0], .metrics = {results + 1, results + 1 + window->metrics}});
    if (status.ok()) *full = window->window->full() ? 1 : 0;
    return status;
  });
}

int paramd_window_by_epoch(const paramd_window* window) {
  return window != nullptr && window->window->exchanges_by_epoch() ? 1 : 0;
}

paramd_code paramd_window_get_statistics(const paramd_window* window, paramd_window_statistics* statistics) {
  return Guard([&] {
    if (auto status = CheckGiven({{window, "window"}, {statistics, "statistics"}}); !status.ok()) return status;
    const paramd::WindowStatistics read = window->window->statistics();
    *statistics = {.steps = read.steps,
                   .exchanges = read.exchanges,
                   .exchanged = read.exchanged,
                   .mean_staleness = read.mean_staleness,
                   .exchanging_s = absl::ToDoubleSeconds(read.exchanging)};
    return absl::OkStatus();
  });
}
