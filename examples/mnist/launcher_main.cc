// mnist: trains MNIST with several worker processes on one machine, evaluates the center, and compares it with one
// worker that trains alone. Exit codes: 0 done, 1 failed or stopped, 2 bad flags.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "algorithms/registry.h"
#include "client/admin.h"
#include "client/mlp/mlp.h"
#include "client/security_flags.h"
#include "client/wire_flags.h"
#include "examples/mnist/child_process.h"
#include "examples/mnist/data_set.h"
#include "examples/mnist/display.h"
#include "examples/mnist/idx.h"
#include "examples/mnist/model_spec.h"
#include "examples/mnist/paths.h"
#include "examples/mnist/report.h"
#include "examples/mnist/shard.h"
#include "examples/mnist/stop_signal.h"
#include "flags/command_line.h"
#include "proto/address.h"
#include "sync/clock.h"

ABSL_FLAG(std::string, server, "", "a running daemon, HOST:PORT or unix:PATH; empty: start one");
ABSL_FLAG(std::string, paramd, "", "the daemon to start; empty: ../../server/paramd beside this program");
ABSL_FLAG(std::string, worker, "", "the worker to start; empty: mnist_worker beside this program");
ABSL_FLAG(std::string, model, "mnist", "name of the model to create");
ABSL_FLAG(std::string, algorithm, "adag", "how the workers train together; single: one worker alone");
ABSL_FLAG(std::vector<std::string>, set, {}, "hyperparameters of the algorithm, KEY=VALUE; may be repeated");
ABSL_FLAG(std::string, consistency, "", "async, bounded:S or sync; empty: the algorithm's");
ABSL_FLAG(std::vector<std::string>, plugin, {},
          "shared objects with further algorithms, for the daemon and the workers");
ABSL_FLAG(int64_t, workers, 4, "worker processes");
ABSL_FLAG(int64_t, window, 0, "minibatches between two exchanges; 0: the algorithm's");
ABSL_FLAG(int64_t, epochs, 50, "passes of each worker over its share, so of all together over the training images");
ABSL_FLAG(int64_t, batch_size, 32, "rows in a minibatch");
ABSL_FLAG(std::string, layers, "784,128,10", "units of each layer, from input to output");
ABSL_FLAG(std::string, data, "data/mnist", "folder with the IDX files of MNIST or its kin, gzipped or not");
ABSL_FLAG(std::string, optimizer, "sgd", "of the workers: sgd, momentum (Nesterov) or adam");
ABSL_FLAG(double, momentum, 0.9, "of the optimizer momentum");
ABSL_FLAG(double, learning_rate, 0,
          "of the workers; 0: the algorithm's, (1 - momentum) times it for momentum, a hundredth of it for adam");
ABSL_FLAG(double, final_rate, 0.1, "learning rates fall linearly to this part of themselves; 1: they stay");
ABSL_FLAG(double, single_learning_rate, 0, "of the comparison; 0: that of single, likewise");
ABSL_FLAG(uint64_t, seed, 1, "of the initial parameters and of the shares");
ABSL_FLAG(bool, overlap, false, "workers exchange on a second thread while the next window trains");
ABSL_FLAG(paramd::Transport, transport, paramd::Transport::kAuto,
          "of the workers, how floats travel: shm (shared memory), grpc, or auto: shm where it can be had");
ABSL_FLAG(paramd::Wire, wire, paramd::Wire::kFloat32, "what floats travel as, over grpc: f32, f16 or bf16");
ABSL_FLAG(bool, single, true, "afterwards train one worker alone on as many samples, to compare");
ABSL_FLAG(std::string, json, "", "write the final table to this file, as JSON");

namespace paramd {
namespace {

constexpr absl::Duration kDaemonStartTimeout = absl::Seconds(30);
constexpr absl::Duration kAdminTimeout = absl::Seconds(30);
constexpr absl::Duration kWorkerGrace = absl::Seconds(5);
constexpr absl::Duration kDaemonGrace = absl::Seconds(15);
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr int kOutputLines = 8;

// The flags, checked.
struct Plan {
  const Algorithm* algorithm = nullptr;
  Hyperparameters given;            // for the model's spec
  Hyperparameters hyperparameters;  // complete
  double single_learning_rate = 0;
  MlpOptions network;

