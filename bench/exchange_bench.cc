// Measures paramd's exchanges against what the machine could do at best, and against what one would write first. See
// docs/performance.md.
#include <grpc/support/log.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "bench/report.h"
#include "bench/worker_process.h"
#include "process/tuning.h"

ABSL_FLAG(bool, quick, false, "fewer sizes, workers and rounds: the defaults of the flags that say so");
ABSL_FLAG(std::string, json, "", "write the results to this file too");
ABSL_FLAG(std::vector<std::string>, mode, {},
          "what to measure: matrix, many_workers, idle, overlap, mnist, link, training; default: all");
ABSL_FLAG(std::vector<std::string>, bytes, {},
          "sizes of the model; default: 4000,400000,4000000,40000000,200000000, quick: 4000,4000000,40000000");
ABSL_FLAG(std::vector<std::string>, workers, {}, "numbers of workers; default: 1,2,8, quick: 1,2");
ABSL_FLAG(int, rounds, 0, "rounds of every measurement; default: 9, quick: 3");
ABSL_FLAG(absl::Duration, slice, absl::ZeroDuration(), "length of a round; default: 100ms, quick: 50ms");
ABSL_FLAG(absl::Duration, budget, absl::Seconds(3), "what takes longer in one cell does three rounds only");
ABSL_FLAG(std::string, algorithm, "downpour", "of the model");
ABSL_FLAG(std::string, paramd, "", "the daemon; default: server/paramd beside this program's folder");
ABSL_FLAG(std::vector<std::string>, paramd_flag, {}, "flags for the daemon");
ABSL_FLAG(bool, tune_workers, true,
          "set up the processes of workers by TuneProcess, as the daemon and the examples do");
ABSL_FLAG(std::string, mnist_worker, "", "of the mode mnist; default: examples/mnist/mnist_worker beside this folder");
ABSL_FLAG(std::string, data, "data/mnist", "of the mode mnist: the folder with the data set");
ABSL_FLAG(std::string, training, "", "of the mode training: what scripts/training_bench.sh --json wrote");
ABSL_FLAG(std::string, role, "", "internal: worker, train, socket, tls or unary, a child of the benchmark");
ABSL_FLAG(uint64_t, role_bytes, 0, "internal: the model's size for a child");
ABSL_FLAG(std::string, role_kind, "", "internal: what a child connects");
ABSL_FLAG(std::string, role_address, "", "internal: where a child listens, or connects");
ABSL_FLAG(absl::Duration, role_window, absl::ZeroDuration(), "internal: how long a child trains between two exchanges");
ABSL_FLAG(int, role_training, 0, "internal: how a child trains");

namespace paramd::bench {
namespace {

enum ExitCode { kClean = 0, kRuntime = 1, kUsage = 2 };

constexpr size_t kFleetBytes = 4000;
constexpr int kIdleWorkers = 500;
constexpr size_t kLargeBytes = 40'000'000;
constexpr absl::Duration kWindow = absl::Milliseconds(10);
constexpr const char* kModes[] = {"matrix", "many_workers", "idle", "overlap", "mnist", "link", "training"};

int Fail(const absl::Status& status, ExitCode code) {
  std::cerr << "exchange_bench: " << status.message() << "\n";
  return code;
}

template <typename Number>
absl::StatusOr<std::vector<Number>> ParseNumbers(const std::vector<std::string>& texts, const char* flag) {
  std::vector<Number> numbers;
  for (const std::string& text : texts) {
    Number number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 1) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": '", text, "' is no positive number"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

template <typename T>
T OneOf(const T& given, bool was_given, const T& usual, const T& quick) {
  return was_given ? given : absl::GetFlag(FLAGS_quick) ? quick : usual;
}

// A folder that goes with the run.
class ScratchFolder {
 public:
  ScratchFolder() {
    const char* const parent = getenv("TMPDIR");
    path_ = absl::StrCat(parent != nullptr ? parent : "/tmp", "/bench.XXXXXX");
    made_ = mkdtemp(path_.data()) != nullptr;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (made_) std::filesystem::remove_all(path_, ignored);
  }
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

void ShowProgress(const std::string& what) {
  if (isatty(STDERR_FILENO)) std::cerr << "\r\033[K" << what << std::flush;
}

// Whether a mode is to be measured. Says so, if it is.
bool Begins(const std::string& mode) {
  const std::vector<std::string> modes = absl::GetFlag(FLAGS_mode);
  const bool wanted = modes.empty() || std::find(modes.begin(), modes.end(), mode) != modes.end();
  if (wanted) ShowProgress(mode);
  return wanted;
}

int RunAll() {
  for (const std::string& mode : absl::GetFlag(FLAGS_mode)) {
    if (std::find(std::begin(kModes), std::end(kModes), mode) == std::end(kModes)) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("--mode=", mode, ": use ", absl::StrJoin(kModes, ", "))),
                  kUsage);
    }
  }
  const bool quick = absl::GetFlag(FLAGS_quick);
  const std::vector<std::string> given_bytes = absl::GetFlag(FLAGS_bytes);
  const std::vector<std::string> given_workers = absl::GetFlag(FLAGS_workers);
  auto sizes = ParseNumbers<size_t>(
      OneOf(given_bytes, !given_bytes.empty(), {"4000", "400000", "4000000", "40000000", "200000000"},
            {"4000", "4000000", "40000000"}),
      "bytes");
  if (!sizes.ok()) return Fail(sizes.status(), kUsage);
  for (size_t& bytes : *sizes) {
    if (bytes % sizeof(float) != 0) return Fail(absl::InvalidArgumentError("--bytes: use multiples of 4"), kUsage);
  }
  auto workers =
      ParseNumbers<int>(OneOf(given_workers, !given_workers.empty(), {"1", "2", "8"}, {"1", "2"}), "workers");
  if (!workers.ok()) return Fail(workers.status(), kUsage);

