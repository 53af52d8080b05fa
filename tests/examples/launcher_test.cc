// The real launcher with the real daemon and workers, on a data set of a few rows.
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/mnist/child_process.h"
#include "tests/examples/images.h"
#include "tests/examples/running.h"
#include "tests/examples/temporary_folder.h"

namespace paramd {
namespace {

constexpr absl::Duration kLong = absl::Minutes(2);

class Launched {
 public:
  explicit Launched(const std::vector<std::string>& flags) {
    WriteImages(folder_, "train", 403);
    WriteImages(folder_, "t10k", 50);
    // A later flag replaces an earlier one.
    std::vector<std::string> command = {"examples/mnist/mnist",
                                        "--paramd=server/paramd",
                                        "--worker=examples/mnist/mnist_worker",
                                        "--layers=4,8,2",
                                        "--workers=2",
                                        "--epochs=4",
                                        "--batch_size=8",
                                        "--data=" + folder_.path(),
                                        "--json=" + folder_.Path("table.json")};
    command.insert(command.end(), flags.begin(), flags.end());
    auto process = ChildProcess::Start(command, folder_.Path("output"));
    INFO(process.status());
    REQUIRE(process.ok());
    process_ = *std::move(process);
  }

  ChildProcess& process() { return *process_; }
  std::string Output() const { return folder_.Read("output"); }

  int Finish() {
    const auto exit_code = process_->Wait(kLong);
    INFO(Output());
    REQUIRE(exit_code.has_value());
    return *exit_code;
  }

  nlohmann::json Runs() const { return nlohmann::json::parse(folder_.Read("table.json")).at("runs"); }

  std::vector<pid_t> Children() const {
    const std::string pid = std::to_string(process_->pid());
    std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
    return std::vector<pid_t>(std::istream_iterator<pid_t>(file), {});
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<ChildProcess> process_;
};

TEST_CASE("the launcher trains with a daemon and workers, compares with single, and reports both") {
  Launched launched({"--algorithm=agn", "--window=3", "--set=learning_rate=1"});
  REQUIRE(launched.Finish() == 0);
  INFO(launched.Output());
  const auto runs = launched.Runs();
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["algorithm"] == "adag");
  CHECK(runs[0]["workers"] == 2);
  CHECK(runs[0]["window"] == 3);
  CHECK(runs[0]["epochs"] == 4);
  // 202 and 201 rows are 26 minibatches each, so 104 in all epochs: 34 whole windows and the rest.
  CHECK(runs[0]["updates"] == 70);
  CHECK(runs[0]["wall_s"] > 0);
  CHECK(runs[0]["samples_per_s"] > 0);
  CHECK(runs[0]["test_accuracy"] > 0.9);
  CHECK(runs[1]["algorithm"] == "single");
  CHECK(runs[1]["workers"] == 1);
  CHECK(runs[1]["updates"] == 0);
  CHECK(runs[1]["test_accuracy"] > 0.9);
  CHECK_THAT(launched.Output(), Catch::Contains("test accuracy") && Catch::Contains("adag, async"));
  CHECK(launched.Output().find('\x1b') == std::string::npos);
}

TEST_CASE("the workers' floats travel as the launcher says, and the table's JSON says how they did") {
  const auto [wire, transport] =
      GENERATE(table<std::string, std::string>({{"f32", "grpc"}, {"f16", "grpc"}, {"bf16", "grpc"}, {"f32", "shm"}}));
  Launched launched({"--nosingle", "--learning_rate=1", "--wire=" + wire, "--transport=" + transport});
  REQUIRE(launched.Finish() == 0);
  const auto runs = launched.Runs();
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["wire"] == wire);
  CHECK(runs[0]["transport"] == transport);
  CHECK(runs[0]["test_accuracy"] > 0.9);
}

TEST_CASE("the members of an ensemble are evaluated together") {
  Launched launched({"--algorithm=ensemble", "--nosingle"});
  REQUIRE(launched.Finish() == 0);
  const auto runs = launched.Runs();
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["algorithm"] == "ensemble");
  CHECK(runs[0]["updates"] > 0);
  CHECK(runs[0]["test_accuracy"] > 0.9);
}

TEST_CASE("single needs no daemon") {
  Launched launched({"--algorithm=single", "--paramd=/nowhere"});
  REQUIRE(launched.Finish() == 0);
  REQUIRE(launched.Runs().size() == 1);
  CHECK(launched.Runs()[0]["test_accuracy"] > 0.9);
}

TEST_CASE("a signal stops the launcher, its daemon and its workers") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  Launched launched({"--epochs=1000000"});
  std::vector<pid_t> children;
  const absl::Time deadline = absl::Now() + kLong;
  while (children.size() < 3 && absl::Now() < deadline) {
    children = launched.Children();
    absl::SleepFor(absl::Milliseconds(5));
  }
  INFO(launched.Output());
  REQUIRE(children.size() == 3);
  launched.process().Signal(signal);
  CHECK(launched.Finish() == 1);
  for (const pid_t child : children) CHECK_FALSE(Running(child));
  CHECK_THAT(launched.Output(), Catch::Contains("stopped"));
}

TEST_CASE("a worker or a daemon that fails is told with its last words") {
  SECTION("worker") {
    Launched launched({"--worker=/bin/false"});
    CHECK(launched.Finish() == 1);
    CHECK_THAT(launched.Output(), Catch::Contains("ended with exit code 1"));
  }
  SECTION("daemon") {
    Launched launched({"--paramd=/bin/ls"});
    CHECK(launched.Finish() == 1);
    CHECK_THAT(launched.Output(), Catch::Contains("the daemon ended with exit code 2") && Catch::Contains("--listen"));
  }
  SECTION("no such daemon") {
    Launched launched({"--paramd=/nowhere/paramd"});
    CHECK(launched.Finish() == 1);
    CHECK_THAT(launched.Output(), Catch::Contains("can't run /nowhere/paramd"));
  }
  SECTION("layers that don't fit the data") {
    Launched launched({"--layers=784,10"});
    CHECK(launched.Finish() == 1);
    CHECK_THAT(launched.Output(), Catch::Contains("4 pixels must go in and 2 classes come out"));
  }
}

TEST_CASE("bad flags end the launcher with exit code 2 before it starts anything") {
  const auto [flag, text] = GENERATE(table<std::string, std::string>({
      {"--colour=red", "unknown flag --colour"},
      {"--algorithm=magic", "magic"},
      {"--set=window=3", "window"},
      {"--set=learning_rate", "is not KEY=NUMBER"},
      {"--workers=0", "--workers=0 is not positive"},
      {"--layers=4", "at least two layers"},
      {"--optimizer=lbfgs", "unknown optimizer"},
      {"--plugin=/nowhere.so", "/nowhere.so"},
      {"--wire=f64", "use f32, f16 or bf16"},
      {"--transport=tcp", "use auto, grpc or shm"},
      {"--server=127.0.0.1:5000abc", "5000abc"},
  }));
  Launched launched({flag});
  CHECK(launched.Finish() == 2);
  CHECK_THAT(launched.Output(), Catch::Contains(text));
}

}  // namespace
}  // namespace paramd