  bool alone() const { return algorithm->make_server == nullptr; }
};

struct Outcome {
  std::vector<WorkerSummary> summaries;
  double wall_s = 0;  // from the first worker's start to the last one's end
};

std::string Or(const std::string& given, const std::string& otherwise) { return given.empty() ? otherwise : given; }

absl::Status AddHyperparameter(const std::string& key, double value, Hyperparameters* to) {
  if (!to->emplace(key, value).second) {
    return absl::InvalidArgumentError(absl::StrCat("hyperparameter ", key, " is given twice; give it once"));
  }
  return absl::OkStatus();
}

// What an optimizer makes of the algorithms' default learning rates, which are for SGD.
double RateFactor() {
  const std::string optimizer = absl::GetFlag(FLAGS_optimizer);
  // Momentum adds up to steps 1/(1 − μ) times as long.
  if (optimizer == "momentum") return 1 - absl::GetFlag(FLAGS_momentum);
  return optimizer == "adam" ? 0.01 : 1;
}

absl::StatusOr<Hyperparameters> GivenHyperparameters(const Algorithm& algorithm) {
  Hyperparameters given;
  for (const std::string& assignment : absl::GetFlag(FLAGS_set)) {
    const std::vector<std::string> parts = absl::StrSplit(assignment, absl::MaxSplits('=', 1));
    double value = 0;
    if (parts.size() != 2 || !absl::SimpleAtod(parts[1], &value)) {
      return absl::InvalidArgumentError(absl::StrCat("--set=", assignment, " is not KEY=NUMBER"));
    }
    if (const absl::Status status = AddHyperparameter(parts[0], value, &given); !status.ok()) return status;
  }
  if (const int64_t window = absl::GetFlag(FLAGS_window); window != 0) {
    const absl::Status status = AddHyperparameter("communication_window", static_cast<double>(window), &given);
    if (!status.ok()) return status;
  }
  if (const double rate = absl::GetFlag(FLAGS_learning_rate); rate != 0) {
    const absl::Status status = AddHyperparameter("learning_rate", rate, &given);
    if (!status.ok()) return status;
  }
  if (const double factor = RateFactor(); factor != 1) {
    given.emplace("learning_rate", factor * algorithm.default_learning_rate);
  }
  return given;
}

absl::StatusOr<Plan> CheckFlags() {
  Plan plan;
  if (const std::string server = absl::GetFlag(FLAGS_server); !server.empty()) {
    const auto address = ParseServerAddress(server);
    if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--server: ", address.status().message()));
  }
  for (const auto& [name, value] :
       {std::pair("workers", absl::GetFlag(FLAGS_workers)), std::pair("epochs", absl::GetFlag(FLAGS_epochs)),
        std::pair("batch_size", absl::GetFlag(FLAGS_batch_size))}) {
    if (value <= 0) return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value, " is not positive"));
  }
  for (const std::string& plugin : absl::GetFlag(FLAGS_plugin)) {
    if (const absl::Status status = LoadPlugin(plugin); !status.ok()) return status;
  }
  const auto algorithm = FindAlgorithm(absl::GetFlag(FLAGS_algorithm));
  if (!algorithm.ok()) return algorithm.status();
  plan.algorithm = *algorithm;
  auto given = GivenHyperparameters(*plan.algorithm);
  if (!given.ok()) return given.status();
  plan.given = *std::move(given);
  auto complete = CompleteHyperparameters(*plan.algorithm, plan.given);
  if (!complete.ok()) return complete.status();
  plan.hyperparameters = *std::move(complete);

  const auto single = FindAlgorithm("single");
  if (!single.ok()) return single.status();
  plan.single_learning_rate = absl::GetFlag(FLAGS_single_learning_rate);
  if (plan.single_learning_rate == 0) {
    plan.single_learning_rate = RateFactor() * (*single)->default_learning_rate;
  }