  const ScratchFolder scratch;
  if (!scratch.made())
    return Fail(absl::UnavailableError("can't make a folder in /tmp, or in $TMPDIR if that is set"), kRuntime);
  setenv("BENCH_TLS_CA", (scratch.path() + "/tls_ca").c_str(), 1);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path root = self.parent_path().parent_path();
  const std::string given_paramd = absl::GetFlag(FLAGS_paramd);
  const std::string given_worker = absl::GetFlag(FLAGS_mnist_worker);
  MatrixOptions options = {
      .programs = {.self = self.string(),
                   .paramd = given_paramd.empty() ? (root / "server/paramd").string() : given_paramd,
                   .scratch = scratch.path(),
                   .algorithm = absl::GetFlag(FLAGS_algorithm),
                   .paramd_flags = absl::GetFlag(FLAGS_paramd_flag),
                   .tune_workers = absl::GetFlag(FLAGS_tune_workers)},
      .sizes = *sizes,
      .workers = *workers,
      .rounds = OneOf(absl::GetFlag(FLAGS_rounds), absl::GetFlag(FLAGS_rounds) > 0, 9, 3),
      .slice = OneOf(absl::GetFlag(FLAGS_slice), absl::GetFlag(FLAGS_slice) > absl::ZeroDuration(),
                     absl::Milliseconds(100), absl::Milliseconds(50)),
      .budget = absl::GetFlag(FLAGS_budget),
      .progress = ShowProgress};
  if (access(options.programs.paramd.c_str(), X_OK) != 0) {
    return Fail(absl::NotFoundError(absl::StrCat("there is no daemon at ", options.programs.paramd,
                                                 "; build //server:paramd, or name it with --paramd")),
                kUsage);
  }

  Results results;
  results.settings = absl::StrCat(
      options.rounds, " rounds of ", absl::FormatDuration(options.slice), ", ", options.programs.algorithm,
      ", workers ", options.programs.tune_workers ? "tuned by" : "without", " TuneProcess",
      options.programs.paramd_flags.empty() ? "" : ", daemon with ", absl::StrJoin(options.programs.paramd_flags, " "));
  const Programs& programs = options.programs;
  if (Begins("matrix")) results.rows = RunMatrix(options);
  if (Begins("many_workers")) {
    const std::vector<int> counts = quick ? std::vector<int>{1, 8, 64} : std::vector<int>{1, 2, 4, 8, 16, 32, 64};
    auto fleet = RunFleet(programs, counts, kFleetBytes, quick ? 3 : 5, absl::Milliseconds(quick ? 300 : 1000));
    if (!fleet.ok()) return Fail(fleet.status(), kRuntime);
    results.fleet = *std::move(fleet);
  }
  if (Begins("idle")) results.idle = RunIdle(programs, kIdleWorkers, kFleetBytes, absl::Seconds(quick ? 3 : 20));
  if (Begins("overlap")) results.overlap = RunOverlap(programs, kLargeBytes, kWindow, quick ? 1 : 5);
  if (Begins("mnist")) {
    const std::string worker = given_worker.empty() ? (root / "examples/mnist/mnist_worker").string() : given_worker;
    results.mnist = RunMnist(programs, worker, absl::GetFlag(FLAGS_data), quick ? 2 : 6, quick ? 1 : 5);
  }
  if (Begins("link")) {
    results.link = RunLink(programs, kLargeBytes, quick ? 1 : 5, absl::Seconds(quick ? 1 : 2));
  }
  if (Begins("training")) results.training = ReadTraining(absl::GetFlag(FLAGS_training));
  ShowProgress("");
  std::cout << FormatMarkdown(results);
  const std::string json = absl::GetFlag(FLAGS_json);
  if (json.empty()) return kClean;
  const absl::Status written = WriteJson(results, json);
  return written.ok() ? kClean : Fail(written, kRuntime);
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures paramd's exchanges against baselines; see docs/performance.md.");
  if (absl::ParseCommandLine(argc, argv).size() != 1) {
    return Fail(absl::InvalidArgumentError("nothing but flags is expected; --help lists them"), kUsage);
  }
  signal(SIGPIPE, SIG_IGN);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  const std::string role = absl::GetFlag(FLAGS_role);
  const size_t bytes = absl::GetFlag(FLAGS_role_bytes);
  if (role.empty()) return RunAll();
  if (absl::GetFlag(FLAGS_tune_workers) && (role == "worker" || role == "train")) TuneProcess();
  const std::string address = absl::GetFlag(FLAGS_role_address);
  const std::string algorithm = absl::GetFlag(FLAGS_algorithm);
  const absl::Status status =
      role == "worker" ? ServeWorker(bytes, algorithm)
      : role == "train"
          ? ServeTraining(absl::GetFlag(FLAGS_role_kind), address, algorithm, bytes, absl::GetFlag(FLAGS_role_window),
                          static_cast<Training>(absl::GetFlag(FLAGS_role_training)))
          : ServeBaseline(role, address, bytes);
  return status.ok() ? kClean : Fail(status, kRuntime);
}

}  // namespace
}  // namespace paramd::bench

int main(int argc, char** argv) { return paramd::bench::Main(argc, argv); }
