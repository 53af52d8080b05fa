#include "client/cli/text_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/table.h"
#include "client/cli/words.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd::cli {
namespace {

std::string Version(const v1::ModelInfo& model) {
  return model.initialized() ? CountText(static_cast<uint64_t>(model.version())) : "no center";
}

// "0: 120, 1: 30, 5: 1": how many commits had which staleness.
std::string Histogram(const google::protobuf::RepeatedField<uint64_t>& histogram) {
  std::vector<std::string> parts;
  for (int i = 0; i < histogram.size(); ++i) {
    const bool open_ended = i > 0 && i + 1 == histogram.size();
    if (histogram[i] > 0) parts.push_back(absl::StrCat(i, open_ended ? "+" : "", ": ", CountText(histogram[i])));
  }
  return parts.empty() ? "no commits" : absl::StrJoin(parts, ", ");
}

std::string WorkerNote(const v1::WorkerInfo& worker) {
  if (worker.state() != v1::WorkerInfo::LIVE) return worker.message();
  const std::string lease = absl::StrCat("lease ", DurationText(worker.lease_remaining_s()));
  return worker.waiting() ? "waits for others, " + lease : lease;
}

void AddWorkers(const v1::ModelInfo& model, bool name_model, Table* table) {
  for (const v1::WorkerInfo& worker : model.workers()) {
    std::vector<std::string> row;
    if (name_model) row.push_back(model.spec().name());
    row.push_back(worker.worker());
    row.push_back(absl::StrCat(worker.incarnation()));
    row.push_back(StateText(worker.state()));
    row.push_back(CountText(worker.clock()));
    row.push_back(CountText(worker.commits()));
    row.push_back(CountText(worker.pulls()));
    row.push_back(CountText(worker.rejected()));
    row.push_back(worker.base_version() < 0 ? "-" : CountText(static_cast<uint64_t>(worker.base_version())));
    row.push_back(FigureText(worker.mean_staleness()));
    row.push_back(WorkerNote(worker));
    table->AddRow(std::move(row));
  }
}

std::vector<std::string> WorkerHeadings(bool name_model) {
  std::vector<std::string> headings = {"WORKER", ">INCARNATION", "STATE",         ">CLOCK",     ">COMMITS",
                                       ">PULLS", ">REJECTED",    ">BASE VERSION", ">STALENESS", "NOTE"};
  if (name_model) headings.insert(headings.begin(), "MODEL");
  return headings;
}

// The metric names of all series, each once.
std::vector<std::string> MetricNames(const v1::GetHistoryReply& history) {
  std::vector<std::string> names;
  for (const v1::WorkerHistory& series : history.workers()) {
    for (const std::string& name : series.metric_names()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

// Calls `add(series, record, metrics)` for every record to show; a metric that a series doesn't have is null.
template <typename Add>
void ForEachRecord(const v1::GetHistoryReply& history, int64_t last, const std::vector<std::string>& metric_names,
                   const Add& add) {
  for (const v1::WorkerHistory& series : history.workers()) {
    std::vector<int> places;
    for (const std::string& name : metric_names) {
      const auto found = std::find(series.metric_names().begin(), series.metric_names().end(), name);
      places.push_back(found == series.metric_names().end()
                           ? -1
                           : static_cast<int>(std::distance(series.metric_names().begin(), found)));
    }
    for (int i = FirstRecord(series.records_size(), last); i < series.records_size(); ++i) {
      const v1::HistoryRecord& record = series.records(i);
      std::vector<const double*> metrics;
      for (const int place : places) {
        metrics.push_back(place < 0 || place >= record.metrics_size() ? nullptr : &record.metrics().Get(place));
      }
      add(series, record, metrics);
    }
  }
}

std::vector<std::string> Problems(const v1::ModelInfo& model) {
  std::vector<std::string> problems;
  if (!model.problem().empty()) problems.push_back(model.problem());
  if (!model.checkpoint_problem().empty()) problems.push_back("no checkpoint: " + model.checkpoint_problem());
  return problems;
}

std::string CsvCell(const std::string& cell) {
  const std::string text = Printable(cell);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string ModelsText(const Models& models) {
  if (models.empty()) return "no models\n";
  Table table({"MODEL", "ALGORITHM", "CONSISTENCY", ">PARAMETERS", ">VERSION", ">LIVE", ">WORKERS", ">STALENESS"});
  for (const v1::ModelInfo& model : models) {
    table.AddRow({model.spec().name(), model.spec().algorithm(), model.spec().consistency(),
                  CountText(model.parameters()), Version(model), CountText(model.live_workers()),
                  CountText(model.known_workers()), FigureText(model.mean_staleness())});
  }
  Table problems({"MODEL", "PROBLEM"});
  bool any = false;
  for (const v1::ModelInfo& model : models) {
    for (const std::string& problem : Problems(model)) {
      problems.AddRow({model.spec().name(), problem});
      any = true;
    }
  }
  return any ? absl::StrCat(table.Text(), "\n", problems.Text()) : table.Text();
}

std::string ModelText(const v1::ModelInfo& model) {
  const v1::ModelSpec& spec = model.spec();
  Table facts({"model", spec.name()});
  facts.AddRow({"algorithm", spec.algorithm()});
  facts.AddRow({"consistency", spec.consistency()});
  facts.AddRow({"version", Version(model)});
  for (const std::string& problem : Problems(model)) facts.AddRow({"problem", problem});
  if (model.has_checkpoint()) {
    facts.AddRow({"checkpoint", absl::StrCat("version ", CountText(static_cast<uint64_t>(model.checkpoint_version())),
                                             ", ", DurationText(model.checkpoint_age_s()), " old")});
  }
  facts.AddRow({"parameters",
                absl::StrCat(CountText(model.parameters()), " (", BytesText(model.parameters() * sizeof(float)), ")")});
  facts.AddRow({"training time", DurationText(model.training_time_s())});
  facts.AddRow({"mean staleness", FigureText(model.mean_staleness())});
  facts.AddRow({"staleness", Histogram(model.staleness_histogram())});
  facts.AddRow({"rejected", CountText(model.rejected())});
  facts.AddRow({"pinned", BytesText(model.pinned_bytes())});
  std::string text = facts.Text();

  Table hyperparameters({"HYPERPARAMETER", ">VALUE"});
  for (const v1::Hyperparameter& each : spec.hyperparameters()) {
    hyperparameters.AddRow({each.name(), NumberText(each.value())});
  }
  if (spec.hyperparameters_size() > 0) absl::StrAppend(&text, "\n", hyperparameters.Text());

  Table tensors({"TENSOR", "SHAPE", ">PARAMETERS"});
  for (const v1::Tensor& tensor : spec.tensors()) {
    const auto shape = absl::MakeConstSpan(tensor.shape().data(), static_cast<size_t>(tensor.shape_size()));
    tensors.AddRow(
        {tensor.name(), ShapeText(shape), CountText(static_cast<uint64_t>(ElementCount(shape).value_or(0)))});
  }
  absl::StrAppend(&text, "\n", tensors.Text());

  if (model.workers().empty()) return text + "\nno workers\n";
  Table workers(WorkerHeadings(false));
  AddWorkers(model, false, &workers);
  return absl::StrCat(text, "\n", workers.Text());
}

std::string HistoryText(const v1::GetHistoryReply& history, int64_t last) {
  std::string text = absl::StrCat(CountText(static_cast<uint64_t>(history.updates())), " updates in ",
                                  DurationText(history.training_time_s()), "; staleness ",
                                  Histogram(history.staleness_histogram()), "\n");
  const std::vector<std::string> metric_names = MetricNames(history);
  std::vector<std::string> headings = {"WORKER", ">STEP", ">EPOCH", ">TIME", ">LOSS"};
  for (const std::string& name : metric_names) headings.push_back(">" + name);
  Table table(headings);
  bool any = false;
  ForEachRecord(history, last, metric_names,
                [&](const v1::WorkerHistory& series, const v1::HistoryRecord& record, const auto& metrics) {
                  std::vector<std::string> row = {series.worker().empty() ? "mean" : series.worker(),
                                                  CountText(record.step()), absl::StrFormat("%.2f", record.epoch()),
                                                  DurationText(record.time_s()), FigureText(record.loss())};
                  for (const double* metric : metrics) row.push_back(metric == nullptr ? "-" : FigureText(*metric));
                  table.AddRow(std::move(row));
                  any = true;
                });
  if (!any) return text + "no records\n";
  absl::StrAppend(&text, "\n", table.Text());

  for (const v1::WorkerHistory& series : history.workers()) {
    const std::string name = series.worker().empty() ? "mean" : Printable(series.worker());
    if (const int hidden = FirstRecord(series.records_size(), last); hidden > 0) {
      absl::StrAppend(&text, name, ": ", CountText(static_cast<uint64_t>(hidden)),
                      " earlier records not shown (--last=0 shows all)\n");
    }
    if (series.dropped() > 0) {
      absl::StrAppend(&text, name, ": ", CountText(series.dropped()), " older records were dropped by the server\n");
    }
  }
  return text;
}

std::string HistoryCsv(const v1::GetHistoryReply& history, int64_t last) {
  const std::vector<std::string> metric_names = MetricNames(history);
  std::string text = "worker,step,epoch,time_s,loss";
  for (const std::string& name : metric_names) absl::StrAppend(&text, ",", CsvCell(name));
  text += "\n";
  ForEachRecord(history, last, metric_names,
                [&](const v1::WorkerHistory& series, const v1::HistoryRecord& record, const auto& metrics) {
                  absl::StrAppend(&text, CsvCell(series.worker()), ",", record.step(), ",", NumberText(record.epoch()),
                                  ",", NumberText(record.time_s()), ",", NumberText(record.loss()));
                  for (const double* metric : metrics) {
                    absl::StrAppend(&text, ",", metric == nullptr ? "" : NumberText(*metric));
                  }
                  text += "\n";
                });
  return text;
}

std::string StatusText(const v1::ServerStatus& status) {
  std::string text = absl::StrCat(
      "paramd ", Printable(status.version()), ", up ", DurationText(status.uptime_s()),
      status.draining() ? ", draining" : "", "; ", "connections ", CountText(status.connections()), " (",
      CountText(status.refused_connections()), " refused), sessions ", CountText(status.sessions()), "; in flight ",
      BytesText(status.in_flight_bytes()), " of ", BytesText(status.max_in_flight_bytes()), ", ",
      CountText(status.queued_exchanges()), " queued; shared ", BytesText(status.shared_bytes()), " of ",
      BytesText(status.max_shared_bytes()), ", with ", CountText(status.segments()), " workers; memory ",
      BytesText(status.resident_bytes()), ", of it base centers ", BytesText(status.base_bytes()), ", rounds ",
      BytesText(status.round_bytes()), ", histories ", BytesText(status.history_bytes()), " of ",
      BytesText(status.max_history_bytes()), ", images ", BytesText(status.image_bytes()), "\n");
  if (!status.state_dir().empty()) {
    absl::StrAppend(&text, "state in ", Printable(status.state_dir()), ", journal ", BytesText(status.log_bytes()),
                    ", ", CountText(status.log_waiting()), " records waiting",
                    status.log_problem().empty() ? "" : "; it has a problem: ", Printable(status.log_problem()), "\n");
  }
  absl::StrAppend(&text, "\n", ModelsText(status.models()));
  Table workers(WorkerHeadings(true));
  bool any = false;
  for (const v1::ModelInfo& model : status.models()) {
    AddWorkers(model, true, &workers);
    any = any || model.workers_size() > 0;
  }
  if (any) absl::StrAppend(&text, "\n", workers.Text());
  return text;
}

std::string AlgorithmsText(const v1::ListAlgorithmsReply& reply) {
  std::string text;
  for (const v1::AlgorithmInfo& algorithm : reply.algorithms()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(algorithm.name()), " (",
                    Printable(algorithm.default_consistency()), "): ", Printable(algorithm.description()), "\n");
    Table table({"HYPERPARAMETER", ">DEFAULT", ">MIN", ">MAX", "MEANING"});
    for (const v1::AlgorithmInfo::Parameter& each : algorithm.hyperparameters()) {
      table.AddRow({each.name(), NumberText(each.default_value()), NumberText(each.min()), NumberText(each.max()),
                    each.description()});
    }
    if (algorithm.hyperparameters_size() > 0) text += table.Text(2);
  }
  return text;
}

}  // namespace paramd::cli