  auto layers = ParseLayers(absl::GetFlag(FLAGS_layers));
  if (!layers.ok()) return layers.status();
  plan.network = {.layers = *std::move(layers), .seed = absl::GetFlag(FLAGS_seed)};
  plan.network.optimizer = {.name = absl::GetFlag(FLAGS_optimizer),
                            .learning_rate = plan.hyperparameters.at("learning_rate"),
                            .momentum = absl::GetFlag(FLAGS_momentum)};
  const auto network = Mlp::Create(plan.network);
  if (!network.ok()) return network.status();
  return plan;
}

// Starts what a run needs, and stops it. Thread-safe: Stop; the rest is called from the main thread.
class Launcher {
 public:
  Launcher(Plan plan, std::unique_ptr<Folder> folder) : plan_(std::move(plan)), folder_(std::move(folder)) {}

  absl::Status Execute();

  // Ends every process and removes every file. Execute then fails soon.
  void Stop() {
    stopped_ = true;
    workers_.Stop(kWorkerGrace);
    daemon_.Stop(kDaemonGrace);
    folder_->Remove();
  }
  bool stopped() const { return stopped_; }

 private:
  absl::StatusOr<Run> TrainTogether();
  absl::StatusOr<Run> TrainAlone(double learning_rate, int64_t epochs);
  // Starts the daemon, unless one was named, and returns its address.
  absl::StatusOr<std::string> StartDaemon();
  std::vector<std::string> CenterNames() const;
  absl::StatusOr<Evaluation> EvaluateCenter(Admin* admin);
  // Runs one worker per list of flags, each with the flags that all have, to the end of the last.
  absl::StatusOr<Outcome> RunWorkers(const std::vector<std::vector<std::string>>& flags);
  absl::Status CheckDaemon();
  void DrawProgress(size_t workers, ProgressLines* lines) const;

  bool own_centers() const { return plan_.algorithm->make_server(plan_.hyperparameters)->own_centers(); }
  int64_t window() const;

  const Plan plan_;
  std::unique_ptr<Mlp> network_;
  DataSet test_;
  const std::unique_ptr<Folder> folder_;
  ChildGroup daemon_;
  ChildGroup workers_;
  ChildProcess* daemon_process_ = nullptr;
  std::atomic<bool> stopped_ = false;
};

absl::Status Launcher::Execute() {
  auto network = Mlp::Create(plan_.network);
  if (!network.ok()) return network.status();
  network_ = *std::move(network);
  auto test = mnist::ReadImages(absl::GetFlag(FLAGS_data), mnist::Part::kTest);
  if (!test.ok()) return test.status();
  test_ = *std::move(test);
  if (auto status = CheckLayers(plan_.network.layers, test_); !status.ok()) return status;

  std::vector<Run> runs;
  if (!plan_.alone()) {
    auto run = TrainTogether();
    if (!run.ok()) return run.status();
    runs.push_back(*std::move(run));
    daemon_process_ = nullptr;
    daemon_.Stop(kDaemonGrace);
  }
  if (plan_.alone() || absl::GetFlag(FLAGS_single)) {
    auto run = TrainAlone(plan_.alone() ? plan_.hyperparameters.at("learning_rate") : plan_.single_learning_rate,
                          absl::GetFlag(FLAGS_epochs));
    if (!run.ok()) return run.status();
    runs.push_back(*std::move(run));
  }
  std::printf("\n%s", FormatTable(runs).c_str());
  const std::string json = absl::GetFlag(FLAGS_json);
  return json.empty() ? absl::OkStatus() : WriteFile(json, ToJson(runs));
}

