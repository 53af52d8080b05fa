// The daemon as its administrator meets it: a process with flags, exit codes and signals.
#include "tests/support/daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "proto/version.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/skip.h"

namespace paramd {
namespace {

constexpr char kParamd[] = "server/paramd";
constexpr char kPlugin[] = "examples/custom_algorithm/libcustom_algorithm.so";

struct Ended {
  int exit_code;
  std::string out;
  std::string err;
};

Ended Run(const std::vector<std::string>& flags) {
  Process process(kParamd, flags);
  const auto exit_code = process.Wait();
  return {exit_code.value_or(-1), process.Out(), process.Err()};
}

// One request and its reply, of a service whose generated code this test does not have.
std::string CallRaw(const std::string& server, const std::string& method, const std::string& request) {
  RawStream stream(OpenChannel(server), method);
  CHECK(stream.Write(request));
  const std::string reply = stream.Read().value_or("no reply");
  const grpc::Status status = stream.Finish();
  INFO(status.error_message());
  CHECK(status.ok());
  return reply;
}

TEST_CASE("a daemon that is started without standard streams puts no socket in their place") {
  const std::string port_file = TemporaryPath("port");
  const std::string command =
      absl::StrCat("exec server/paramd --listen=127.0.0.1:0 --port_file=", port_file, " <&- >&- 2>&-");
  Process daemon("/bin/sh", {"-c", command});
  REQUIRE(Await([&] { return !ReadFile(port_file).empty(); }));
  for (const int stream : {0, 1, 2}) {
    INFO(stream);
    CHECK(std::filesystem::read_symlink(absl::StrCat("/proc/", daemon.pid(), "/fd/", stream)) == "/dev/null");
  }
  daemon.Signal(SIGTERM);
  CHECK(daemon.Wait() == 0);
}

TEST_CASE("a log that nobody reads holds up nobody, and goes on when somebody does") {
  const std::string log = TemporaryPath("log");
  REQUIRE(mkfifo(log.c_str(), 0600) == 0);
  const int reader = open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  Daemon daemon({}, {"/bin/sh", "-c", absl::StrCat("exec \"$@\" 2>", log), "sh"});
  const auto admin = Connect(daemon.address());
  const auto make_models = [&](int count) {
    for (int i = 0; i < count; ++i) {
      REQUIRE(admin->CreateModel(Spec("a-model-with-a-long-name-of-its-own", "downpour", 1)).ok());
      REQUIRE(admin->DeleteModel("a-model-with-a-long-name-of-its-own").ok());
    }
  };
  // More than the pipe takes, and than the daemon keeps.
  make_models(2500);
  std::string read_so_far;
  const auto read_all = [&] {
    char bytes[4096];
    for (ssize_t count; (count = read(reader, bytes, sizeof(bytes))) > 0;) {
      read_so_far.append(bytes, static_cast<size_t>(count));
    }
  };
  CHECK(Await([&] {
    make_models(1);
    read_all();
    return absl::StrContains(read_so_far, "event=log_dropped lines=");
  }));
  CHECK_THAT(read_so_far, Catch::Contains("event=start") && Catch::Contains("event=created"));
  make_models(2500);
  daemon.process().Signal(SIGTERM);
  CHECK(daemon.process().Wait() == 0);
  close(reader);
}

TEST_CASE("the daemon says where it listens, and that is where it is") {
  Daemon daemon;
  CHECK(Await([&] { return daemon.process().Out() == "paramd listens on " + daemon.address() + "\n"; }));
  CHECK("127.0.0.1:" + ReadFile(daemon.port_file()) == daemon.address() + "\n");
  const auto status = Connect(daemon.address())->GetStatus();
  REQUIRE(status.ok());
  CHECK(status->version() == kVersion);
  CHECK(status->models_size() == 0);
  CHECK(status->max_in_flight_bytes() == uint64_t{64} << 20);
  CHECK(status->resident_bytes() > uint64_t{1} << 20);
  CHECK_FALSE(status->draining());
  // The effective configuration, once.
  CHECK_THAT(daemon.process().Err(), Catch::Contains("event=start") && Catch::Contains("listen=127.0.0.1:0") &&
                                         Catch::Contains("lease=30s") && Catch::Contains("threads=2"));
}

TEST_CASE("what the daemon prints and ends") {
  const Ended version = Run({"--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.out == absl::StrCat("paramd ", kVersion, "\n"));
  const Ended help = Run({"--help"});
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, Catch::Contains("--listen") && Catch::Contains("--flagfile"));
  const Ended list = Run({"--list_algorithms"});
  CHECK(list.exit_code == 0);
  for (const Algorithm* algorithm : ListAlgorithms()) CHECK_THAT(list.out, Catch::Contains(algorithm->name));
  CHECK_THAT(list.out, Catch::Contains("adag (agn)") && Catch::Contains("communication_window="));
  const Ended check = Run({"--check_config", "--listen=127.0.0.1:0"});
  CHECK(check.exit_code == 0);
  CHECK(check.out == "the configuration is good\n");
}

TEST_CASE("the printed configuration is a flag file for the same configuration") {
  const std::string path = TemporaryPath("flags");
  const Ended printed =
      Run({"--print_config", "--listen=127.0.0.1:0", "--lease=7s", "--threads=3", "--log_level=debug", "--noinsecure"});
  CHECK(printed.exit_code == 0);
  CHECK_THAT(printed.out, Catch::Contains("--lease=7s\n") && Catch::Contains("--threads=3\n"));
  std::ofstream(path) << printed.out;
  const Ended again = Run({"--flagfile=" + path, "--print_config"});
  CHECK(again.exit_code == 0);
  CHECK(again.out == printed.out);
  CHECK(Run({"--flagfile=" + path, "--check_config"}).exit_code == 0);
  // What the file leaves empty can be added to.
  const Ended added = Run({"--flagfile=" + path, std::string("--plugin=") + kPlugin, "--print_config"});
  CHECK(added.err == "");
  CHECK_THAT(added.out, Catch::Contains(absl::StrCat("--plugin=", kPlugin, "\n")));
  Daemon daemon({"--flagfile=" + path});
  CHECK(Connect(daemon.address())->GetStatus().ok());
}

TEST_CASE("mistakes in the flags are told, and end with exit code 2") {
  struct Mistake {
    std::vector<std::string> flags;
    std::vector<std::string> texts;
  };
  const Mistake mistakes[] = {
      {{"--lisen=1"}, {"unknown flag --lisen", "--help lists the flags"}},
      {{"serve"}, {"'serve' is no flag"}},
      {{"--listen=127.0.0.1:0", "--listen=127.0.0.1:1"}, {"--listen is given twice", "remove one"}},
      {{"--lease=30"}, {"--lease can't be '30'", "as in 30s"}},
      {{"--threads=many"}, {"--threads can't be 'many'"}},
      {{"--threads=0"}, {"threads is 0", "use 1 to 1024"}},
      {{"--apply_threads=-1"}, {"apply_threads is -1", "use 1 to 1024, or 0"}},
      {{"--lease=1ms"}, {"the lease is 1ms", "at least 10ms"}},
      {{"--log_level=loud"}, {"--log_level=loud", "use debug, info, warning, error or off"}},
      {{"--listen=nowhere"}, {"address 'nowhere': the port is missing", "use HOST:PORT"}},
      {{"--listen=127.my.host:0"}, {"refusing to listen on 127.my.host:0 without TLS"}},
      {{"--listen=127.0.0.1:70000"}, {"the port '70000' is above 65535"}},
      {{"--listen=unix:/tmp/" + std::string(120, 'x')}, {"longer than the system's 107 characters"}},
      {{"--listen=unix:/tmp/a,b"}, {"the path '/tmp/a,b' has a comma"}},
      {{"--listen=0.0.0.0:0"}, {"refusing to listen on 0.0.0.0:0 without TLS", "--insecure"}},
      {{"--listen=[::]:0"}, {"refusing to listen on [::]:0 without TLS"}},
      {{"--plugin=/nonexistent.so"}, {"can't load plugin /nonexistent.so", "Check the path"}},
      {{"--flagfile=/nonexistent.flags"}, {"can't read the flag file '/nonexistent.flags'"}},
      {{"--max_models=0"}, {"max_models", "must be positive"}},
  };
  for (const Mistake& mistake : mistakes) {
    for (const std::string mode : {"--check_config", "--nocheck_config"}) {
      std::vector<std::string> flags = mistake.flags;
      flags.push_back(mode);
      const Ended ended = Run(flags);
      INFO(flags[0] << ": " << ended.err);
      CHECK(ended.exit_code == 2);
      CHECK(ended.out == "");
      CHECK(absl::StartsWith(ended.err, "paramd: "));
      for (const std::string& text : mistake.texts) CHECK_THAT(ended.err, Catch::Contains(text));
    }
  }
}

TEST_CASE("a taken port is told, and ends with exit code 1") {
  Daemon first;
  const Ended second = Run({"--listen=" + first.address()});
  CHECK(second.exit_code == 1);
  CHECK(second.out == "");
  CHECK_THAT(second.err, Catch::Contains("can't listen on " + first.address() + ": Address already in use") &&
                             Catch::Contains("is another paramd running there?") &&
                             Catch::Contains("port 0 lets the system choose"));
  CHECK(Connect(first.address())->GetStatus().ok());
}

TEST_CASE("an address that is not ours, and a port file that can't be written, end with exit code 1") {
  const Ended foreign = Run({"--listen=192.0.2.1:0", "--insecure"});
  CHECK(foreign.exit_code == 1);
  CHECK_THAT(foreign.err, Catch::Contains("can't listen on 192.0.2.1:0"));
  const Ended unknown = Run({"--listen=no-such-host.invalid:0", "--insecure"});
  CHECK(unknown.exit_code == 1);
  CHECK_THAT(unknown.err, Catch::Contains("no-such-host.invalid"));
  const Ended unwritten = Run({"--listen=127.0.0.1:0", "--port_file=/nonexistent/port"});
  CHECK(unwritten.exit_code == 1);
  CHECK_THAT(unwritten.err, Catch::Contains("can't write the port file /nonexistent/port"));
  const Ended too_long = Run({"--listen=127.0.0.1:0", "--port_file=" + TemporaryPath(std::string(256, 'x'))});
  CHECK(too_long.exit_code == 1);
  CHECK_THAT(too_long.err, Catch::Contains("can't create it: File name too long"));
}

TEST_CASE("of two daemons with one port file each removes its own only") {
  const std::string path = TemporaryPath("shared_port");
  const auto start = [&] {
    auto process =
        std::make_unique<Process>(kParamd, std::vector<std::string>{"--listen=127.0.0.1:0", "--port_file=" + path});
    CHECK(Await([&] { return !process->Out().empty(); }));
    return process;
  };
  const auto first = start();
  const auto second = start();
  const std::string port = ReadFile(path);
  first->Signal(SIGTERM);
  CHECK(first->Wait() == 0);
  CHECK(ReadFile(path) == port);
  CHECK(Connect("127.0.0.1:" + port.substr(0, port.size() - 1))->GetStatus().ok());
  second->Signal(SIGTERM);
  CHECK(second->Wait() == 0);
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a port that nobody listens on does not stay in a port file") {
  const std::string path = TemporaryPath("left_over");
  Daemon other;
  for (const auto& [listen, exit_code] : {std::pair(other.address(), 1), {"127.0.0.1:99999", 2}}) {
    {
      Process killed(kParamd, {"--listen=127.0.0.1:0", "--port_file=" + path});
      REQUIRE(Await([&] { return !ReadFile(path).empty(); }));
      killed.Signal(SIGKILL);
      killed.Wait();
    }
    REQUIRE_FALSE(ReadFile(path).empty());
    CHECK(Run({"--listen=" + listen, "--port_file=" + path}).exit_code == exit_code);
    CHECK(access(path.c_str(), F_OK) != 0);
  }
  // That of a daemon that lives stays, and so does what none has written.
  CHECK(Run({"--listen=" + other.address(), "--port_file=" + other.port_file()}).exit_code == 1);
  CHECK("127.0.0.1:" + ReadFile(other.port_file()) == other.address() + "\n");
  std::ofstream(path) << "5000\nand more\n";
  CHECK(Run({"--listen=" + other.address(), "--port_file=" + path}).exit_code == 1);
  CHECK(ReadFile(path) == "5000\nand more\n");
  std::ofstream(path) << "70000\n";
  CHECK(Run({"--listen=" + other.address(), "--port_file=" + path}).exit_code == 1);
  CHECK(ReadFile(path) == "70000\n");
}

TEST_CASE("a daemon that can't start leaves a file with a number that no daemon wrote") {
  // In memory files have no attributes of their users.
  const std::string path = GENERATE(TemporaryPath("other_pid"), absl::StrCat("/dev/shm/other_pid.", getpid()));
  std::ofstream(path) << "4711\n";
  Daemon other;
  CHECK(Run({"--listen=" + other.address(), "--port_file=" + path}).exit_code == 1);
  CHECK(ReadFile(path) == "4711\n");
  std::remove(path.c_str());
}

TEST_CASE("a port file that is no regular file is written through, and stays") {
  const std::string pipe = TemporaryPath("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Process daemon(kParamd, {"--listen=127.0.0.1:0", "--port_file=" + pipe});
  const std::string port = ReadFile(pipe);
  CHECK(Await([&] { return "paramd listens on 127.0.0.1:" + port == daemon.Out(); }));
  daemon.Signal(SIGTERM);
  CHECK(daemon.Wait() == 0);
  struct stat there {};
  CHECK((stat(pipe.c_str(), &there) == 0 && S_ISFIFO(there.st_mode)));

  // Nobody reads, which holds nothing up.
  Process unread(kParamd, {"--listen=127.0.0.1:0", "--port_file=" + pipe});
  CHECK(Await([&] { return !unread.Out().empty(); }));
  unread.Signal(SIGTERM);
  CHECK(unread.Wait() == 0);

  // A device node of our own, as nobody wants to lose the system's.
  const std::string null = TemporaryPath("null");
  if (mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    return testing::Skip("device nodes are not allowed here");
  Process device(kParamd, {"--listen=127.0.0.1:0", "--port_file=" + null});
  CHECK(Await([&] { return !device.Out().empty(); }));
  device.Signal(SIGTERM);
  CHECK(device.Wait() == 0);
  CHECK((stat(null.c_str(), &there) == 0 && S_ISCHR(there.st_mode)));
}

TEST_CASE("a full disk under the port file is told, one under the log changes nothing") {
  const Ended full = Run({"--listen=127.0.0.1:0", "--port_file=/dev/full"});
  CHECK(full.exit_code == 1);
  CHECK_THAT(full.err, Catch::Contains("can't write the port file /dev/full: can't write: No space left on device"));
  Daemon daemon({}, {"/bin/sh", "-c", "exec \"$@\" 2>/dev/full", "sh"});
  CHECK(Connect(daemon.address())->CreateModel(Spec("m", "downpour", 1)).ok());
  daemon.process().Signal(SIGTERM);
  CHECK(daemon.process().Wait() == 0);
}

TEST_CASE("beyond loopback with --insecure") {
  Daemon daemon({"--listen=0.0.0.0:0", "--insecure"});
  CHECK(Connect(daemon.address())->GetStatus().ok());
}

TEST_CASE("a unix socket") {
  const std::string path = TemporaryPath("socket");
  {
    Daemon daemon({"--listen=unix:" + path});
    CHECK(daemon.address() == "unix:" + path);
    CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 1));
    CHECK(Join(daemon.address(), "m", "a")->Commit(std::vector<float>(10, 1), kCallTimeout).ok());
    const Ended second = Run({"--listen=unix:" + path});
    CHECK(second.exit_code == 1);
    CHECK_THAT(second.err, Catch::Contains("can't listen on unix:" + path + ": somebody listens there"));
    CHECK(Connect(daemon.address())->GetStatus().ok());
  }
  // The first one was killed and has left its socket.
  Daemon next({"--listen=unix:" + path});
  CHECK(Connect(next.address())->GetStatus().ok());
}

TEST_CASE("a unix socket's path that can't be is told with the system's reason") {
  const std::string file = TemporaryPath("file");
  std::ofstream(file) << "kept";
  const std::pair<std::string, std::string> paths[] = {
      {"/nonexistent/socket", "No such file or directory; is /nonexistent a folder"},
      {file, "there is something that is no socket"},
      {file + "/socket", "Not a directory"},
      {"/proc/socket", "No such file or directory; may you make files in its folder?"},
  };
  for (const auto& [path, text] : paths) {
    const Ended ended = Run({"--listen=unix:" + path});
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK_THAT(ended.err, Catch::Contains("can't listen on unix:" + path + ": " + text));
  }
  CHECK(ReadFile(file) == "kept");
}

TEST_CASE("a unix socket's path may be long, and hold what URIs escape") {
  const std::string folder = TemporaryPath("folder of 100% odd?names#");
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  std::string path = folder + "/s";
  path.append(107 - path.size(), 's');
  Daemon daemon({"--listen=unix:" + path});
  CHECK(Connect("unix:" + path)->GetStatus().ok());
}

TEST_CASE("a unix socket's path may begin with more slashes than one") {
  const std::string slashes = GENERATE("/", "//");
  const Daemon daemon({"--listen=unix:" + slashes + TemporaryPath("slashes")});
  CHECK(absl::StartsWith(daemon.address(), "unix:" + slashes));
  CHECK(Connect(daemon.address())->GetStatus().ok());
}

TEST_CASE("of several daemons that start at once on one unix socket one listens, and the others are told") {
  const std::string path = TemporaryPath("contended");
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Process>> started;
    for (int i = 0; i < 4; ++i) {
      started.push_back(std::make_unique<Process>(kParamd, std::vector<std::string>{"--listen=unix:" + path}));
    }
    Process* listening = nullptr;
    for (const auto& process : started) {
      CHECK(Await([&] { return !process->Out().empty() || !process->Running(); }));
      if (process->Running()) {
        CHECK(listening == nullptr);
        listening = process.get();
      } else {
        CHECK(process->Wait() == 1);
        CHECK_THAT(process->Err(), Catch::Contains("somebody listens there"));
      }
    }
    REQUIRE(listening != nullptr);
    CHECK(Connect("unix:" + path)->GetStatus().ok());
    // With and without a socket that is left over.
    listening->Signal(round % 2 == 0 ? SIGTERM : SIGKILL);
    listening->Wait();
  }
}

TEST_CASE("a lock on its socket's folder, which anybody may take, holds up no daemon at its start and its end") {
  const std::string folder = TemporaryPath("locked");
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const int locked = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(flock(locked, LOCK_EX | LOCK_NB) == 0);
  // The second one finds what the first has left.
  for (const int signal : {SIGKILL, SIGTERM}) {
    Daemon daemon({"--listen=unix:" + folder + "/socket"});
    daemon.process().Signal(signal);
    daemon.process().Wait();
  }
  close(locked);
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a daemon that stops removes its own socket only") {
  const std::string path = TemporaryPath("replaced");
  Daemon first({"--listen=unix:" + path});
  REQUIRE(std::remove(path.c_str()) == 0);
  Daemon second({"--listen=unix:" + path});
  first.process().Signal(SIGTERM);
  CHECK(first.process().Wait() == 0);
  CHECK(Connect("unix:" + path)->GetStatus().ok());
  second.process().Signal(SIGTERM);
  CHECK(second.process().Wait() == 0);
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a daemon in the background of a script goes on at a Ctrl-C, which is ignored there") {
  const auto before = signal(SIGINT, SIG_IGN);
  Daemon daemon;
  signal(SIGINT, before);
  daemon.process().Signal(SIGINT);
  CHECK(Connect(daemon.address())->GetStatus().ok());
  daemon.process().Signal(SIGTERM);
  CHECK(daemon.process().Wait() == 0);
  CHECK_THAT(daemon.process().Err(), Catch::Contains(absl::StrCat("event=drain signal=", SIGTERM)));
}

TEST_CASE("SIGTERM in the middle of exchanges drains and ends with exit code 0") {
  const int signal = GENERATE(SIGTERM, SIGINT);
  constexpr size_t kFloats = 1 << 20;
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
  CreateModel(daemon.address(), Spec("round", "downpour", 10, "sync"), std::vector<float>(10, 0));
  const auto absent = Join(daemon.address(), "round", "absent");
  const WorkerOptions options{.server = daemon.address(), .model = "m", .rpc_timeout = absl::Milliseconds(500)};
  std::vector<absl::Status> results(4);
  std::atomic<int> exchanges{0};
  {
    std::vector<Thread> threads;
    for (int w = 0; w < 4; ++w) {
      threads.emplace_back([&, w] {
        WorkerOptions mine = options;
        mine.worker = std::to_string(w);
        // The last one waits for the absent.
        if (w == 3) mine.model = "round";
        auto worker = Worker::Join(mine);
        results[w] = worker.status();
        if (!worker.ok()) return;
        std::vector<float> update((*worker)->model().parameters(), 1);
        std::vector<float> pulled(update.size());
        while (results[w].ok()) {
          results[w] = (*worker)->Exchange(update, absl::MakeSpan(pulled), kCallTimeout).status();
          ++exchanges;
        }
      });
    }
    const auto admin = Connect(daemon.address());
    CHECK(Await([&] {
      const auto info = admin->GetModel("round");
      return exchanges > 20 && info.ok() && FindWorker(*info, "3").waiting();
    }));
    daemon.process().Signal(signal);
    const absl::Time begin = absl::Now();
    CHECK(daemon.process().Wait() == 0);
    CHECK(absl::Now() - begin < absl::Seconds(10));
  }
  for (const absl::Status& result : results) {
    INFO(result);
    CHECK(result.code() == absl::StatusCode::kUnavailable);
  }
  CHECK(ReadFile(daemon.port_file()).empty());
  CHECK_THAT(daemon.process().Err(), Catch::Contains("event=drain") && Catch::Contains("event=stop"));
}

TEST_CASE("a worker that is busy with its model does not hold up a drain") {
  Daemon daemon({"--grace=1h", "--lease=1h"});
  CreateModel(daemon.address(), Spec("m", "downpour", 1), {0});
  const auto worker = Join(daemon.address(), "m", "w");
  float center = 0;
  REQUIRE(worker->Pull(absl::MakeSpan(&center, 1), kCallTimeout).ok());
  // Its session is open, and nobody reads from it. gRPC by itself gives its connection 10 s.
  daemon.process().Signal(SIGTERM);
  const absl::Time begin = absl::Now();
  CHECK(daemon.process().Wait() == 0);
  CHECK(absl::Now() - begin < absl::Seconds(5));
}

// A daemon that sends a large center to somebody who does not read it.
class Stuck {
 public:
  explicit Stuck(const std::string& grace) : daemon({"--grace=" + grace}), stub(OpenChannel(daemon.address())) {
    constexpr size_t kFloats = 8 << 20;
    CreateModel(daemon.address(), Spec("m", "downpour", kFloats), std::vector<float>(kFloats, 0));
    session.emplace(&stub);
    CHECK(session->Send(PullHeader("m")));
    const auto admin = Connect(daemon.address());
    CHECK(Await([&] { return admin->GetStatus()->in_flight_bytes() > 0; }));
  }

