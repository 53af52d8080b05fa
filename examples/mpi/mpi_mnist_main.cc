// mpi_mnist: one rank of a launch (mpirun, srun or any that tells rank and size) trains on its share of MNIST; rank 0
// hosts the daemon, unless --server names one, and tells how good the center is. Exit codes: 0 done, 1 failed, 2 bad
// flags. See docs/mpi.md.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/admin.h"
#include "client/mlp/mlp.h"
#include "client/wire_flags.h"
#include "client/worker.h"
#include "examples/mnist/idx.h"
#include "examples/mnist/model_spec.h"
#include "examples/mnist/paths.h"
#include "examples/mnist/shard.h"
#include "examples/mpi/hosted_daemon.h"
#include "examples/mpi/ranks.h"
#include "flags/command_line.h"
#include "process/tuning.h"

ABSL_FLAG(std::string, server, "",
          "a running daemon, HOST:PORT or unix:PATH: MPI is not used then; empty: rank 0 starts one");
ABSL_FLAG(std::string, paramd, "", "the daemon to start; empty: ../../server/paramd beside this program");
ABSL_FLAG(std::string, advertise, "", "rank 0's name or address for the other hosts; empty: its host name");
ABSL_FLAG(bool, insecure, false, "let the daemon listen on all interfaces, which ranks on several hosts need");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(30), "of the daemon: how long a rank may be silent, and is waited for");
ABSL_FLAG(std::string, model, "mnist", "name of the model; each launch on one daemon needs its own");
ABSL_FLAG(std::string, algorithm, "adag", "how the ranks train together");
ABSL_FLAG(std::string, consistency, "", "async, bounded:S or sync; empty: the algorithm's");
ABSL_FLAG(std::string, data, "data/mnist", "folder with MNIST's IDX files, gzipped or not");
ABSL_FLAG(std::string, layers, "784,128,10", "units of each layer, from input to output");
ABSL_FLAG(int64_t, epochs, 5, "passes of each rank over its share");
ABSL_FLAG(int64_t, batch_size, 32, "rows in a minibatch");
ABSL_FLAG(paramd::Transport, transport, paramd::Transport::kAuto, "how floats travel: shm, grpc, or auto");

