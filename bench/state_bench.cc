// What it costs to keep models on disk: a training with checkpoints beside one without, in turns; and how soon a daemon
// that was killed serves a large model again, and its workers exchange.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/child.h"
#include "bench/statistics.h"
#include "client/admin.h"
#include "client/worker.h"
#include "process/tuning.h"

ABSL_FLAG(std::string, folder, "/tmp", "on the disk that is measured");
ABSL_FLAG(std::string, binaries, "", "folder of server/paramd and examples/mnist; default: the one above this program");
ABSL_FLAG(std::string, data, "data/mnist", "folder with the data set");
ABSL_FLAG(int, rounds, 5, "of each measurement");
ABSL_FLAG(int, epochs, 6, "of a training");
ABSL_FLAG(uint64_t, bytes, 200'000'000, "of the large model");

namespace paramd::bench {
namespace {

constexpr int kWorkers = 2;
constexpr absl::Duration kTimeout = absl::Minutes(1);

std::string Binary(const std::string& name) { return absl::GetFlag(FLAGS_binaries) + "/" + name; }

struct Daemon {
  std::unique_ptr<Child> process;
  std::string address;
};

absl::StatusOr<Daemon> StartDaemon(const std::string& listen, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {Binary("server/paramd"), "--log_level=error", "--listen=" + listen});
  auto child = Child::Start(flags);
  if (!child.ok()) return child.status();
  const auto line = (*child)->ReadLine();
  if (!line.ok()) return line.status();
  return Daemon{.process = *std::move(child), .address = line->substr(line->rfind(' ') + 1)};
}

// Samples a second of one training.
absl::StatusOr<double> Train(const std::string& folder, bool checkpoints) {
  const std::string state = folder + "/training";
  const std::string json = folder + "/training.json";
  auto daemon =
      StartDaemon("127.0.0.1:0", checkpoints ? std::vector<std::string>{"--state_dir=" + state, "--checkpoint_every=1s"}
                                             : std::vector<std::string>());
  if (!daemon.ok()) return daemon.status();
  auto launcher = Child::Start({Binary("examples/mnist/mnist"), "--server=" + daemon->address, "--nosingle",
                                absl::StrCat("--workers=", kWorkers), "--data=" + absl::GetFlag(FLAGS_data),
                                absl::StrCat("--epochs=", absl::GetFlag(FLAGS_epochs)), "--json=" + json});
  if (!launcher.ok()) return launcher.status();
  while ((*launcher)->ReadLine().ok()) {
  }
  if (auto status = (*launcher)->Wait(); !status.ok()) return status;
  daemon->process.reset();
  std::filesystem::remove_all(state);
  std::ifstream file(json);
  const auto runs = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!runs.is_object() || runs["runs"].empty()) return absl::InternalError("the example wrote no table");
  return runs["runs"][0].value("samples_per_s", 0.0);
}

// One row; whether it reaches what is required.
bool Row(const std::string& what, double figure, const std::string& unit, bool at_least, double required) {
  const bool met = at_least ? figure >= required : figure <= required;
  std::cout << absl::StreamFormat("| %s | %.3f%s | %s %g%s | %s |\n", what, figure, unit, at_least ? "≥" : "≤",
                                  required, unit, met ? "yes" : "**no**");
  return met;
}

absl::StatusOr<bool> MeasureTraining(const std::string& folder) {
  std::vector<double> ratios;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    // In turns, which of them is first, too.
    double rates[2] = {0, 0};
    for (const int i : {round % 2, 1 - round % 2}) {
      const auto rate = Train(folder, /*checkpoints=*/i == 1);
      if (!rate.ok()) return rate.status();
      rates[i] = *rate;
    }
    ratios.push_back(rates[1] / rates[0]);
  }
  return Row("samples/s of `examples/mnist` with a checkpoint each second, over without", Median(ratios), "", true,
             0.97);
}

// Of the newest file in the folder, in pieces.
double SecondsToRead(const std::string& folder) {
  std::string path;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors" && entry.path() > path) path = entry.path();
  }
  std::vector<char> piece(1 << 20);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const absl::Time begun = absl::Now();
  while (read(file, piece.data(), piece.size()) > 0) {
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begun);
  close(file);
  return seconds;
}

