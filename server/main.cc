// paramd, the daemon.
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "algorithms/registry.h"
#include "flags/command_line.h"
#include "google/protobuf/stubs/logging.h"
#include "process/descriptors.h"
#include "process/memory.h"
#include "process/system_call.h"
#include "process/tuning.h"
#include "proto/text.h"
#include "proto/version.h"
#include "server/log_sink.h"
#include "server/model_event.h"
#include "server/port_file.h"
#include "server/reflection.h"
#include "server/server.h"
#include "sync/clock.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:5000",
          "where to listen: HOST:PORT (port 0: the system chooses) or unix:PATH");
ABSL_FLAG(std::string, port_file, "", "write the port (or unix:PATH) to this file once the daemon listens");
ABSL_FLAG(std::string, tls_cert, "", "PEM file of the certificate to speak TLS with; may be replaced meanwhile");
ABSL_FLAG(std::string, tls_key, "", "PEM file of that certificate's key");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file of authorities: only clients with a certificate of theirs are let in");
ABSL_FLAG(
    std::string, token_file, "",
    "file of tokens with their roles and models: only calls with one of them are let in; may be replaced meanwhile");
ABSL_FLAG(bool, insecure, false, "allow to listen beyond loopback without TLS, or for everybody");
ABSL_FLAG(int, threads, 2, "threads that serve: one talks to the workers while the others apply large commits");
ABSL_FLAG(int, apply_threads, 0, "threads that apply one commit to a large model; 0: one a core, at most 4");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(30), "how long a worker may be silent before nobody waits for it");
ABSL_FLAG(
    absl::Duration, grace, absl::Seconds(10),
    "how long a shutdown may take: exchanges on the wire end by then, by half of it with --state_dir, so that what has "
    "changed is written");
ABSL_FLAG(uint64_t, max_in_flight_bytes, 0,
          "cap on commits being received, centers on the wire and answers that may be asked for again; 0: 64 MiB; "
          "never less than two commits of the largest model");
ABSL_FLAG(absl::Duration, stall_timeout, absl::Seconds(60),
          "how long an exchange may hold bytes in flight without going on, before it is ended so that others can");
ABSL_FLAG(
    uint64_t, max_shared_bytes, paramd::DefaultMaxSharedBytes(),
    "cap on memory shared with workers on this host, of which each takes twice its model; 0: none; the default is a "
    "quarter of the machine's memory");
