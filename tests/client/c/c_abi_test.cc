// The C ABI as programs in C see it, each run against a daemon of its own; and the library itself.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/daemon.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

constexpr char kLibrary[] = "client/c/libparamd.so";

void RequireSuccess(const std::string& program, const std::vector<std::string>& arguments) {
  Process process(program, arguments);
  const auto exit_code = process.Wait();
  INFO(process.Out() << process.Err());
  REQUIRE(exit_code == 0);
}

void RunScenario(const std::string& name) {
  const Daemon daemon;
  RequireSuccess("tests/client/c/scenarios", {name, daemon.address()});
}

std::string Run(const std::string& program, const std::vector<std::string>& arguments) {
  Process process(program, arguments);
  REQUIRE(process.Wait() == 0);
  return process.Out();
}

TEST_CASE("a C program joins, initializes, pulls, commits, exchanges and leaves") { RunScenario("exchange"); }

TEST_CASE("errors come as codes with messages of the calling thread, and leave results alone") {
  RunScenario("errors");
}

TEST_CASE("a null pointer is an error that names it") { RunScenario("nulls"); }

TEST_CASE("a join that waits is cancelled from another thread") { RunScenario("cancel_join"); }

TEST_CASE("a pull that waits is cancelled from another thread") { RunScenario("cancel_pull"); }

TEST_CASE("a model written in C trains, and its history can be read") { RunScenario("train"); }

TEST_CASE("what is wrong with callbacks and structures is told") { RunScenario("train_errors"); }

TEST_CASE("the ready-made model trains and predicts") { RunScenario("train_mlp"); }

TEST_CASE("a worker tells what its model is") { RunScenario("describe"); }

TEST_CASE("a loop of one's own exchanges by windows, with its parameters wherever they are") { RunScenario("windows"); }

TEST_CASE("a window is abandoned after a step that failed") { RunScenario("abandoned_window"); }

TEST_CASE("minibatches carry inputs of several types") { RunScenario("train_inputs"); }

TEST_CASE("a batch that can't be one is refused") { RunScenario("train_bad_batches"); }

TEST_CASE("connecting connects, and a wrong length is an invalid argument for everyone") {
  RunScenario("admin_errors");
}

TEST_CASE("every algorithm trained from C ends where it must, with and without overlap, whatever way floats travel") {
  const Daemon daemon;
  RequireSuccess("tests/client/c/product", {daemon.address()});
}

TEST_CASE("a worker says what became of its commit") { RunScenario("commit_states"); }

TEST_CASE("a commit that a daemon with an older center does not take is told from one that is applied") {
  const std::string socket = TemporaryPath("socket"), state = TemporaryPath("state");
  const std::vector<std::string> flags = {"--listen=unix:" + socket, "--state_dir=" + state, "--checkpoint_every=1h"};
  auto daemon = std::make_unique<Daemon>(flags);
  Process process("tests/client/c/scenarios", {"came_back", daemon->address()});
  CHECK(Await([&] { return !process.Out().empty() || !process.Running(); }));
  daemon->process().Signal(SIGKILL);
  CHECK(daemon->process().Wait() == 128 + SIGKILL);
  daemon = std::make_unique<Daemon>(flags);
  const auto exit_code = process.Wait();
  INFO(process.Err());
  CHECK(exit_code == 0);
  daemon.reset();
  std::filesystem::remove_all(state);
}

TEST_CASE("a timeout of zero is one attempt") { RunScenario("zero_timeouts"); }

TEST_CASE("a join that waits for the daemon says so") { RunScenario("waiting_events"); }

TEST_CASE("what was joined before a fork is refused in the child, and so is a join") { RunScenario("forked"); }

TEST_CASE("the control plane tells why a model can't be trained any further") { RunScenario("problems"); }

TEST_CASE("models are described, by a daemon and by a file") { RunScenario("models_and_files"); }

TEST_CASE("a worker's buffers can be kept longer than the worker") { RunScenario("kept_buffers"); }

TEST_CASE("a callback may end its thread") { RunScenario("ending_threads"); }

TEST_CASE("a C program makes what a job's daemon and workers need, and joins with it over TLS") {
  const std::string folder = TemporaryPath("secrets");
  std::filesystem::create_directory(folder);
  RequireSuccess("tests/client/c/scenarios", {"make_secrets", folder});
  const Daemon daemon({"--tls_cert=" + folder + "/tls_cert", "--tls_key=" + folder + "/tls_key",
                       "--token_file=" + folder + "/token_file"});
  setenv("SECRETS", folder.c_str(), 1);
  RequireSuccess("tests/client/c/scenarios", {"secure", daemon.address()});
  std::filesystem::remove_all(folder);
}

TEST_CASE("two files of the library live in one process, and outlive their unloading") {
  const Daemon daemon;
  const std::string other = TemporaryPath("other.so");
  std::filesystem::copy_file(kLibrary, other);
  RequireSuccess("tests/client/c/two_copies", {daemon.address(), std::filesystem::absolute(kLibrary).string(), other});
  std::filesystem::remove(other);
}

TEST_CASE("the library shows what the header declares, and nothing else") {
  std::set<std::string> declared;
  const std::string header = ReadFile("client/c/paramd.h");
  const std::regex declaration("PARAMD_API[^;]*?(paramd_[a-z_]+)\\(");
  for (std::sregex_iterator i(header.begin(), header.end(), declaration), end; i != end; ++i) declared.insert((*i)[1]);
  CHECK(declared.size() > 50);
  // For gRPC's own libraries, which are bundled with it under other names: proto/grpc_environment.cc.
  declared.insert("_ZN9grpc_core6GetEnvB5cxx11EPKc");

  std::set<std::string> shown;
  std::istringstream symbols(Run("/usr/bin/nm", {"--dynamic", "--defined-only", kLibrary}));
  for (std::string address, kind, name; symbols >> address >> kind >> name;) shown.insert(name);
  CHECK(shown == declared);
}

TEST_CASE("the library needs no full protobuf, stays loaded, and has the name that programs look for") {
  const std::string dynamic = Run("/usr/bin/readelf", {"--dynamic", "--wide", kLibrary});
  CHECK_THAT(dynamic, Catch::Contains("SONAME") && Catch::Contains("[libparamd.so.0]"));
  CHECK_THAT(dynamic, Catch::Contains("NODELETE"));
  CHECK_THAT(dynamic, Catch::Contains("libprotobuf-lite.so"));
  CHECK_THAT(dynamic, !Catch::Contains("libprotobuf.so"));
  CHECK_THAT(dynamic, !Catch::Contains("libabsl_flags"));
}

}  // namespace
}  // namespace paramd