absl::StatusOr<Run> Launcher::TrainTogether() {
  const auto server = StartDaemon();
  if (!server.ok()) return server.status();
  // A daemon of this program's own is plain, and on loopback.
  const Security security = absl::GetFlag(FLAGS_server).empty() ? NoSecurity() : SecurityFromFlags();
  auto connected = Admin::Connect(*server, kAdminTimeout, security);
  if (!connected.ok()) return connected.status();
  Admin* admin = connected->get();
  const std::string model = absl::GetFlag(FLAGS_model);
  const auto created = admin->CreateModel(
      MakeModelSpec(model, *network_, plan_.algorithm->name, plan_.given, absl::GetFlag(FLAGS_consistency)));
  if (!created.ok()) return created.status();

  const int64_t workers = absl::GetFlag(FLAGS_workers);
  std::printf("model %s: %s, %s, %s parameters, on %s; workers %d, epochs %d\n", model.c_str(),
              plan_.algorithm->name.c_str(), created->spec().consistency().c_str(),
              FormatCount(static_cast<int64_t>(network_->parameters().size())).c_str(), server->c_str(),
              static_cast<int>(workers), static_cast<int>(absl::GetFlag(FLAGS_epochs)));
  std::fflush(stdout);

  std::vector<std::vector<std::string>> flags;
  for (int64_t i = 0; i < workers; ++i) {
    flags.push_back({absl::StrCat("--server=", *server), absl::StrCat("--model=", model), absl::StrCat("--index=", i),
                     absl::StrCat("--workers=", workers), absl::StrCat("--epochs=", absl::GetFlag(FLAGS_epochs)),
                     absl::StrCat("--overlap=", absl::GetFlag(FLAGS_overlap)),
                     absl::StrCat("--transport=", AbslUnparseFlag(absl::GetFlag(FLAGS_transport))),
                     absl::StrCat("--wire=", AbslUnparseFlag(absl::GetFlag(FLAGS_wire))),
                     absl::StrCat("--plugin=", absl::StrJoin(absl::GetFlag(FLAGS_plugin), ","))});
    for (std::string& flag : SecurityFlags(security)) flags.back().push_back(std::move(flag));
  }
  const auto outcome = RunWorkers(flags);
  if (!outcome.ok()) return outcome.status();
  const auto trained = admin->GetModel(model);
  if (!trained.ok()) return trained.status();
  const auto evaluation = EvaluateCenter(admin);
  if (!evaluation.ok()) return evaluation.status();

  Run run{.algorithm = plan_.algorithm->name,
          .workers = workers,
          .window = window(),
          .epochs = absl::GetFlag(FLAGS_epochs),
          .wall_s = outcome->wall_s,
          .test_accuracy = evaluation->accuracy};
  double samples = 0, staleness = 0;
  int64_t exchanges = 0;
  std::set<std::string> transports, wires;
  for (const WorkerSummary& summary : outcome->summaries) {
    transports.insert(summary.transport);
    wires.insert(summary.wire);
    samples += static_cast<double>(summary.samples);
    exchanges += summary.exchanges;
    staleness += summary.mean_staleness * static_cast<double>(summary.exchanges);
  }
  // A model that was there before has been trained already; an ensemble's members have versions of their own.
  run.updates = own_centers() ? exchanges : trained->version() - created->version();
  run.mean_staleness = exchanges > 0 ? staleness / static_cast<double>(exchanges) : 0;
  run.samples_per_s = samples / outcome->wall_s;
  run.transport = absl::StrJoin(transports, "+");
  run.wire = absl::StrJoin(wires, "+");
  return run;
}

absl::StatusOr<Run> Launcher::TrainAlone(double learning_rate, int64_t epochs) {
  std::printf("single: workers 1, epochs %d\n", static_cast<int>(epochs));
  std::fflush(stdout);
  const auto outcome = RunWorkers({{"--algorithm=single", "--name=single", absl::StrCat("--epochs=", epochs),
                                    absl::StrCat("--learning_rate=", learning_rate)}});
  if (!outcome.ok()) return outcome.status();
  const WorkerSummary& summary = outcome->summaries.front();
  return {{.algorithm = "single",
           .workers = 1,
           .epochs = epochs,
           .wall_s = outcome->wall_s,
           .samples_per_s = static_cast<double>(summary.samples) / outcome->wall_s,
           .test_accuracy = summary.test_accuracy.value_or(0)}};
}