absl::StatusOr<bool> MeasureRestart(const std::string& folder) {
  const std::string state = folder + "/large";
  const std::string listen = "unix:" + folder + "/socket";
  const std::vector<std::string> flags = {"--state_dir=" + state, "--checkpoint_every=1h"};
  const size_t floats = absl::GetFlag(FLAGS_bytes) / sizeof(float);
  auto daemon = StartDaemon(listen, flags);
  if (!daemon.ok()) return daemon.status();
  auto admin = Admin::Connect(listen, kTimeout);
  if (!admin.ok()) return admin.status();
  v1::ModelSpec spec;
  spec.set_name("large");
  spec.set_algorithm("downpour");
  spec.add_tensors()->set_name("w");
  spec.mutable_tensors(0)->add_shape(static_cast<int64_t>(floats));
  if (auto made = (*admin)->CreateModel(spec); !made.ok()) return made.status();
  std::vector<float> center(floats, 1);
  if (auto status = (*admin)->Initialize("large", center); !status.ok()) return status;

  // Each exchanges again and again; the second whose last one ended.
  std::atomic<bool> stop{false};
  std::atomic<int64_t> last_ns[kWorkers] = {};
  std::vector<std::thread> workers;
  std::vector<absl::Status> ended(kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      auto worker = Worker::Join({.server = listen, .model = "large", .worker = absl::StrCat("w", i)});
      ended[i] = worker.status();
      if (!worker.ok()) return;
      std::vector<float> own(floats, 0);
      std::vector<float> pulled(floats);
      while (!stop && ended[i].ok()) {
        ended[i] = (*worker)->Exchange(own, absl::MakeSpan(pulled), kTimeout).status();
        if (ended[i].ok()) last_ns[i] = absl::ToUnixNanos(absl::Now());
      }
    });
  }
  const auto all_since = [&](absl::Time begun) {
    while (true) {
      int64_t first = INT64_MAX;
      for (const auto& last : last_ns) first = std::min<int64_t>(first, last);
      if (first > absl::ToUnixNanos(begun)) return absl::FromUnixNanos(first);
      if (absl::Now() > begun + kTimeout) return absl::InfiniteFuture();
      absl::SleepFor(absl::Milliseconds(2));
    }
  };
  std::vector<double> pulls;
  std::vector<double> reads;
  std::vector<double> exchanges;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    all_since(absl::Now());
    if (auto written = (*admin)->Checkpoint("large"); !written.ok()) return written.status();
    kill(daemon->process->pid(), SIGKILL);
    daemon->process.reset();
    reads.push_back(SecondsToRead(state));
    const absl::Time begun = absl::Now();
    daemon = StartDaemon(listen, flags);
    if (!daemon.ok()) return daemon.status();
    if (auto pulled = (*admin)->Pull("large", absl::MakeSpan(center)); !pulled.ok()) return pulled.status();
    const absl::Time served = absl::Now();
    pulls.push_back(absl::ToDoubleSeconds(served - begun) - reads.back());
    exchanges.push_back(absl::ToDoubleSeconds(all_since(begun) - served));
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
  for (const absl::Status& status : ended) {
    if (!status.ok()) return status;
  }
  std::cout << absl::StreamFormat("| reading the checkpoint of %d bytes once | %.3f s | | |\n", floats * sizeof(float),
                                  Median(reads));
  bool met = Row("from the daemon's start to the end of the first pull, beyond that", Median(pulls), " s", false, 2);
  met = Row("from then on until each waiting worker has exchanged", Median(exchanges), " s", false, 1) && met;
  return met;
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures what it costs to keep models on disk, and how soon they are back.");
  if (absl::ParseCommandLine(argc, argv).size() != 1 || absl::GetFlag(FLAGS_rounds) < 1) return 2;
  if (absl::GetFlag(FLAGS_binaries).empty()) {
    absl::SetFlag(&FLAGS_binaries, std::filesystem::absolute(argv[0]).parent_path().parent_path().string());
  }
  std::string folder = absl::GetFlag(FLAGS_folder) + "/state_bench.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "state_bench: can't make a folder in " << absl::GetFlag(FLAGS_folder) << "\n";
    return 1;
  }
  std::cout << "| what | figure | required | met |\n|---|---|---|---|\n";
  bool met = true;
  for (const auto measure : {MeasureTraining, MeasureRestart}) {
    const absl::StatusOr<bool> measured = measure(folder);
    if (!measured.ok()) std::cerr << "state_bench: " << measured.status().message() << "\n";
    met = met && measured.ok() && *measured;
  }
  std::filesystem::remove_all(folder);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace paramd::bench

int main(int argc, char** argv) {
  paramd::TuneProcess();
  return paramd::bench::Main(argc, argv);
}
