// A server that could not start because of one model used to end the process while it let go of the others.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/fixtures.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

TEST_CASE("a server that has restored some models and can't go on says why") {
  const std::string state = TemporaryPath("state");
  ServerOptions options{.listen = "127.0.0.1:0"};
  options.state = {.dir = state, .durability = Durability::kJournal};
  {
    const auto server = StartServer(options);
    for (const std::string name : {"a", "b"}) CreateModel(server->address(), Spec(name, "downpour", 2), {1, 2});
    const auto worker = Join(server->address(), "a", "w");
    REQUIRE(worker->Commit(std::vector<float>{1, 1}, kCallTimeout).ok());
  }
  std::string expected;
  SECTION("a model has no checkpoint that is good") {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state + "/models")) {
      if (entry.is_regular_file() && entry.path().parent_path().filename().string()[0] == 'b') {
        std::filesystem::resize_file(entry.path(), 20);
      }
    }
    expected = "checkpoints can be read";
  }
  SECTION("it may not host as many") {
    options.max_models = 1;
    expected = "max_models";
  }
  SECTION("it can't keep tokens") {
    options.token_file = state + "/none";
    expected = "none";
  }
  SECTION("the journal is damaged") {
    std::fstream log(state + "/log/0000000001.log", std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(70).write("xxxx", 4);
    log.close();
    expected = "0000000001.log";
  }
  const auto started = Server::Start(options);
  INFO(started.status());
  CHECK(started.status().message().find(expected) != std::string::npos);
  CHECK_FALSE(started.ok());
}

}  // namespace
}  // namespace paramd