namespace paramd {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr uint64_t kSeed = 1;  // of the first center and of the shares: the same for all ranks

std::string WorkerName(int rank) { return absl::StrCat("rank-", rank); }

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// Starts the daemon and returns the address for all ranks.
absl::StatusOr<std::string> StartDaemon(bool one_host, std::unique_ptr<HostedDaemon>* daemon) {
  const bool insecure = absl::GetFlag(FLAGS_insecure);
  if (!one_host && !insecure) {
    return absl::FailedPreconditionError(
        "the ranks run on several hosts, and the daemon has no TLS yet: say --insecure if their network is trusted, or "
        "start one yourself and name it by --server");
  }
  std::vector<std::string> flags = {"--lease=" + absl::FormatDuration(absl::GetFlag(FLAGS_lease)),
                                    "--log_level=warning"};
  if (insecure) flags.push_back("--insecure");
  const std::string program = absl::GetFlag(FLAGS_paramd);
  auto started = HostedDaemon::Start(program.empty() ? Beside("../../server/paramd") : program,
                                     insecure ? "0.0.0.0" : "127.0.0.1", std::move(flags));
  if (!started.ok()) return started.status();
  *daemon = *std::move(started);
  const std::string advertise = absl::GetFlag(FLAGS_advertise);
  const std::string host = one_host ? "127.0.0.1" : advertise.empty() ? HostName() : advertise;
  return absl::StrCat(host, ":", (*daemon)->port());
}

// Waits until no rank trains any more: each has left, or its lease has run out, or it never came.
absl::StatusOr<v1::ModelInfo> AwaitOthers(Admin* admin, int size) {
  const absl::Time join_deadline = absl::Now() + WorkerOptions().join_timeout;
  while (true) {
    auto model = admin->GetModel(absl::GetFlag(FLAGS_model));
    if (!model.ok()) return model.status();
    const bool all_came = model->workers_size() >= size || absl::Now() >= join_deadline;
    const bool training =
        std::any_of(model->workers().begin(), model->workers().end(),
                    [](const v1::WorkerInfo& worker) { return worker.state() == v1::WorkerInfo::LIVE; });
    if (all_came && !training) return model;
    absl::SleepFor(kPollInterval);
  }
}

absl::Status Evaluate(const std::string& server, int size, Mlp* network) {
  auto admin = Admin::Connect(server);
  if (!admin.ok()) return admin.status();
  const auto model = AwaitOthers(admin->get(), size);
  if (!model.ok()) return model.status();
  int finished = 0;
  for (const v1::WorkerInfo& worker : model->workers()) finished += worker.state() == v1::WorkerInfo::LEFT;
  const auto pulled = (*admin)->Pull(model->spec().name(), network->parameters());
  if (!pulled.ok()) return pulled.status();
  const auto test = mnist::ReadMnist(absl::GetFlag(FLAGS_data), "t10k");
  if (!test.ok()) return test.status();
  const auto source = Shard::Create(&*test, {.batch_size = 500, .shuffle = false});
  if (!source.ok()) return source.status();
  const auto evaluation = network->Evaluate(source->get());
  if (!evaluation.ok()) return evaluation.status();
  absl::PrintF("%s: %d of %d ranks finished, %d updates, mean staleness %.2f, test accuracy %.2f %%\n",
               model->spec().algorithm(), finished, size, model->version(), model->mean_staleness(),
               100 * evaluation->accuracy);
  return absl::OkStatus();
}

absl::Status TrainAndEvaluate(const Ranks& ranks, const std::string& server, Mlp* network) {
  const auto train = mnist::ReadMnist(absl::GetFlag(FLAGS_data), "train");
  if (!train.ok()) return train.status();
  const auto shard = Shard::Create(
      &*train,
      {.worker = ranks.rank, .workers = ranks.size, .batch_size = absl::GetFlag(FLAGS_batch_size), .seed = kSeed});
  if (!shard.ok()) return shard.status();
  const std::string model = absl::GetFlag(FLAGS_model);
  WorkerOptions options{.server = server,
                        .model = model,
                        .worker = WorkerName(ranks.rank),
                        .create = std::make_shared<v1::ModelSpec>(MakeModelSpec(
                            model, *network, absl::GetFlag(FLAGS_algorithm), {}, absl::GetFlag(FLAGS_consistency))),
                        .transport = absl::GetFlag(FLAGS_transport)};
  const auto trained = RunWorker(options, {.epochs = absl::GetFlag(FLAGS_epochs)}, network, shard->get());
  if (!trained.ok()) return trained.status();
  absl::PrintF("rank %d of %d: %d samples in %.1f s, %d exchanges, loss %.4f\n", ranks.rank, ranks.size,
               trained->samples, absl::ToDoubleSeconds(trained->wall), trained->exchanges, trained->last_loss);
  std::fflush(stdout);
  return ranks.rank == 0 ? Evaluate(server, ranks.size, network) : absl::OkStatus();
}

absl::Status Run(Mlp* network, Ranks* ranks) {
  const std::string server = absl::GetFlag(FLAGS_server);
  if (!server.empty()) {
    auto found = RanksFromEnvironment();
    if (!found.ok()) return found.status();
    *ranks = *found;
    return TrainAndEvaluate(*ranks, server, network);
  }
  std::unique_ptr<HostedDaemon> daemon;
  const auto meeting = MeetByMpi([&daemon](bool one_host) { return StartDaemon(one_host, &daemon); });
  if (!meeting.ok()) return meeting.status();
  *ranks = meeting->ranks;
  return TrainAndEvaluate(*ranks, meeting->message, network);
}

int Main(int argc, char** argv) {
  if (WantsHelp(argc, argv)) {
    std::printf("Trains MNIST with the ranks of one launch.\n\n%s", FlagsHelp("examples/mpi/").c_str());
    return 0;
  }
  absl::Status status = ParseFlags(argc, argv);
  std::unique_ptr<Mlp> network;
  if (status.ok()) {
    const auto layers = ParseLayers(absl::GetFlag(FLAGS_layers));
    auto made = layers.ok() ? Mlp::Create({.layers = *layers, .seed = kSeed}) : layers.status();
    status = made.status();
    if (made.ok()) network = *std::move(made);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "mpi_mnist: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  TuneProcess();
  Ranks ranks;
  status = Run(network.get(), &ranks);
  if (!status.ok()) {
    std::fprintf(stderr, "mpi_mnist: rank %d: %s\n", ranks.rank, status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return paramd::Main(argc, argv); }
