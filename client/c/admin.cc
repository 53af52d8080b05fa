#include "client/admin.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/c/call.h"
#include "client/c/handles.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

struct paramd_history {
  struct Series {
    std::string worker;
    std::vector<std::string> metric_names;
    std::vector<paramd_history_record> records;
    std::vector<double> metrics;  // [records, metric_names]
    uint64_t dropped = 0;
  };
  std::vector<Series> series;
};

namespace {

paramd_history::Series ReadSeries(const paramd::v1::WorkerHistory& history) {
  paramd_history::Series series{.worker = history.worker(),
                                .metric_names = {history.metric_names().begin(), history.metric_names().end()}};
  series.dropped = history.dropped();
  for (const paramd::v1::HistoryRecord& record : history.records()) {
    series.records.push_back(
        {.step = record.step(), .epoch = record.epoch(), .time_s = record.time_s(), .loss = record.loss()});
    // A record with other metrics than the names say: 0 for those it lacks.
    for (size_t i = 0; i < series.metric_names.size(); ++i) {
      series.metrics.push_back(i < static_cast<size_t>(record.metrics_size()) ? record.metrics(static_cast<int>(i))
                                                                              : 0);
    }
  }
  return series;
}

const paramd_history::Series* FindSeries(const paramd_history* history, size_t series) {
  return history != nullptr && series < history->series.size() ? &history->series[series] : nullptr;
}

absl::Status Connect(const std::string& server, const paramd::Security& security, double timeout,
                     paramd_admin** admin) {
  auto duration = paramd::c::Timeout(timeout);
  if (!duration.ok()) return duration.status();
  auto made = std::make_unique<paramd_admin>();
  auto connected = paramd::Admin::Connect(server, *duration, security);
  if (!connected.ok()) return connected.status();
  if (auto status = (*connected)->GetStatus(); !status.ok()) return status.status();
  made->admin = *std::move(connected);
  *admin = made.release();
  return absl::OkStatus();
}

}  // namespace

namespace paramd::c {

paramd_model_info Summarize(const v1::ModelInfo& model) {
  return {.version = model.version(),
          .parameters = model.parameters(),
          .initialized = model.initialized() ? 1 : 0,
          .workers = model.known_workers(),
          .live_workers = model.live_workers(),
          .commits = model.commits(),
          .rejected = model.rejected(),
          .mean_staleness = model.mean_staleness(),
          .training_time_s = model.training_time_s(),
          .waiting = model.waiting_workers()};
}

}  // namespace paramd::c

paramd_code paramd_admin_connect(const char* server, double timeout, paramd_admin** admin) {
  return Guard([&] {
    if (auto status = CheckGiven({{server, "server"}, {admin, "admin"}}); !status.ok()) return status;
    return Connect(server, {}, timeout, admin);
  });
}

paramd_code paramd_admin_connect_with(const paramd_worker_options* options, double timeout, paramd_admin** admin) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {admin, "admin"}}); !status.ok()) return status;
    return Connect(options->options.server, options->options.security, timeout, admin);
  });
}

void paramd_admin_free(paramd_admin* admin) { delete admin; }

paramd_code paramd_admin_create_model(paramd_admin* admin, const paramd_model_spec* spec) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {spec, "spec"}}); !status.ok()) return status;
    return admin->admin->CreateModel(spec->spec).status();
  });
}

paramd_code paramd_admin_delete_model(paramd_admin* admin, const char* model) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}}); !status.ok()) return status;
    return admin->admin->DeleteModel(model);
  });
}

paramd_code paramd_admin_get_model(paramd_admin* admin, const char* model, paramd_model_info* info) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {info, "info"}}); !status.ok()) return status;
    auto found = admin->admin->GetModel(model);
    if (!found.ok()) return found.status();
    *info = paramd::c::Summarize(*found);
    return absl::OkStatus();
  });
}