  void AwaitDrain() {
    CHECK(Await([&] { return absl::StrContains(daemon.process().Err(), "event=drain"); }));
  }

  Daemon daemon;
  v1::ParameterServer::Stub stub;
  std::optional<StubSession> session;
};

TEST_CASE("a drain ends with its grace period, whatever is stuck") {
  Stuck stuck("500ms");
  stuck.daemon.process().Signal(SIGTERM);
  const absl::Time begin = absl::Now();
  CHECK(stuck.daemon.process().Wait() == 0);
  CHECK(absl::Now() - begin < absl::Seconds(5));
}

TEST_CASE("a second SIGTERM ends a drain at once") {
  Stuck stuck("10m");
  stuck.daemon.process().Signal(SIGTERM);
  stuck.AwaitDrain();
  CHECK(stuck.daemon.process().Running());
  stuck.daemon.process().Signal(SIGTERM);
  CHECK(stuck.daemon.process().Wait() == 1);
}

TEST_CASE("with --exit_with_stdin the daemon ends with who started it") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const int own = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  close(ends[0]);
  Daemon daemon({"--exit_with_stdin"});
  dup2(own, STDIN_FILENO);
  close(own);
  REQUIRE(daemon.process().Running());
  REQUIRE(write(ends[1], "x", 1) == 1);
  SECTION("with whom its pipe ends") {}
  SECTION("to whom it leaves a terminal's signals and the first SIGTERM") {
    for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) daemon.process().Signal(signal);
    CHECK(Await([&] { return absl::StrContains(daemon.process().Err(), "event=left_to_owner"); }));
    const auto admin = Admin::Connect(daemon.address());
    REQUIRE(admin.ok());
    CHECK((*admin)->CreateModel(Spec("m", "downpour", 10)).ok());
  }
  SECTION("or by a second SIGTERM") {
    daemon.process().Signal(SIGTERM);
    CHECK(Await([&] { return absl::StrContains(daemon.process().Err(), "event=left_to_owner"); }));
    daemon.process().Signal(SIGTERM);
    REQUIRE(daemon.process().Wait() == 0);
  }
  close(ends[1]);
  REQUIRE(daemon.process().Wait() == 0);
}

