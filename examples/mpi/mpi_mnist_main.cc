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
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "algorithms/registry.h"
#include "client/admin.h"
#include "client/job_secrets.h"
#include "client/mlp/mlp.h"
#include "client/security_flags.h"
#include "client/wire_flags.h"
#include "client/worker.h"
#include "examples/mnist/data_set.h"
#include "examples/mnist/idx.h"
#include "examples/mnist/model_spec.h"
#include "examples/mnist/paths.h"
#include "examples/mnist/shard.h"
#include "examples/mpi/hosted_daemon.h"
#include "examples/mpi/launch.h"
#include "examples/mpi/meeting.h"
#include "examples/mpi/ranks.h"
#include "flags/command_line.h"
#include "process/tuning.h"
#include "proto/address.h"
#include "sync/clock.h"

ABSL_FLAG(std::string, server, "",
          "a running daemon, HOST:PORT or unix:PATH: MPI is not used then; empty: rank 0 starts one");
ABSL_FLAG(std::string, paramd, "", "the daemon to start; empty: ../../server/paramd beside this program");
ABSL_FLAG(std::string, advertise, "", "rank 0's name or address for the other hosts; empty: its host name");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(30), "of the daemon: how long a rank may be silent, and is waited for");
ABSL_FLAG(std::string, model, "mnist", "name of the model; launches at the same time on one daemon need one each");
ABSL_FLAG(std::string, algorithm, "adag", "how the ranks train together");
ABSL_FLAG(std::string, consistency, "", "async, bounded:S or sync; empty: the algorithm's");
ABSL_FLAG(std::vector<std::string>, plugin, {}, "shared objects with further algorithms, for the daemon and the ranks");
ABSL_FLAG(std::string, data, "data/mnist", "folder with the IDX files of MNIST or its kin, gzipped or not");
ABSL_FLAG(std::string, layers, "784,128,10", "units of each layer, from input to output");
ABSL_FLAG(int64_t, epochs, 5, "passes of each rank over its share");
ABSL_FLAG(int64_t, batch_size, 32, "rows in a minibatch");
ABSL_FLAG(int64_t, window, 0, "minibatches between two exchanges; 0: the algorithm's");
ABSL_FLAG(double, learning_rate, 0, "of the ranks; 0: the algorithm's");
ABSL_FLAG(bool, overlap, false, "exchange on a second thread while the next window trains");
ABSL_FLAG(paramd::Transport, transport, paramd::Transport::kAuto, "how floats travel: shm, grpc, or auto");
ABSL_FLAG(paramd::Wire, wire, paramd::Wire::kFloat32, "what floats travel as, over grpc: f32, f16 or bf16");
ABSL_FLAG(absl::Duration, join_timeout, absl::Minutes(1), "how long ranks wait for --server, and rank 0 for ranks");

namespace paramd {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
// How long the others look for a daemon that rank 0 hosts: it was there, and once it is gone it is so for good.
constexpr absl::Duration kHostedTimeout = absl::Seconds(10);
// For telling the others why this rank can't train.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(5);
constexpr uint64_t kSeed = 1;  // of the first center and of the shares: the same for all ranks

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// One rank's part.
class Job {
 public:
  // From the flags.
  static absl::StatusOr<std::unique_ptr<Job>> Create();

  absl::Status Run();
  // "rank 3: ", or nothing as long as it is not known which one this is.
  std::string Prefix() const { return ranks_.size == 0 ? "" : absl::StrCat("rank ", ranks_.rank, ": "); }

 private:
  Job() = default;

  // Reads what this rank trains and tests with.
  absl::Status Prepare();
  // Starts the daemon with the model and returns what all ranks need: its address, the token, and the authority.
  absl::StatusOr<std::string> StartDaemon(bool one_host);
  // To the daemon, which this rank has not joined or has left: that it has ended, and how.
  void TellEnd(const absl::Status& status) const;
  // What rank 0 does.
  absl::Status Train();
  // What another rank does beside a daemon that has seen earlier launches, if it is `prepared`.
  absl::Status TakePart(const absl::Status& prepared);
  absl::Status TrainShare();
  // Tells again how this rank has ended once rank 0 has come, who would take it for an earlier launch's otherwise.
  void TellLateRank0(const absl::Status& status, Admin* admin, Launch* launch) const;
  // Waits until no rank trains any more: each has left, its lease has run out, it has been without a connection for
  // longer than it would try to have one again, or it never came.
  absl::Status AwaitOthers(Admin* admin, Launch* launch) const;
  absl::Status Evaluate(Admin* admin, Launch* launch) const;

  WorkerOptions MakeWorkerOptions() const;
  // Whether rank 0 has started the daemon.
  static bool hosted() { return absl::GetFlag(FLAGS_server).empty(); }
  bool own_centers() const { return algorithm_->make_server(hyperparameters_)->own_centers(); }