absl::StatusOr<std::string> Launcher::StartDaemon() {
  if (const std::string server = absl::GetFlag(FLAGS_server); !server.empty()) return server;
  const std::string port_file = folder_->Path("port");
  std::vector<std::string> command = {Or(absl::GetFlag(FLAGS_paramd), Beside("../../server/paramd")),
                                      "--listen=127.0.0.1:0", absl::StrCat("--port_file=", port_file)};
  if (const auto plugins = absl::GetFlag(FLAGS_plugin); !plugins.empty()) {
    command.push_back(absl::StrCat("--plugin=", absl::StrJoin(plugins, ",")));
  }
  const auto daemon = daemon_.Start(command, folder_->Path("paramd.log"));
  if (!daemon.ok()) return daemon.status();
  daemon_process_ = *daemon;
  const absl::Time deadline = Clock::Steady()->Now() + kDaemonStartTimeout;
  while (Clock::Steady()->Now() < deadline) {
    if (const absl::Status status = CheckDaemon(); !status.ok()) return status;
    const auto content = ReadFile(port_file);
    int port = 0;
    if (content.ok() && absl::SimpleAtoi(*content, &port)) return absl::StrCat("127.0.0.1:", port);
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::DeadlineExceededError(absl::StrCat("the daemon did not write its port within ",
                                                  absl::FormatDuration(kDaemonStartTimeout), ":\n",
                                                  daemon_process_->LastOutput(kOutputLines)));
}

absl::Status Launcher::CheckDaemon() {
  if (stopped_) return absl::CancelledError("stopped");
  if (daemon_process_ == nullptr) return absl::OkStatus();
  const auto exit_code = daemon_process_->ExitCode();
  if (!exit_code.has_value()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the daemon ", daemon_process_->Ended(kOutputLines)));
}

std::vector<std::string> Launcher::CenterNames() const {
  const std::string model = absl::GetFlag(FLAGS_model);
  if (!own_centers()) return {model};
  std::vector<std::string> names;
  for (int64_t i = 0; i < absl::GetFlag(FLAGS_workers); ++i) names.push_back(absl::StrCat(model, "/", i));
  return names;
}

absl::StatusOr<Evaluation> Launcher::EvaluateCenter(Admin* admin) {
  std::vector<std::unique_ptr<Mlp>> members;
  std::vector<Mlp*> ensemble;
  for (const std::string& name : CenterNames()) {
    auto member = Mlp::Create(plan_.network);
    if (!member.ok()) return member.status();
    const auto pulled = admin->Pull(name, (*member)->parameters());
    if (!pulled.ok()) return pulled.status();
    ensemble.push_back(member->get());
    members.push_back(*std::move(member));
  }
  const auto source = Shard::Create(&test_, {.batch_size = 500, .shuffle = false});
  if (!source.ok()) return source.status();
  return Mlp::EvaluateEnsemble(ensemble, source->get());
}

int64_t Launcher::window() const {
  const auto half = plan_.algorithm->make_worker(plan_.hyperparameters);
  if (half->exchange_point() != ExchangePoint::kWindow) return 0;
  return static_cast<int64_t>(plan_.hyperparameters.at("communication_window"));
}

absl::StatusOr<Outcome> Launcher::RunWorkers(const std::vector<std::vector<std::string>>& flags) {
  std::vector<ChildProcess*> processes;
  for (size_t i = 0; i < flags.size(); ++i) {
    std::vector<std::string> command = {Or(absl::GetFlag(FLAGS_worker), Beside("mnist_worker")),
                                        absl::StrCat("--data=", absl::GetFlag(FLAGS_data)),
                                        absl::StrCat("--layers=", absl::GetFlag(FLAGS_layers)),
                                        absl::StrCat("--batch_size=", absl::GetFlag(FLAGS_batch_size)),
                                        absl::StrCat("--optimizer=", absl::GetFlag(FLAGS_optimizer)),
                                        absl::StrCat("--momentum=", absl::GetFlag(FLAGS_momentum)),
                                        absl::StrCat("--final_rate=", absl::GetFlag(FLAGS_final_rate)),
                                        absl::StrCat("--seed=", absl::GetFlag(FLAGS_seed)),
                                        absl::StrCat("--summary_file=", folder_->Path(absl::StrCat("summary-", i))),
                                        absl::StrCat("--progress_file=", folder_->Path(absl::StrCat("progress-", i)))};
    command.insert(command.end(), flags[i].begin(), flags[i].end());
    const auto process = workers_.Start(command, folder_->Path(absl::StrCat("worker-", i, ".log")));
    if (!process.ok()) return process.status();
    processes.push_back(*process);
  }

  ProgressLines lines;
  for (bool running = true; running;) {
    running = false;
    // Before the workers: theirs is the better error only if the daemon is well.
    if (const absl::Status status = CheckDaemon(); !status.ok()) return status;
    for (size_t i = 0; i < processes.size(); ++i) {
      const auto exit_code = processes[i]->ExitCode();
      running |= !exit_code.has_value();
      if (exit_code.value_or(0) == 0) continue;
      return absl::InternalError(absl::StrCat("worker ", i, " ", processes[i]->Ended(kOutputLines)));
    }
    DrawProgress(processes.size(), &lines);
    if (running) absl::SleepFor(kRedrawInterval);
  }

  Outcome outcome;
  double start_s = std::numeric_limits<double>::infinity(), end_s = 0;
  for (size_t i = 0; i < processes.size(); ++i) {
    const auto content = ReadFile(folder_->Path(absl::StrCat("summary-", i)));
    if (!content.ok()) return content.status();
    const auto summary = ParseWorkerSummary(*content);
    if (!summary.ok()) return summary.status();
    start_s = std::min(start_s, summary->start_s);
    end_s = std::max(end_s, summary->start_s + summary->wall_s);
    outcome.summaries.push_back(*summary);
  }
  outcome.wall_s = end_s - start_s;
  return outcome;
}

void Launcher::DrawProgress(size_t workers, ProgressLines* lines) const {
  if (!lines->enabled()) return;
  std::vector<std::string> drawn;
  for (size_t i = 0; i < workers; ++i) {
    const std::string name = absl::StrCat("worker-", i);
    const auto content = ReadFile(folder_->Path(absl::StrCat("progress-", i)));
    const auto progress = content.ok() ? ParseWorkerProgress(*content) : content.status();
    drawn.push_back(progress.ok() ? FormatProgress(name, *progress) : absl::StrCat(name, "  starting"));
  }
  lines->Draw(drawn);
}

int Main(int argc, char** argv) {
  if (WantsHelp(argc, argv)) {
    std::printf("Trains MNIST with several worker processes and a parameter server.\n\n%s",
                (FlagsHelp("examples/mnist/") + FlagsHelp("client/security_flags")).c_str());
    return 0;
  }
  const absl::Status parsed = ParseFlags(argc, argv);
  absl::StatusOr<Plan> plan = parsed.ok() ? CheckFlags() : parsed;
  if (!plan.ok()) {
    std::fprintf(stderr, "mnist: %s\n", std::string(plan.status().message()).c_str());
    return 2;
  }
  // Whoever started this may ignore the ends of children; then nobody could wait for them.
  ::signal(SIGCHLD, SIG_DFL);
  // What is written past `ulimit -f` is an error.
  ::signal(SIGXFSZ, SIG_IGN);
  auto folder = Folder::Make("paramd-mnist");
  if (!folder.ok()) {
    std::fprintf(stderr, "mnist: %s\n", folder.status().ToString().c_str());
    return 1;
  }
  Launcher launcher(*std::move(plan), *std::move(folder));
  StopSignal stop(absl::ZeroDuration());
  stop.SetHandler([&launcher] {
    launcher.Stop();
    std::fprintf(stderr, "\nmnist: stopped\n");
  });
  const absl::Status status = launcher.Execute();
  // Waits for a stop that is under way.
  stop.SetHandler(nullptr);
  if (!status.ok() && !launcher.stopped()) {
    launcher.Stop();
    std::fprintf(stderr, "mnist: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return paramd::Main(argc, argv); }
