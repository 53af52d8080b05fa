// The daemon is killed in the middle of examples/mnist. On the real images, and a network as large as theirs:
//   bazel test //tests/chaos:mnist_test --test_env=PARAMD_MNIST=$PWD/data/mnist --test_output=all
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/admin.h"
#include "tests/examples/images.h"
#include "tests/examples/temporary_folder.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

constexpr absl::Duration kTraining = absl::Minutes(5);

// Accuracy after a training whose daemon is killed so often.
double Train(const std::string& durability, int kills) {
  const TemporaryFolder folder;
  std::vector<std::string> flags = {"--worker=examples/mnist/mnist_worker", "--workers=2", "--nosingle",
                                    "--transport=grpc", "--json=" + folder.Path("table.json")};
  int64_t versions = 0;  // that it has at the end, about
  if (const char* const images = std::getenv("PARAMD_MNIST"); images != nullptr) {
    flags.insert(flags.end(), {absl::StrCat("--data=", images), "--epochs=6"});
    versions = 6 * 60'000 / 32 / 5;
  } else {
    WriteImages(folder, "train", 403);
    WriteImages(folder, "t10k", 50);
    flags.insert(flags.end(),
                 {"--data=" + folder.path(), "--layers=4,8,2", "--batch_size=8", "--window=3", "--epochs=150"});
    versions = 150 * 403 / 8 / 3;
  }
  const std::vector<std::string> daemon_flags = {"--state_dir=" + folder.Path("state"), "--durability=" + durability,
                                                 "--checkpoint_every=100ms"};
  auto daemon = std::make_unique<Daemon>(daemon_flags);
  TcpProxy proxy(daemon->address());
  flags.push_back("--server=" + proxy.address());
  Process launcher("examples/mnist/mnist", flags);
  const auto admin = Admin::Connect(proxy.address());
  REQUIRE(admin.ok());
  for (int kill = 1; kill <= kills; ++kill) {
    CHECK(Await([&] {
      const auto model = (*admin)->GetModel("mnist");
      return (model.ok() && model->version() >= versions * kill / (kills + 2)) || !launcher.Running();
    }));
    REQUIRE(launcher.Running());
    daemon->process().Signal(SIGKILL);
    daemon->process().Wait();
    daemon = std::make_unique<Daemon>(daemon_flags);
    proxy.SetServer(daemon->address());
  }
  const auto exit_code = launcher.Wait(kTraining);
  INFO(launcher.Out() << launcher.Err());
  REQUIRE(exit_code == 0);
  const auto run = nlohmann::json::parse(folder.Read("table.json")).at("runs").at(0);
  std::cout << durability << ", " << kills << " kills: accuracy " << run["test_accuracy"] << ", " << run["updates"]
            << " updates" << std::endl;
  return run["test_accuracy"];
}

TEST_CASE("a daemon that is killed in the middle of a training costs no worker and no accuracy") {
  // One of the few images that the test makes is 2 %.
  const double margin = std::getenv("PARAMD_MNIST") != nullptr ? 0.005 : 0.1;
  const double undisturbed = Train("checkpoint", 0);
  for (const char* const durability : {"checkpoint", "journal"}) {
    CHECK(Train(durability, 3) > undisturbed - margin);
  }
}

}  // namespace
}  // namespace paramd
