// mnist_worker: one worker process. It trains on its share of MNIST for a model of a running daemon, or with
// --algorithm=single for itself. Exit codes: 0 trained, 1 failed or stopped, 2 bad flags.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "algorithms/registry.h"
#include "client/mlp/mlp.h"
#include "client/security_flags.h"
#include "client/wire_flags.h"
#include "client/worker.h"
#include "examples/mnist/data_set.h"
#include "examples/mnist/display.h"
#include "examples/mnist/idx.h"
#include "examples/mnist/model_spec.h"
#include "examples/mnist/report.h"
#include "examples/mnist/shard.h"
#include "examples/mnist/stop_signal.h"
#include "flags/command_line.h"
#include "process/tuning.h"
#include "proto/address.h"
#include "sync/clock.h"

ABSL_FLAG(std::string, server, "127.0.0.1:5000", "the daemon, HOST:PORT or unix:PATH");
ABSL_FLAG(std::string, model, "mnist", "the model to join");
ABSL_FLAG(std::string, create, "", "create the model first, with this algorithm, if the daemon does not have it");
ABSL_FLAG(std::string, name, "", "this worker's name, unique in the model; empty: worker-INDEX");
ABSL_FLAG(int64_t, index, 0, "which share of the data to train on, counted from 0");
ABSL_FLAG(int64_t, workers, 1, "shares in all");
ABSL_FLAG(std::string, data, "data/mnist", "folder with the IDX files of MNIST or its kin, gzipped or not");
ABSL_FLAG(std::string, layers, "784,128,10", "units of each layer, from input to output");
ABSL_FLAG(int64_t, batch_size, 32, "rows in a minibatch");
ABSL_FLAG(int64_t, epochs, 10, "passes over the share");
ABSL_FLAG(int64_t, window, 0, "minibatches between two exchanges; 0: the model's");
ABSL_FLAG(double, learning_rate, 0, "of the optimizer; 0: the model's");
ABSL_FLAG(double, final_rate, 0.1, "the learning rate falls linearly to this part of itself; 1: it stays");
ABSL_FLAG(std::string, optimizer, "sgd", "sgd, momentum (Nesterov) or adam; its state is this worker's own");
ABSL_FLAG(double, momentum, 0.9, "of the optimizer momentum");
ABSL_FLAG(uint64_t, seed, 1, "of the initial parameters and of the shares: the same for all workers of a model");
ABSL_FLAG(absl::Duration, join_timeout, absl::Minutes(1), "how long to wait for the daemon");
ABSL_FLAG(bool, overlap, false, "exchange on a second thread while the next window trains");
ABSL_FLAG(paramd::Transport, transport, paramd::Transport::kAuto,
          "how floats travel: shm (shared memory), grpc, or auto: shm where it can be had");
ABSL_FLAG(paramd::Wire, wire, paramd::Wire::kFloat32, "what floats travel as, over grpc: f32, f16 or bf16");
ABSL_FLAG(double, target_loss, -1, "stop when a window's mean loss is at or below this; negative: never");
ABSL_FLAG(std::vector<std::string>, plugin, {}, "shared objects with further algorithms");
ABSL_FLAG(std::string, algorithm, "",
          "'single' trains without a daemon and evaluates on the test images; empty: as the daemon says");
ABSL_FLAG(std::string, summary_file, "", "write what was done to this file, as JSON");
ABSL_FLAG(std::string, progress_file, "", "keep progress in this file, as JSON, instead of drawing it");

namespace paramd {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);
// From a signal to the end of the process: for leaving the model.
constexpr absl::Duration kStopGrace = absl::Seconds(3);

std::string Name() {
  const std::string name = absl::GetFlag(FLAGS_name);
  return name.empty() ? absl::StrCat("worker-", absl::GetFlag(FLAGS_index)) : name;
}

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Progress to the terminal or to a file, a few times a second.
class Progress {
 public:
  absl::Status Add(const std::vector<StepResult>& steps) {
    for (const StepResult& step : steps) {
      loss_ += step.loss;
      accuracy_ += step.metrics.empty() ? 0 : step.metrics[0];
    }
    steps_ += static_cast<double>(steps.size());
    if (steps.empty()) return absl::OkStatus();
    const StepResult& last = steps.back();
    const bool at_end = last.epoch >= static_cast<double>(absl::GetFlag(FLAGS_epochs));
    if (Clock::Steady()->Now() < next_ && !at_end) return absl::OkStatus();
    next_ = Clock::Steady()->Now() + kProgressInterval;
    const double samples = static_cast<double>(last.step * absl::GetFlag(FLAGS_batch_size));
    const WorkerProgress progress{.epoch = last.epoch,
                                  .epochs = absl::GetFlag(FLAGS_epochs),
                                  .samples_per_s = last.time_s > 0 ? samples / last.time_s : 0,
                                  .loss = loss_ / steps_,
                                  .accuracy = accuracy_ / steps_};
    loss_ = accuracy_ = steps_ = 0;
    const std::string file = absl::GetFlag(FLAGS_progress_file);
    if (!file.empty()) return WriteFile(file, ToJson(progress));
    lines_.Draw({FormatProgress(Name(), progress)});
    return absl::OkStatus();
  }