TEST_CASE("a draining daemon takes nothing new") {
  Stuck stuck("10m");
  const auto admin = Admin::Connect(stuck.daemon.address(), absl::Seconds(2));
  REQUIRE(admin.ok());
  REQUIRE((*admin)->GetStatus().ok());
  stuck.daemon.process().Signal(SIGTERM);
  stuck.AwaitDrain();
  // It says so just before it begins.
  CHECK(Await([&] { return !(*admin)->CreateModel(Spec("late", "downpour", 10)).ok(); }));
}

TEST_CASE("the standard health service") {
  Daemon daemon;
  // HealthCheckResponse{status: SERVING}.
  const std::string check = "/grpc.health.v1.Health/Check";
  CHECK(CallRaw(daemon.address(), check, "") == "\x08\x01");
  CHECK(CallRaw(daemon.address(), check, "\x0a\x19paramd.v1.ParameterServer") == "\x08\x01");
  RawStream unknown(OpenChannel(daemon.address()), check);
  CHECK(unknown.Write("\x0a\x03xyz"));
  CHECK_FALSE(unknown.Read().has_value());
  CHECK(unknown.Finish().error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("who watches the daemon's health is told that it drains, and does not hold it up") {
  Stuck stuck("1m");
  RawStream watch(OpenChannel(stuck.daemon.address()), "/grpc.health.v1.Health/Watch");
  REQUIRE(watch.Write(""));
  CHECK(watch.Read() == "\x08\x01");
  stuck.daemon.process().Signal(SIGTERM);
  // HealthCheckResponse{status: NOT_SERVING}.
  CHECK(watch.Read() == "\x08\x02");
  CHECK_FALSE(watch.Read().has_value());
  CHECK(watch.Finish().ok());
}

#ifndef __SANITIZE_ADDRESS__  // which wants more addresses than there are
TEST_CASE("a daemon that gets no thread or memory says so and ends with 1") {
  Process daemon("/bin/sh", {"-c", std::string("ulimit -v 120000; exec ") + kParamd + " --listen=127.0.0.1:0"});
  CHECK(daemon.Wait() == 1);
  CHECK_THAT(daemon.Err(), Catch::Contains("see `ulimit"));
}
#endif

TEST_CASE("a watch that its client gives up leaves nothing behind") {
  Daemon daemon;
  const auto channel = OpenChannel(daemon.address());
  for (int i = 0; i < 200; ++i) {
    RawStream watch(channel, "/grpc.health.v1.Health/Watch");
    if (watch.Write("") && i % 2 == 0) CHECK(watch.Read() == "\x08\x01");
    watch.Cancel();
  }
  daemon.process().Signal(SIGTERM);
  CHECK(daemon.process().Wait() == 0);
}

TEST_CASE("the standard reflection service describes ours") {
  Daemon daemon;
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  // ServerReflectionRequest{list_services: ""}.
  const std::string list = CallRaw(daemon.address(), method, std::string("\x3a\x00", 2));
  CHECK_THAT(list, Catch::Contains("paramd.v1.ParameterServer") && Catch::Contains("grpc.health.v1.Health"));
  // ServerReflectionRequest{file_containing_symbol: ...}: the file's descriptor.
  const std::string symbol = "paramd.v1.ParameterServer";
  const std::string file =
      CallRaw(daemon.address(), method, absl::StrCat("\x22", std::string(1, static_cast<char>(symbol.size())), symbol));
  CHECK_THAT(file, Catch::Contains("ExchangeHeader") && Catch::Contains("max_in_flight_bytes"));
  // The successor of v1alpha has the same messages.
  CHECK(CallRaw(daemon.address(), "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                std::string("\x3a\x00", 2)) == list);
  CHECK_THAT(CallRaw(daemon.address(), method, "\x22\x03xyz"), Catch::Contains("there is no xyz"));
  CHECK_THAT(CallRaw(daemon.address(), method, "\xff\xff"), Catch::Contains("ask for"));
}

TEST_CASE("a method that the server does not have") {
  Daemon daemon;
  RawStream stream(OpenChannel(daemon.address()), "/paramd.v1.ParameterServer/Improve");
  CHECK_FALSE(stream.Read().has_value());
  const grpc::Status status = stream.Finish();
  CHECK(status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
  CHECK_THAT(status.error_message(), Catch::Contains("/paramd.v1.ParameterServer/Improve"));
}

TEST_CASE("a plugin's algorithm trains through an unmodified daemon") {
  Daemon daemon({std::string("--plugin=") + kPlugin});
  const absl::Status loaded = LoadPlugin(kPlugin);
  INFO(loaded);
  REQUIRE(loaded.ok());
  const auto spec = std::make_shared<const v1::ModelSpec>(
      Spec("m", "server_momentum", 100, "", {{"momentum", 0.5}, {"communication_window", 2}}));
  Quadratic quadratic(100, 9, 1);
  EmptyBatches batches(40);
  const auto summary =
      RunWorker({.server = daemon.address(), .model = "m", .worker = "a", .create = spec}, {}, &quadratic, &batches);
  INFO(summary.status());
  REQUIRE(summary.ok());
  CHECK(summary->exchanges == 20);
  const auto [center, version] = ReadCenter(daemon.address(), "m");
  CHECK(version == 20);
  for (const float value : center) CHECK(std::abs(value - 1) < 2);
  // Not on a peer's word.
  Daemon without;
  const auto refused = Connect(without.address())->CreateModel(*spec);
  CHECK(refused.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("no algorithm \"server_momentum\""));
}

TEST_CASE("a plugin for another version of the interface is refused") {
  const Ended ended = Run({"--plugin=tests/algorithms/plugins/libother_version.so", "--listen=127.0.0.1:0"});
  CHECK(ended.exit_code == 2);
  CHECK_THAT(ended.err, Catch::Contains("libother_version.so") &&
                            Catch::Contains(absl::StrCat("it was built for version ", kAlgorithmInterfaceVersion + 1,
                                                         " of the algorithm interface")) &&
                            Catch::Contains("rebuild it"));
}

}  // namespace
}  // namespace paramd