ABSL_FLAG(uint64_t, max_model_bytes, uint64_t{64} << 30, "larger models are refused");
ABSL_FLAG(uint64_t, max_models, 1024, "models that may exist at once");
ABSL_FLAG(uint64_t, max_workers, 10'000, "workers of one model, live or remembered");
ABSL_FLAG(uint64_t, max_connections, 0, "connections at once; 0: as many as the limit on open files carries");
ABSL_FLAG(uint64_t, max_connections_per_peer, 0,
          "connections at once from one address; 0: three quarters of all, and of this host all");
ABSL_FLAG(uint64_t, max_streams_per_connection, 1000, "calls at once on one connection; further ones wait");
ABSL_FLAG(absl::Duration, handshake_timeout, absl::Seconds(10),
          "how long a connection may take to say that it speaks HTTP/2 (and TLS) before it is closed");
ABSL_FLAG(absl::Duration, idle_timeout, absl::Hours(1),
          "how long a connection may be without a call before it is closed; clients that go on open another one");
ABSL_FLAG(uint64_t, max_history_records, 10'000, "history records kept of each worker");
ABSL_FLAG(uint64_t, max_history_bytes, uint64_t{256} << 20,
          "cap on all histories together: past it those of workers that left go, then the oldest of the longest");
ABSL_FLAG(std::string, state_dir, "", "folder to keep models in, so that they outlive the daemon; empty: none");
ABSL_FLAG(
    paramd::Durability, durability, paramd::Durability::kCheckpoint,
    "what of --state_dir is on disk when: `none`, a checkpoint when one is asked for and at the end; `checkpoint`, "
    "every so often; `journal`, also each commit before it is answered");
ABSL_FLAG(absl::Duration, checkpoint_every, absl::Seconds(60), "between two checkpoints of a model that changes");
ABSL_FLAG(uint64_t, checkpoint_every_versions, 0, "also write one after so many versions; 0: only by time");
ABSL_FLAG(uint64_t, checkpoints_kept, 3, "checkpoints of each model that are kept, the newest ones");
ABSL_FLAG(bool, exit_with_stdin, false,
          "stop, as at a SIGTERM, when standard input ends: a pipe from whoever starts the daemon ends with that "
          "process, however that ends. What reaches both is that process's to answer: a terminal's signals (SIGINT, "
          "SIGQUIT, SIGHUP) and the first SIGTERM do not stop the daemon");
ABSL_FLAG(std::vector<std::string>, plugin, {}, "shared objects with algorithms to load; may be repeated");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning, error or off");
ABSL_FLAG(bool, check_config, false, "check the flags and plugins, then exit");
ABSL_FLAG(bool, print_config, false, "print every flag with its value in --flagfile form, then exit");
ABSL_FLAG(bool, list_algorithms, false, "print the algorithms, then exit");
ABSL_FLAG(bool, version, false, "print the version, then exit");

namespace paramd {
namespace {

enum ExitCode { kClean = 0, kRuntime = 1, kUsage = 2 };

constexpr char kFlagsFile[] = "server/main.cc";

int Fail(const absl::Status& status, ExitCode code) {
  std::cerr << "paramd: " << status.message() << "\n";
  return code;
}

// Our own flags by name, those that only print something apart.
std::map<std::string, std::string> Config() {
  std::map<std::string, std::string> config;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    const std::string key(name);
    if (!absl::StrContains(flag->Filename(), kFlagsFile)) continue;
    if (key == "check_config" || key == "print_config" || key == "list_algorithms" || key == "version") continue;
    config[key] = flag->CurrentValue();
  }
  return config;
}

// A line for what happens to models, but for their commits.
class ModelLog : public EventSink {
 public:
  bool Wants(ModelEvent::Kind kind) const override { return kind != ModelEvent::Kind::kCommitted; }
  void Tell(const ModelEvent& event) override { spdlog::info("{}", FormatEvent(event)); }
};

ServerOptions Options() {
  ServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  options.tls_key = absl::GetFlag(FLAGS_tls_key);
  options.tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca);
  options.token_file = absl::GetFlag(FLAGS_token_file);
  options.insecure = absl::GetFlag(FLAGS_insecure);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.apply_threads = absl::GetFlag(FLAGS_apply_threads);
  options.lease = absl::GetFlag(FLAGS_lease);
  options.max_in_flight_bytes = absl::GetFlag(FLAGS_max_in_flight_bytes);
  options.stall_timeout = absl::GetFlag(FLAGS_stall_timeout);
  options.max_shared_bytes = absl::GetFlag(FLAGS_max_shared_bytes);
  options.max_model_bytes = absl::GetFlag(FLAGS_max_model_bytes);
  options.max_models = absl::GetFlag(FLAGS_max_models);
  options.max_workers = absl::GetFlag(FLAGS_max_workers);
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.max_connections_per_peer = absl::GetFlag(FLAGS_max_connections_per_peer);
  options.max_streams_per_connection = absl::GetFlag(FLAGS_max_streams_per_connection);
  options.handshake_timeout = absl::GetFlag(FLAGS_handshake_timeout);
  options.idle_timeout = absl::GetFlag(FLAGS_idle_timeout);
  options.max_history_records = absl::GetFlag(FLAGS_max_history_records);
  options.state.dir = absl::GetFlag(FLAGS_state_dir);
  options.state.durability = absl::GetFlag(FLAGS_durability);
  options.state.every = absl::GetFlag(FLAGS_checkpoint_every);
  options.state.every_versions = absl::GetFlag(FLAGS_checkpoint_every_versions);
  options.state.keep = absl::GetFlag(FLAGS_checkpoints_kept);
  options.state.say = [](bool error, const std::string& line) {
    error ? spdlog::error("{}", line) : spdlog::info("{}", line);
  };
  options.max_history_bytes = absl::GetFlag(FLAGS_max_history_bytes);
  return options;
}

absl::Status LoadPlugins() {
  for (const std::string& path : absl::GetFlag(FLAGS_plugin)) {
    if (auto status = LoadPlugin(path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Whether a line is due of what a peer can make happen at any rate: at most one a second.
bool IsDue() {
  static std::atomic<int64_t> next{0};
  const int64_t now = absl::ToUnixSeconds(Clock::Steady()->Now());
  int64_t due = next;
  return now >= due && next.compare_exchange_strong(due, now + 1);
}

absl::Status SetUpLog() {
  const std::string level = absl::GetFlag(FLAGS_log_level);
  const std::vector<std::string> levels = {"debug", "info", "warning", "error", "off"};
  if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--log_level=", level, ": use debug, info, warning, error or off"));
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("paramd", std::make_shared<LogSink>()));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
  spdlog::set_level(spdlog::level::from_str(level));
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& message) {
    spdlog::debug("event=protobuf message=\"{}\"", Printable(message));
  });
  gpr_set_log_function([](gpr_log_func_args* args) {
    const bool handshake = absl::StrContains(args->message, "Handshake failed");
    const spdlog::level::level_enum shown = handshake && IsDue() ? spdlog::level::warn : spdlog::level::debug;
    spdlog::log(shown, "event={} message=\"{}\"", handshake ? "tls_handshake_failed" : "grpc",
                Printable(args->message));
  });
  return absl::OkStatus();
}

void PrintAlgorithms() {
  for (const Algorithm* algorithm : ListAlgorithms()) {
    std::cout << algorithm->name;
    for (const std::string& alias : algorithm->aliases) std::cout << " (" << alias << ")";
    std::cout << ": " << algorithm->description << "\n";
    for (const HyperparameterSpec& h : HyperparameterSpecs(*algorithm)) {
      std::cout << "    " << h.name << "=" << h.default_value << "  " << h.description << "\n";
    }
  }
}

// Without memory, or a thread that it needs, the daemon says so and ends. Anything else is a bug.
[[noreturn]] void EndWithoutResources() {
  try {
    if (std::current_exception() == nullptr) std::abort();
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    std::cerr << "paramd: there is no more memory; see `ulimit -v`, and the container's limit" << std::endl;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) std::abort();
    std::cerr << "paramd: the system refuses another thread (" << error.what()
              << "); see `ulimit -u` and `ulimit -v`, and the container's limits" << std::endl;
  } catch (...) {
    std::abort();
  }
  _exit(kRuntime);
}

// Whether one of `signals`, which are blocked, comes within `timeout`.
bool AwaitSignal(const sigset_t& signals, absl::Duration timeout) {
  const absl::Time deadline = Clock::Steady()->Now() + timeout;
  while (true) {
    const timespec left = absl::ToTimespec(std::max(deadline - Clock::Steady()->Now(), absl::ZeroDuration()));
    if (sigtimedwait(&signals, nullptr, &left) > 0) return true;
    if (errno != EINTR) return false;
  }
}

// Sends this process `signal` once standard input has ended.
void WatchStdin(int signal) {
  std::thread([signal] {
    char ignored[256];
    ssize_t count = 0;
    do {
      count = RetryInterrupted([&] { return read(STDIN_FILENO, ignored, sizeof(ignored)); });
    } while (count > 0);
    kill(getpid(), signal);
  }).detach();
}

void Stopped(PortFile* port_file) {
  port_file->Remove();
  spdlog::info("event=stop");
}

int Run(PortFile* port_file) {
  const bool owned = absl::GetFlag(FLAGS_exit_with_stdin);
  if (owned) {
    for (const int by_terminal : {SIGHUP, SIGINT, SIGQUIT}) signal(by_terminal, SIG_IGN);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  if (!IsIgnored(SIGINT)) sigaddset(&signals, SIGINT);
  // The end of standard input is a signal of its own, as it must not count as a second SIGTERM; one with a high number,
  // as the lowest that is pending comes first.
  const int stdin_ended = SIGRTMIN;
  sigset_t first_signals = signals;
  if (owned) sigaddset(&first_signals, stdin_ended);
  // Before any thread starts, so that all inherit it.
  pthread_sigmask(SIG_BLOCK, &first_signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  ServerOptions options = Options();
  options.reflect = MakeReflection();
  ModelLog model_log;
  options.events = &model_log;
  options.security_log = [](const std::string& line) { spdlog::info("{}", line); };
  options.log = [](const std::string& line) { spdlog::warn("{}", line); };
  auto server = Server::Start(options);
  if (!server.ok()) return Fail(server.status(), kRuntime);
  const std::string& address = (*server)->address();
  std::string config;
  for (const auto& [name, value] : Config()) absl::StrAppend(&config, " ", name, "=", value.empty() ? "\"\"" : value);
  spdlog::info("event=start version={} pid={}{}", kVersion, getpid(), config);
  const int port = (*server)->port();
  if (auto status = port_file->Write(port != 0 ? std::to_string(port) : address); !status.ok()) {
    return Fail(status, kRuntime);
  }
  std::cout << "paramd listens on " << address << std::endl;

  if (owned) WatchStdin(stdin_ended);
  int signal = 0;
  sigwait(&first_signals, &signal);
  if (owned && signal == SIGTERM) {
    // systemd sends it to all processes of a unit, a launcher to a whole group.
    spdlog::info("event=left_to_owner signal={} message=\"standard input's end, or a second signal, stops it\"",
                 signal);
    sigwait(&first_signals, &signal);
  }
  spdlog::info("event=drain signal={} grace={}", signal, absl::FormatDuration(absl::GetFlag(FLAGS_grace)));
  const absl::Duration grace = absl::GetFlag(FLAGS_grace);
  MemoryReserve::Release();
  const auto stopped = [port_file, server = server->get()] {
    if (!server->saved()) spdlog::error("event=not_saved reason=\"not all models are in --state_dir as they were\"");
    Stopped(port_file);
    return server->saved() ? kClean : kRuntime;
  };
  std::thread([signals, grace, stopped] {
    if (AwaitSignal(signals, grace)) _exit(kRuntime);
    // Something that can't be interrupted: a plugin's algorithm, say.
    _exit(stopped());
  }).detach();
  // The rest is for writing what changed.
  const bool saves = !absl::GetFlag(FLAGS_state_dir).empty();
  (*server)->Shutdown(saves ? grace / 2 : grace - std::min(grace / 10, absl::Seconds(1)));
  return stopped();
}

int Main(int argc, char** argv) {
  std::set_terminate(EndWithoutResources);
  if (WantsHelp(argc, argv)) {
    std::cout << "paramd " << kVersion << ", a parameter-server daemon for data-parallel training.\n\nFlags:\n"
              << FlagsHelp(kFlagsFile) << "  --flagfile\n      a file with flags, one a line\n";
    return kClean;
  }
  if (auto status = ParseFlags(argc, argv, Repeated::kRefused); !status.ok()) return Fail(status, kUsage);
  if (absl::GetFlag(FLAGS_version)) {
    std::cout << "paramd " << kVersion << "\n";
    return kClean;
  }
  if (auto status = SetUpLog(); !status.ok()) return Fail(status, kUsage);
  if (auto status = LoadPlugins(); !status.ok()) return Fail(status, kUsage);
  if (absl::GetFlag(FLAGS_list_algorithms)) {
    PrintAlgorithms();
    return kClean;
  }
  if (absl::GetFlag(FLAGS_print_config)) {
    for (const auto& [name, value] : Config()) std::cout << "--" << name << "=" << value << "\n";
    return kClean;
  }
  const bool only_check = absl::GetFlag(FLAGS_check_config);
  // Outlives all threads. What an earlier daemon has left goes, whatever becomes of this one.
  static auto* const port_file = new PortFile(only_check ? "" : absl::GetFlag(FLAGS_port_file));
  if (auto status = CheckOptions(Options()); !status.ok()) return Fail(status, kUsage);
  if (only_check) {
    std::cout << "the configuration is good\n";
    return kClean;
  }
  TuneProcess();
  RaiseDescriptorLimit();
  MemoryReserve::Hold();
  return Run(port_file);
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return paramd::Main(argc, argv); }