 private:
  ProgressLines lines_;
  absl::Time next_ = absl::InfinitePast();
  double loss_ = 0;  // sums since the last report
  double accuracy_ = 0;
  double steps_ = 0;
};

// Lowers a network's learning rate linearly over its training, to a part of what it was at the beginning.
class FallingRate {
 public:
  FallingRate(Mlp* network, int64_t epochs, double final_part)
      : network_(network), epochs_(static_cast<double>(epochs)), final_part_(final_part) {}

  // `epoch`: the position in the data.
  void Update(double epoch) {
    // Only the training loop knows the rate that the model brings.
    if (!first_.has_value()) first_ = network_->learning_rate();
    network_->set_learning_rate(*first_ * (1 - (1 - final_part_) * std::min(epoch / epochs_, 1.0)));
  }

 private:
  Mlp* const network_;
  const double epochs_;
  const double final_part_;
  std::optional<double> first_;
};

struct Job {
  std::vector<int64_t> layers;
  std::unique_ptr<Mlp> network;
  ShardOptions shard;
};

absl::StatusOr<Job> CheckFlags() {
  if (const std::string server = absl::GetFlag(FLAGS_server); !server.empty()) {
    const auto address = ParseServerAddress(server);
    if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--server: ", address.status().message()));
  }
  const auto layers = ParseLayers(absl::GetFlag(FLAGS_layers));
  if (!layers.ok()) return layers.status();
  MlpOptions options{.layers = *layers, .seed = absl::GetFlag(FLAGS_seed)};
  options.optimizer.name = absl::GetFlag(FLAGS_optimizer);
  options.optimizer.momentum = absl::GetFlag(FLAGS_momentum);
  // 0 is the training loop's business.
  if (const double rate = absl::GetFlag(FLAGS_learning_rate); rate != 0) options.optimizer.learning_rate = rate;
  auto network = Mlp::Create(options);
  if (!network.ok()) return network.status();
  if (absl::GetFlag(FLAGS_epochs) <= 0) return absl::InvalidArgumentError("--epochs must be positive");
  if (const double part = absl::GetFlag(FLAGS_final_rate); !(part > 0 && part <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--final_rate is ", part, "; use a number above 0, at most 1"));
  }
  if (absl::GetFlag(FLAGS_window) < 0) return absl::InvalidArgumentError("--window must not be negative");
  const std::string algorithm = absl::GetFlag(FLAGS_algorithm);
  if (!algorithm.empty() && algorithm != "single") {
    return absl::InvalidArgumentError(absl::StrCat("--algorithm can't be '", algorithm,
                                                   "': the daemon's model says which algorithm a worker runs; "
                                                   "--create=",
                                                   algorithm, " creates such a model"));
  }
  Job job{.layers = *layers,
          .network = *std::move(network),
          .shard = {.worker = absl::GetFlag(FLAGS_index),
                    .workers = absl::GetFlag(FLAGS_workers),
                    .batch_size = absl::GetFlag(FLAGS_batch_size),
                    .seed = absl::GetFlag(FLAGS_seed)}};
  if (const absl::Status status = CheckShardOptions(job.shard); !status.ok()) return status;
  return job;
}

absl::StatusOr<TrainSummary> TrainAlone(const TrainOptions& options, Mlp* network, Shard* shard, StopSignal* stop) {
  const auto algorithm = FindAlgorithm("single");
  if (!algorithm.ok()) return algorithm.status();
  const auto hyperparameters = CompleteHyperparameters(**algorithm, {});
  if (!hyperparameters.ok()) return hyperparameters.status();
  TrainLoop loop(network, shard, nullptr, (*algorithm)->make_worker(*hyperparameters), *hyperparameters, options);
  stop->SetHandler([&loop] { loop.Cancel(); });
  auto summary = loop.Run();
  stop->SetHandler(nullptr);
  return summary;
}

absl::StatusOr<TrainSummary> TrainWithServer(const TrainOptions& options, Mlp* network, Shard* shard, StopSignal* stop,
                                             WorkerSummary* summary) {
  WorkerOptions worker_options;
  worker_options.server = absl::GetFlag(FLAGS_server);
  worker_options.model = absl::GetFlag(FLAGS_model);
  worker_options.worker = Name();
  worker_options.security = SecurityFromFlags();
  worker_options.join_timeout = absl::GetFlag(FLAGS_join_timeout);
  worker_options.transport = absl::GetFlag(FLAGS_transport);
  worker_options.wire = absl::GetFlag(FLAGS_wire);
  if (const std::string algorithm = absl::GetFlag(FLAGS_create); !algorithm.empty()) {
    worker_options.create =
        std::make_shared<v1::ModelSpec>(MakeModelSpec(worker_options.model, *network, algorithm, {}, ""));
  }
  worker_options.on_event = [](absl::string_view event) { std::fprintf(stderr, "%s\n", std::string(event).c_str()); };
  auto trained = RunWorker(worker_options, options, network, shard, [&](Worker* worker, TrainLoop* loop) {
    // Null once training is over.
    if (worker == nullptr || loop == nullptr) {
      stop->SetHandler(nullptr);
      return;
    }
    summary->start_s = SteadySeconds();
    summary->transport = AbslUnparseFlag(worker->transport());
    summary->wire = AbslUnparseFlag(worker->wire());
    stop->SetHandler([worker, loop] {
      loop->Cancel();
      worker->Cancel();
    });
  });
  stop->SetHandler(nullptr);
  return trained;
}

absl::Status Run(const Job& job, StopSignal* stop) {
  for (const std::string& plugin : absl::GetFlag(FLAGS_plugin)) {
    if (const absl::Status status = LoadPlugin(plugin); !status.ok()) return status;
  }
  const std::string directory = absl::GetFlag(FLAGS_data);
  const auto train = mnist::ReadImages(directory, mnist::Part::kTraining);
  if (!train.ok()) return train.status();
  if (auto status = CheckLayers(job.layers, *train); !status.ok()) return status;
  const auto shard = Shard::Create(&*train, job.shard);
  if (!shard.ok()) return shard.status();

  Progress progress;
  FallingRate rate(job.network.get(), absl::GetFlag(FLAGS_epochs), absl::GetFlag(FLAGS_final_rate));
  const TrainOptions options{.epochs = absl::GetFlag(FLAGS_epochs),
                             .communication_window = absl::GetFlag(FLAGS_window),
                             .learning_rate = absl::GetFlag(FLAGS_learning_rate),
                             .target_loss = absl::GetFlag(FLAGS_target_loss),
                             .overlap = absl::GetFlag(FLAGS_overlap),
                             .on_window = [&](const std::vector<StepResult>& steps) {
                               rate.Update(steps.back().epoch);
                               return progress.Add(steps);
                             }};
  const bool alone = !absl::GetFlag(FLAGS_algorithm).empty();
  WorkerSummary summary{.start_s = SteadySeconds()};
  const auto trained = alone ? TrainAlone(options, job.network.get(), shard->get(), stop)
                             : TrainWithServer(options, job.network.get(), shard->get(), stop, &summary);
  if (!trained.ok()) return trained.status();

  summary.wall_s = absl::ToDoubleSeconds(trained->wall);
  summary.exchanging_s = absl::ToDoubleSeconds(trained->exchanging);
  summary.steps = trained->steps;
  summary.samples = trained->samples;
  summary.exchanges = trained->exchanges;
  summary.epochs = trained->epochs;
  summary.mean_staleness = trained->mean_staleness;
  summary.last_loss = trained->last_loss;
  summary.reached_target_loss = trained->reached_target_loss;
  if (alone) {
    const auto test = mnist::ReadImages(directory, mnist::Part::kTest);
    if (!test.ok()) return test.status();
    if (auto status = CheckLayers(job.layers, *test); !status.ok()) return status;
    const auto source = Shard::Create(&*test, {.batch_size = 500, .shuffle = false});
    if (!source.ok()) return source.status();
    const auto evaluation = job.network->Evaluate(source->get());
    if (!evaluation.ok()) return evaluation.status();
    summary.test_accuracy = evaluation->accuracy;
  }
  std::printf("%s: %s samples in %.1f s (%s samples/s), %s exchanges, mean staleness %.2f, loss %.4f\n", Name().c_str(),
              FormatCount(summary.samples).c_str(), summary.wall_s,
              FormatCount(static_cast<int64_t>(static_cast<double>(summary.samples) / summary.wall_s)).c_str(),
              FormatCount(summary.exchanges).c_str(), summary.mean_staleness, summary.last_loss);
  if (summary.test_accuracy.has_value()) std::printf("test accuracy %.2f %%\n", 100 * *summary.test_accuracy);
  const std::string file = absl::GetFlag(FLAGS_summary_file);
  return file.empty() ? absl::OkStatus() : WriteFile(file, ToJson(summary));
}

int Main(int argc, char** argv) {
  if (WantsHelp(argc, argv)) {
    std::printf("Trains on a share of MNIST for a model of a running paramd.\n\n%s",
                (FlagsHelp("examples/mnist/") + FlagsHelp("client/security_flags")).c_str());
    return 0;
  }
  absl::Status status = ParseFlags(argc, argv);
  absl::StatusOr<Job> job = status.ok() ? CheckFlags() : status;
  if (!job.ok()) {
    std::fprintf(stderr, "mnist_worker: %s\n", std::string(job.status().message()).c_str());
    return 2;
  }
  TuneProcess();
  StopSignal stop(kStopGrace);
  status = Run(*job, &stop);
  if (!status.ok()) {
    std::fprintf(stderr, "mnist_worker: %s: %s\n", Name().c_str(), status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return paramd::Main(argc, argv); }
