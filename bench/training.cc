#include "bench/training.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace paramd::bench {
namespace {

std::optional<double> Number(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? std::optional<double>(found->get<double>()) : std::nullopt;
}

}  // namespace

std::vector<TrainingRow> ReadTraining(const std::string& path) {
  std::ifstream file(path);
  const auto all = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<TrainingRow> rows;
  if (all.is_object() && all.contains("training")) {
    for (const nlohmann::json& row : all["training"]) {
      rows.push_back({.optimizer = row.value("name", ""),
                      .us_per_step = Number(row, "us_per_step"),
                      .baseline = row.value("baseline", ""),
                      .baseline_us_per_step = Number(row, "baseline_us_per_step"),
                      .ratio = Number(row, "ratio"),
                      .unavailable = row.value("not_measured", "")});
    }
  }
  if (rows.empty()) {
    rows.push_back({.optimizer = "sgd",
                    .baseline = "PyTorch",
                    .unavailable = "PyTorch is not installed; scripts/bench.sh --mode=training installs it"});
  }
  return rows;
}

}  // namespace paramd::bench
