#include "client/cli/json_view.h"

#include "client/cli/words.h"

namespace paramd::cli {
namespace {

OrderedJson WorkerJson(const v1::WorkerInfo& worker) {
  return {
      {"worker", worker.worker()},
      {"incarnation", worker.incarnation()},
      {"state", StateText(worker.state())},
      {"message", worker.message()},
      {"clock", worker.clock()},
      {"commits", worker.commits()},
      {"pulls", worker.pulls()},
      {"rejected", worker.rejected()},
      {"base_version", worker.base_version()},
      {"mean_staleness", worker.mean_staleness()},
      {"lease_remaining_s", worker.lease_remaining_s()},
      {"waiting", worker.waiting()},
  };
}

}  // namespace

OrderedJson ModelJson(const v1::ModelInfo& model) {
  OrderedJson hyperparameters = OrderedJson::object();
  for (const v1::Hyperparameter& each : model.spec().hyperparameters()) hyperparameters[each.name()] = each.value();
  OrderedJson tensors = OrderedJson::array();
  for (const v1::Tensor& tensor : model.spec().tensors()) {
    OrderedJson& json = tensors.emplace_back(OrderedJson::object());
    json["name"] = tensor.name();
    json["shape"] = tensor.shape();
  }
  OrderedJson workers = OrderedJson::array();
  for (const v1::WorkerInfo& worker : model.workers()) workers.push_back(WorkerJson(worker));
  return {
      {"name", model.spec().name()},
      {"algorithm", model.spec().algorithm()},
      {"hyperparameters", std::move(hyperparameters)},
      {"consistency", model.spec().consistency()},
      {"version", model.version()},
      {"rounds", model.rounds()},
      {"initialized", model.initialized()},
      {"parameters", model.parameters()},
      {"tensors", std::move(tensors)},
      {"mean_staleness", model.mean_staleness()},
      {"staleness_histogram", model.staleness_histogram()},
      {"training_time_s", model.training_time_s()},
      {"rejected", model.rejected()},
      {"pinned_bytes", model.pinned_bytes()},
      {"problem", model.problem()},
      {"checkpoint_version", model.has_checkpoint() ? OrderedJson(model.checkpoint_version()) : OrderedJson()},
      {"checkpoint_age_s", model.has_checkpoint() ? OrderedJson(model.checkpoint_age_s()) : OrderedJson()},
      {"checkpoint_problem", model.checkpoint_problem()},
      {"commits", model.commits()},
      {"live_workers", model.live_workers()},
      {"known_workers", model.known_workers()},
      {"waiting_workers", model.waiting_workers()},
      {"workers", std::move(workers)},
  };
}

OrderedJson ModelsJson(const Models& models) {
  OrderedJson list = OrderedJson::array();
  for (const v1::ModelInfo& model : models) list.push_back(ModelJson(model));
  return list;
}

OrderedJson HistoryJson(const std::string& model, const v1::GetHistoryReply& history, int64_t last) {
  OrderedJson workers = OrderedJson::array();
  for (const v1::WorkerHistory& series : history.workers()) {
    OrderedJson& json = workers.emplace_back(OrderedJson::object());
    if (!series.worker().empty()) json["worker"] = series.worker();
    json["dropped"] = series.dropped();
    json["records"] = OrderedJson::array();
    for (int i = FirstRecord(series.records_size(), last); i < series.records_size(); ++i) {
      const v1::HistoryRecord& record = series.records(i);
      OrderedJson metrics = OrderedJson::object();
      for (int j = 0; j < std::min(series.metric_names_size(), record.metrics_size()); ++j) {
        metrics[series.metric_names(j)] = record.metrics(j);
      }
      json["records"].push_back({{"step", record.step()},
                                 {"epoch", record.epoch()},
                                 {"time_s", record.time_s()},
                                 {"loss", record.loss()},
                                 {"metrics", std::move(metrics)}});
    }
  }
  return {
      {"model", model},
      {"updates", history.updates()},
      {"training_time_s", history.training_time_s()},
      {"staleness_histogram", history.staleness_histogram()},
      {"workers", std::move(workers)},
  };
}

OrderedJson StatusJson(const v1::ServerStatus& status) {
  return {
      {"server_version", status.version()},
      {"uptime_s", status.uptime_s()},
      {"draining", status.draining()},
      {"connections", status.connections()},
      {"refused_connections", status.refused_connections()},
      {"sessions", status.sessions()},
      {"in_flight_bytes", status.in_flight_bytes()},
      {"max_in_flight_bytes", status.max_in_flight_bytes()},
      {"queued_exchanges", status.queued_exchanges()},
      {"segments", status.segments()},
      {"shared_bytes", status.shared_bytes()},
      {"max_shared_bytes", status.max_shared_bytes()},
      {"resident_bytes", status.resident_bytes()},
      {"base_bytes", status.base_bytes()},
      {"round_bytes", status.round_bytes()},
      {"history_bytes", status.history_bytes()},
      {"max_history_bytes", status.max_history_bytes()},
      {"image_bytes", status.image_bytes()},
      {"state_dir", status.state_dir()},
      {"log_problem", status.log_problem()},
      {"log_waiting", status.log_waiting()},
      {"log_bytes", status.log_bytes()},
      {"models", ModelsJson(status.models())},
  };
}

OrderedJson AlgorithmsJson(const v1::ListAlgorithmsReply& reply) {
  OrderedJson list = OrderedJson::array();
  for (const v1::AlgorithmInfo& algorithm : reply.algorithms()) {
    OrderedJson hyperparameters = OrderedJson::array();
    for (const v1::AlgorithmInfo::Parameter& each : algorithm.hyperparameters()) {
      hyperparameters.push_back({{"name", each.name()},
                                 {"default", each.default_value()},
                                 {"min", each.min()},
                                 {"max", each.max()},
                                 {"description", each.description()}});
    }
    list.push_back({{"name", algorithm.name()},
                    {"description", algorithm.description()},
                    {"default_consistency", algorithm.default_consistency()},
                    {"hyperparameters", std::move(hyperparameters)}});
  }
  return list;
}

std::string JsonText(const OrderedJson& json, bool one_line) {
  return json.dump(one_line ? -1 : 2, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace paramd::cli
