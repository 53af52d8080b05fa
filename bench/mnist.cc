#include "bench/mnist.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/statistics.h"

namespace paramd::bench {
namespace {

constexpr int kWorkers = 4;
constexpr int kWindow = 10;

// Transports, and the example's flags for them.
constexpr std::pair<const char*, const char*> kTransports[] = {{"grpc-tcp", "--transport=grpc"},
                                                               {"shm", "--transport=shm"}};

struct Outcome {
  double samples_per_s = 0;
  double exchanging = 0;
};

// All workers at once, each with `flags`, to the end of the last.
absl::StatusOr<Outcome> Train(const Programs& programs, const std::string& worker, const std::string& data, int epochs,
                              const std::vector<std::string>& flags) {
  std::vector<std::unique_ptr<Child>> children;
  std::vector<std::string> summaries;
  for (int i = 0; i < kWorkers; ++i) {
    summaries.push_back(absl::StrCat(programs.scratch, "/summary-", i));
    std::vector<std::string> command = {worker,
                                        absl::StrCat("--data=", data),
                                        absl::StrCat("--index=", i),
                                        absl::StrCat("--workers=", kWorkers),
                                        absl::StrCat("--epochs=", epochs),
                                        absl::StrCat("--summary_file=", summaries.back()),
                                        absl::StrCat("--progress_file=", programs.scratch, "/progress-", i)};
    command.insert(command.end(), flags.begin(), flags.end());
    auto child = Child::Start(command);
    if (!child.ok()) return child.status();
    children.push_back(*std::move(child));
  }
  for (const auto& child : children) {
    if (auto status = child->Wait(); !status.ok()) return status;
  }
  double samples = 0;
  double exchanging_s = 0;
  double training_s = 0;
  double start_s = std::numeric_limits<double>::infinity();
  double end_s = 0;
  for (const std::string& path : summaries) {
    std::ifstream file(path);
    const auto summary = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!summary.is_object()) return absl::InternalError(absl::StrCat(worker, " wrote no summary"));
    samples += summary.value("samples", 0.0);
    exchanging_s += summary.value("exchanging_s", 0.0);
    const double wall_s = summary.value("wall_s", 0.0);
    training_s += wall_s;
    start_s = std::min(start_s, summary.value("start_s", 0.0));
    end_s = std::max(end_s, summary.value("start_s", 0.0) + wall_s);
  }
  return Outcome{.samples_per_s = samples / (end_s - start_s), .exchanging = exchanging_s / training_s};
}

absl::StatusOr<MnistRow> Measure(const Programs& programs, const std::string& transport, const std::string& flag,
                                 const std::string& worker, const std::string& data, int epochs, int rounds) {
  std::vector<double> exchanging;
  std::vector<double> rates;
  std::vector<double> over_alone;
  for (int r = 0; r < rounds; ++r) {
    // A daemon for each round: every round begins with a new model.
    auto server = StartServer(FindTransport(transport), programs, 0);
    if (!server.ok()) return server.status();
    auto together = Train(programs, worker, data, epochs,
                          {absl::StrCat("--server=", server->address.address), flag, "--create=adag",
                           absl::StrCat("--window=", kWindow)});
    if (!together.ok()) return together.status();
    auto alone = Train(programs, worker, data, epochs, {"--algorithm=single"});
    if (!alone.ok()) return alone.status();
    exchanging.push_back(together->exchanging);
    rates.push_back(together->samples_per_s);
    over_alone.push_back(together->samples_per_s / alone->samples_per_s);
  }
  MnistRow row;
  row.exchanging = Median(exchanging);
  row.samples_per_s = Median(rates);
  row.over_alone = Median(over_alone);
  return row;
}

std::string Missing(const std::string& worker, const std::string& data) {
  if (access(worker.c_str(), X_OK) != 0) return "there is no mnist_worker; build //examples/mnist:mnist_worker";
  if (access(data.c_str(), R_OK) != 0) return "there is no data/mnist; scripts/setup.sh --data fetches it";
  return "";
}

}  // namespace

std::vector<MnistRow> RunMnist(const Programs& programs, const std::string& worker, const std::string& data, int epochs,
                               int rounds) {
  const std::string why = Missing(worker, data);
  std::vector<MnistRow> rows;
  for (const auto& [transport, flag] : kTransports) {
    auto measured =
        why.empty() ? Measure(programs, transport, flag, worker, data, epochs, rounds) : absl::UnavailableError(why);
    MnistRow row = measured.ok() ? *measured : MnistRow{.unavailable = std::string(measured.status().message())};
    row.transport = transport;
    row.workers = kWorkers;
    row.window = kWindow;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace paramd::bench