  const Algorithm* algorithm_ = nullptr;
  Hyperparameters hyperparameters_;  // complete
  MlpOptions network_options_;
  std::unique_ptr<Mlp> network_;
  v1::ModelSpec spec_;

  Ranks ranks_{.size = 0};  // until they are known
  std::unique_ptr<HostedDaemon> daemon_;
  std::string server_;
  Security security_ = NoSecurity();
  DataSet train_;
  DataSet test_;
  std::unique_ptr<Shard> shard_;
};

absl::StatusOr<std::unique_ptr<Job>> Job::Create() {
  if (const std::string server = absl::GetFlag(FLAGS_server); !server.empty()) {
    const auto address = ParseServerAddress(server);
    if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--server: ", address.status().message()));
  }
  if (absl::GetFlag(FLAGS_epochs) <= 0) return absl::InvalidArgumentError("--epochs must be positive");
  for (const std::string& plugin : absl::GetFlag(FLAGS_plugin)) {
    if (auto status = LoadPlugin(plugin); !status.ok()) return status;
  }
  std::unique_ptr<Job> job(new Job);
  const auto algorithm = FindAlgorithm(absl::GetFlag(FLAGS_algorithm));
  if (!algorithm.ok()) return algorithm.status();
  job->algorithm_ = *algorithm;
  if (job->algorithm_->make_server == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--algorithm=", job->algorithm_->name, " has no server: its workers do not train together"));
  }
  Hyperparameters given;
  if (const int64_t window = absl::GetFlag(FLAGS_window); window != 0) {
    given["communication_window"] = static_cast<double>(window);
  }
  if (const double rate = absl::GetFlag(FLAGS_learning_rate); rate != 0) given["learning_rate"] = rate;
  auto complete = CompleteHyperparameters(*job->algorithm_, given);
  if (!complete.ok()) return complete.status();
  job->hyperparameters_ = *std::move(complete);
  auto layers = ParseLayers(absl::GetFlag(FLAGS_layers));
  if (!layers.ok()) return layers.status();
  job->network_options_ = {.layers = *std::move(layers), .seed = kSeed};
  auto network = Mlp::Create(job->network_options_);
  if (!network.ok()) return network.status();
  job->network_ = *std::move(network);
  if (auto status = CheckShardOptions({.batch_size = absl::GetFlag(FLAGS_batch_size)}); !status.ok()) return status;
  job->spec_ = MakeModelSpec(absl::GetFlag(FLAGS_model), *job->network_, job->algorithm_->name, given,
                             absl::GetFlag(FLAGS_consistency));
  return job;
}

absl::Status Job::Run() {
  if (hosted()) {
    auto server = MeetByMpi(
        &ranks_, spec_.SerializeAsString(), [this] { return Prepare(); },
        [this](bool one_host) { return StartDaemon(one_host); });
    if (!server.ok()) return server.status();
    const std::vector<std::string> parts = absl::StrSplit(*server, absl::MaxSplits('\n', 2));
    server_ = parts[0];
    security_.token = parts[1];
    security_.tls_ca = parts[2];
    return ranks_.rank == 0 ? Train() : TrainShare();
  }
  server_ = absl::GetFlag(FLAGS_server);
  security_ = SecurityFromFlags();
  auto ranks = RanksFromEnvironment();
  if (!ranks.ok()) return ranks.status();
  ranks_ = *std::move(ranks);
  const absl::Status prepared = Prepare();
  if (ranks_.rank != 0) return TakePart(prepared);
  if (prepared.ok()) return Train();
  TellEnd(prepared);
  return prepared;
}

absl::Status Job::Prepare() {
  auto train = mnist::ReadImages(absl::GetFlag(FLAGS_data), mnist::Part::kTraining);
  if (!train.ok()) return train.status();
  train_ = *std::move(train);
  if (auto status = CheckLayers(network_options_.layers, train_); !status.ok()) return status;
  auto shard = Shard::Create(
      &train_,
      {.worker = ranks_.rank, .workers = ranks_.size, .batch_size = absl::GetFlag(FLAGS_batch_size), .seed = kSeed});
  if (!shard.ok()) return shard.status();
  shard_ = *std::move(shard);
  if (ranks_.rank != 0) return absl::OkStatus();
  auto test = mnist::ReadImages(absl::GetFlag(FLAGS_data), mnist::Part::kTest);
  if (!test.ok()) return test.status();
  test_ = *std::move(test);
  return CheckLayers(network_options_.layers, test_);
}

absl::StatusOr<std::string> Job::StartDaemon(bool one_host) {
  const std::string advertise = absl::GetFlag(FLAGS_advertise);
  const std::string host = one_host ? "127.0.0.1" : advertise.empty() ? HostName() : advertise;
  std::vector<std::string> flags = {"--lease=" + absl::FormatDuration(absl::GetFlag(FLAGS_lease)),
                                    "--log_level=warning"};
  for (const std::string& plugin : absl::GetFlag(FLAGS_plugin)) flags.push_back("--plugin=" + plugin);
  HostedDaemon::Options options{
      .program = absl::GetFlag(FLAGS_paramd), .flags = std::move(flags), .one_host = one_host};
  if (options.program.empty()) options.program = Beside("../../server/paramd");
  if (!SecurityFromFlags().insecure) {
    // Whoever is not of this launch stays out; between hosts nobody reads along, either.
    auto secrets = MakeJobSecrets({"127.0.0.1", host});
    if (!secrets.ok()) return secrets.status();
    options.secrets = *std::move(secrets);
    security_.token = options.secrets->token;
    if (!one_host) security_.tls_ca = options.secrets->tls_ca;
  }
  auto started = HostedDaemon::Start(options);
  if (!started.ok()) return started.status();
  daemon_ = *std::move(started);
  const auto admin = Admin::Connect(absl::StrCat("127.0.0.1:", daemon_->port()), absl::Seconds(30), security_);
  if (!admin.ok()) return admin.status();
  // What is wrong with the model is every rank's error then.
  const auto created = (*admin)->CreateModel(spec_);
  if (!created.ok()) return created.status();
  return absl::StrCat(host, ":", daemon_->port(), "\n", security_.token, "\n", security_.tls_ca);
}

WorkerOptions Job::MakeWorkerOptions() const {
  WorkerOptions options;
  options.server = server_;
  options.model = spec_.name();
  options.worker = RankName(ranks_.rank);
  options.security = security_;
  options.create = std::make_shared<v1::ModelSpec>(spec_);
  options.join_timeout = absl::GetFlag(FLAGS_join_timeout);
  options.transport = absl::GetFlag(FLAGS_transport);
  options.wire = absl::GetFlag(FLAGS_wire);
  if (hosted()) {
    options.join_timeout = std::min(options.join_timeout, kHostedTimeout);
    options.rpc_timeout = kHostedTimeout;
  }
  return options;
}

void Job::TellEnd(const absl::Status& status) const {
  WorkerOptions options = MakeWorkerOptions();
  options.join_timeout = std::min(options.join_timeout, kFarewellTimeout);
  options.transport = Transport::kAuto;
  // The model is another one than this rank's.
  if (absl::IsAlreadyExists(status)) options.create = nullptr;
  const auto worker = Worker::Join(std::move(options));
  if (worker.ok()) (*worker)->Leave(status.ok() ? "" : status.ToString(), kFarewellTimeout).IgnoreError();
}

absl::Status Job::TakePart(const absl::Status& prepared) {
  const absl::Duration timeout = absl::GetFlag(FLAGS_join_timeout);
  const auto admin = Admin::Connect(server_, prepared.ok() ? timeout : std::min(timeout, kFarewellTimeout), security_);
  const auto earlier = admin.ok() ? (*admin)->GetStatus() : admin.status();
  if (!earlier.ok()) return prepared.ok() ? earlier.status() : prepared;
  Launch launch(spec_.name(), ranks_.size, own_centers(), *earlier);
  if (!prepared.ok()) TellEnd(prepared);
  const absl::Status ended = prepared.ok() ? TrainShare() : prepared;
  // Another process has this rank's name then.
  if (!absl::IsAborted(ended)) TellLateRank0(ended, admin->get(), &launch);
  return ended;
}

void Job::TellLateRank0(const absl::Status& status, Admin* admin, Launch* launch) const {
  const absl::Time deadline = Clock::Steady()->Now() + absl::GetFlag(FLAGS_join_timeout);
  for (bool late = false; true; late = true) {
    const auto now = admin->GetStatus();
    if (!now.ok()) return;
    launch->Update(*now);
    if (launch->rank_0_came()) {
      if (late) TellEnd(status);
      return;
    }
    if (Clock::Steady()->Now() >= deadline) break;
    absl::SleepFor(kPollInterval);
  }
  std::fprintf(stderr, "mpi_mnist: rank %d: rank 0 of this launch has not come, and won't count this rank\n",
               ranks_.rank);
}

absl::Status Job::Train() {
  const auto admin = Admin::Connect(server_, absl::GetFlag(FLAGS_join_timeout), security_);
  if (!admin.ok()) return admin.status();
  const auto earlier = (*admin)->GetStatus();
  if (!earlier.ok()) return earlier.status();
  Launch launch(spec_.name(), ranks_.size, own_centers(), *earlier);
  const absl::Status trained = TrainShare();
  // A daemon that this rank hosts stays for the others, whatever becomes of this one.
  if (!trained.ok() && (daemon_ == nullptr || !daemon_->running())) return trained;
  const absl::Status evaluated = Evaluate(admin->get(), &launch);
  return trained.ok() ? evaluated : trained;
}

absl::Status Job::TrainShare() {
  bool joined = false;
  const auto trained =
      RunWorker(MakeWorkerOptions(), {.epochs = absl::GetFlag(FLAGS_epochs), .overlap = absl::GetFlag(FLAGS_overlap)},
                network_.get(), shard_.get(), [&joined](const Worker*, const TrainLoop*) { joined = true; });
  if (!trained.ok() && !joined && !absl::IsDeadlineExceeded(trained.status())) TellEnd(trained.status());
  if (hosted() && ranks_.rank != 0 &&
      (absl::IsUnavailable(trained.status()) || absl::IsDeadlineExceeded(trained.status()))) {
    return absl::UnavailableError(
        absl::StrCat(trained.status().message(), ". Rank 0 hosts the daemon, which ends with it: see what that said"));
  }
  if (absl::IsAborted(trained.status()) && !ranks_.source.empty()) {
    return absl::AbortedError(absl::StrCat(trained.status().message(), ". This one is rank ", ranks_.rank, " of ",
                                           ranks_.size, " because the environment says ", ranks_.source));
  }
  if (!trained.ok()) return trained.status();
  absl::PrintF("rank %d of %d: %d samples in %.1f s, %d exchanges, loss %.4f\n", ranks_.rank, ranks_.size,
               trained->samples, absl::ToDoubleSeconds(trained->wall), trained->exchanges, trained->last_loss);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Job::AwaitOthers(Admin* admin, Launch* launch) const {
  const absl::Time join_deadline = Clock::Steady()->Now() + absl::GetFlag(FLAGS_join_timeout);
  const absl::Duration patience = MakeWorkerOptions().rpc_timeout;
  absl::Time connected = Clock::Steady()->Now();
  while (true) {
    const auto status = admin->GetStatus();
    if (!status.ok()) return status.status();
    launch->Update(*status);
    const absl::Time now = Clock::Steady()->Now();
    if (status->sessions() > 0) connected = now;
    const bool training = launch->any_live() && now < connected + patience;
    if (!training && (launch->all_came() || now >= join_deadline)) return absl::OkStatus();
    absl::SleepFor(kPollInterval);
  }
}

absl::Status Job::Evaluate(Admin* admin, Launch* launch) const {
  if (auto status = AwaitOthers(admin, launch); !status.ok()) return status;
  std::vector<std::unique_ptr<Mlp>> members;
  std::vector<Mlp*> ensemble;
  for (const std::string& name : launch->centers()) {
    auto member = Mlp::Create(network_options_);
    if (!member.ok()) return member.status();
    const auto pulled = admin->Pull(name, (*member)->parameters());
    if (!pulled.ok()) return pulled.status();
    ensemble.push_back(member->get());
    members.push_back(*std::move(member));
  }
  if (!ensemble.empty()) {
    const auto source = Shard::Create(&test_, {.batch_size = 500, .shuffle = false});
    if (!source.ok()) return source.status();
    const auto evaluation = Mlp::EvaluateEnsemble(ensemble, source->get());
    if (!evaluation.ok()) return evaluation.status();
    absl::PrintF("%s: %d of %d ranks finished, %d updates, mean staleness %.2f, test accuracy %.2f %%\n",
                 spec_.algorithm(), launch->finished(), ranks_.size, launch->updates(), launch->mean_staleness(),
                 100 * evaluation->accuracy);
    std::fflush(stdout);
  }
  if (launch->finished() == ranks_.size) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(launch->finished(), " of ", ranks_.size, " ranks finished: ", launch->Problems()));
}

int Main(int argc, char** argv) {
  if (WantsHelp(argc, argv)) {
    std::printf("Trains MNIST with the ranks of one launch.\n\n%s",
                (FlagsHelp("examples/mpi/") + FlagsHelp("client/security_flags")).c_str());
    return 0;
  }
  const absl::Status parsed = ParseFlags(argc, argv);
  const auto job = parsed.ok() ? Job::Create() : parsed;
  if (!job.ok()) {
    std::fprintf(stderr, "mpi_mnist: %s\n", std::string(job.status().message()).c_str());
    return 2;
  }
  TuneProcess();
  const absl::Status status = (*job)->Run();
  if (!status.ok()) {
    std::fprintf(stderr, "mpi_mnist: %s%s\n", (*job)->Prefix().c_str(), status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return paramd::Main(argc, argv); }
