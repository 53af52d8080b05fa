#include "examples/mnist/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "files/whole_file.h"

namespace paramd {
namespace {

using Json = nlohmann::ordered_json;

template <typename Report>
absl::StatusOr<Report> Parse(const std::string& text, void (*fill)(const Json&, Report*)) {
  Report report;
  try {
    fill(Json::parse(text), &report);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not a worker's report: ", error.what()));
  }
  return report;
}

}  // namespace

std::string ToJson(const WorkerProgress& progress) {
  return Json({{"epoch", progress.epoch},
               {"epochs", progress.epochs},
               {"samples_per_s", progress.samples_per_s},
               {"loss", progress.loss},
               {"accuracy", progress.accuracy}})
      .dump();
}

absl::StatusOr<WorkerProgress> ParseWorkerProgress(const std::string& json) {
  return Parse<WorkerProgress>(json, [](const Json& from, WorkerProgress* to) {
    from.at("epoch").get_to(to->epoch);
    from.at("epochs").get_to(to->epochs);
    from.at("samples_per_s").get_to(to->samples_per_s);
    from.at("loss").get_to(to->loss);
    from.at("accuracy").get_to(to->accuracy);
  });
}

std::string ToJson(const WorkerSummary& summary) {
  Json json = {{"start_s", summary.start_s},
               {"wall_s", summary.wall_s},
               {"exchanging_s", summary.exchanging_s},
               {"steps", summary.steps},
               {"samples", summary.samples},
               {"exchanges", summary.exchanges},
               {"epochs", summary.epochs},
               {"mean_staleness", summary.mean_staleness},
               {"last_loss", summary.last_loss},
               {"reached_target_loss", summary.reached_target_loss},
               {"transport", summary.transport},
               {"wire", summary.wire}};
  if (summary.test_accuracy.has_value()) json["test_accuracy"] = *summary.test_accuracy;
  return json.dump(2) + "\n";
}

absl::StatusOr<WorkerSummary> ParseWorkerSummary(const std::string& json) {
  return Parse<WorkerSummary>(json, [](const Json& from, WorkerSummary* to) {
    from.at("start_s").get_to(to->start_s);
    from.at("wall_s").get_to(to->wall_s);
    from.at("exchanging_s").get_to(to->exchanging_s);
    from.at("steps").get_to(to->steps);
    from.at("samples").get_to(to->samples);
    from.at("exchanges").get_to(to->exchanges);
    from.at("epochs").get_to(to->epochs);
    from.at("mean_staleness").get_to(to->mean_staleness);
    from.at("last_loss").get_to(to->last_loss);
    from.at("reached_target_loss").get_to(to->reached_target_loss);
    from.at("transport").get_to(to->transport);
    from.at("wire").get_to(to->wire);
    if (from.contains("test_accuracy")) to->test_accuracy = from["test_accuracy"].get<double>();
  });
}

std::string ToJson(const std::vector<Run>& runs) {
  Json rows = Json::array();
  for (const Run& run : runs) {
    rows.push_back({{"algorithm", run.algorithm},
                    {"workers", run.workers},
                    {"window", run.window},
                    {"epochs", run.epochs},
                    {"updates", run.updates},
                    {"mean_staleness", run.mean_staleness},
                    {"wall_s", run.wall_s},
                    {"samples_per_s", run.samples_per_s},
                    {"test_accuracy", run.test_accuracy},
                    {"transport", run.transport},
                    {"wire", run.wire}});
  }
  return Json({{"runs", rows}}).dump(2) + "\n";
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  auto file = WholeFile::Open(path);
  absl::Status status = file.status();
  if (status.ok()) status = file->Write(content);
  if (status.ok()) status = file->Publish(/*on_disk=*/false);
  if (status.ok()) return status;
  return absl::UnknownError(
      absl::StrCat("can't write ", status.message(), "; check that its folder exists and has room"));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("can't read ", path, ": ", strerror(errno)));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace paramd