paramd_code paramd_admin_problem(paramd_admin* admin, const char* model, char* problem, size_t size) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {problem, "problem"}}); !status.ok()) {
      return status;
    }
    if (size == 0) return absl::InvalidArgumentError("problem has no room for its NUL");
    auto found = admin->admin->GetModel(model);
    if (!found.ok()) return found.status();
    const size_t length = std::min(found->problem().size(), size - 1);
    std::copy_n(found->problem().data(), length, problem);
    problem[length] = '\0';
    return absl::OkStatus();
  });
}

paramd_code paramd_admin_staleness(paramd_admin* admin, const char* model, uint64_t* histogram, size_t capacity,
                                   size_t* entries) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {entries, "entries"}}); !status.ok()) {
      return status;
    }
    if (histogram == nullptr && capacity > 0) return absl::InvalidArgumentError("histogram is null");
    auto found = admin->admin->GetModel(model);
    if (!found.ok()) return found.status();
    const auto& all = found->staleness_histogram();
    *entries = static_cast<size_t>(all.size());
    std::copy_n(all.begin(), std::min(capacity, *entries), histogram);
    return absl::OkStatus();
  });
}

paramd_code paramd_admin_pull(paramd_admin* admin, const char* model, float* center, size_t floats, int64_t* version) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {center, "center"}}); !status.ok()) {
      return status;
    }
    auto pulled = admin->admin->Pull(model, absl::MakeSpan(center, floats));
    if (!pulled.ok()) return pulled.status();
    if (version != nullptr) *version = pulled->version;
    return absl::OkStatus();
  });
}

paramd_code paramd_admin_initialize(paramd_admin* admin, const char* model, const float* center, size_t floats) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {center, "center"}}); !status.ok()) {
      return status;
    }
    return admin->admin->Initialize(model, absl::MakeConstSpan(center, floats));
  });
}

paramd_code paramd_admin_history(paramd_admin* admin, const char* model, int averaged, paramd_history** history) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {model, "model"}, {history, "history"}}); !status.ok()) {
      return status;
    }
    paramd::v1::GetHistoryRequest request;
    request.set_model(model);
    request.set_averaged(averaged != 0);
    auto reply = admin->admin->GetHistory(request);
    if (!reply.ok()) return reply.status();
    auto made = std::make_unique<paramd_history>();
    for (const auto& worker : reply->workers()) made->series.push_back(ReadSeries(worker));
    *history = made.release();
    return absl::OkStatus();
  });
}

void paramd_history_free(paramd_history* history) { delete history; }

size_t paramd_history_series(const paramd_history* history) { return history == nullptr ? 0 : history->series.size(); }

const char* paramd_history_worker(const paramd_history* history, size_t series) {
  const auto* found = FindSeries(history, series);
  return found == nullptr ? nullptr : found->worker.c_str();
}

size_t paramd_history_records(const paramd_history* history, size_t series, const paramd_history_record** records) {
  const auto* found = FindSeries(history, series);
  if (records != nullptr) *records = found == nullptr ? nullptr : found->records.data();
  return found == nullptr ? 0 : found->records.size();
}

size_t paramd_history_metrics(const paramd_history* history, size_t series) {
  const auto* found = FindSeries(history, series);
  return found == nullptr ? 0 : found->metric_names.size();
}

const char* paramd_history_metric_name(const paramd_history* history, size_t series, size_t metric) {
  const auto* found = FindSeries(history, series);
  return found == nullptr || metric >= found->metric_names.size() ? nullptr : found->metric_names[metric].c_str();
}

uint64_t paramd_history_dropped(const paramd_history* history, size_t series) {
  const auto* found = FindSeries(history, series);
  return found == nullptr ? 0 : found->dropped;
}

const double* paramd_history_metric_values(const paramd_history* history, size_t series) {
  const auto* found = FindSeries(history, series);
  return found == nullptr ? nullptr : found->metrics.data();
}
