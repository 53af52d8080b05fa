#include "examples/mnist/report.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/mnist/display.h"
#include "tests/examples/temporary_folder.h"

namespace paramd {
namespace {

const std::vector<Run> kRuns = {{.algorithm = "adag",
                                 .workers = 4,
                                 .window = 5,
                                 .epochs = 10,
                                 .updates = 3752,
                                 .mean_staleness = 2.987,
                                 .wall_s = 13.27,
                                 .samples_per_s = 45213.4,
                                 .test_accuracy = 0.98125,
                                 .transport = "grpc",
                                 .wire = "bf16"},
                                {.algorithm = "single",
                                 .workers = 1,
                                 .epochs = 10,
                                 .wall_s = 109.5,
                                 .samples_per_s = 1234567.5,
                                 .test_accuracy = 1}};

TEST_CASE("the final table lines up") {
  CHECK(FormatTable(kRuns) ==
        "algorithm  workers  window  updates  mean staleness  wall time  samples/s  test accuracy\n"
        "adag             4       5    3,752            2.99     13.3 s     45,213        98.12 %\n"
        "single           1       -        0            0.00    109.5 s  1,234,568       100.00 %\n");
}

TEST_CASE("the table's JSON has one object a row, with the documented names") {
  const auto json = nlohmann::json::parse(ToJson(kRuns));
  REQUIRE(json.size() == 1);
  REQUIRE(json.at("runs").size() == 2);
  const auto& run = json["runs"][0];
  CHECK(run.size() == 11);
  CHECK(run.at("algorithm") == "adag");
  CHECK(run.at("workers") == 4);
  CHECK(run.at("window") == 5);
  CHECK(run.at("epochs") == 10);
  CHECK(run.at("updates") == 3752);
  CHECK(run.at("mean_staleness") == 2.987);
  CHECK(run.at("wall_s") == 13.27);
  CHECK(run.at("samples_per_s") == 45213.4);
  CHECK(run.at("test_accuracy") == 0.98125);
  CHECK(run.at("transport") == "grpc");
  CHECK(run.at("wire") == "bf16");
  CHECK(json["runs"][1].at("algorithm") == "single");
  CHECK(nlohmann::json::parse(ToJson(std::vector<Run>())) == nlohmann::json::parse(R"({"runs": []})"));
}

TEST_CASE("counts have their thousands apart") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(1234567) == "1,234,567");
  CHECK(FormatCount(-123456) == "-123,456");
}

TEST_CASE("a progress line shows where a worker is") {
  CHECK(FormatProgress("worker-0",
                       {.epoch = 2.5, .epochs = 10, .samples_per_s = 11234.4, .loss = 0.08125, .accuracy = 0.975}) ==
        "worker-0  [#####...............]  epoch 2.5/10  loss 0.0813  accuracy 97.50 %  11,234 samples/s");
  CHECK_THAT(FormatProgress("w", {.epoch = 11, .epochs = 10}), Catch::Contains("[####################]"));
  CHECK_THAT(FormatProgress("w", {}), Catch::Contains("[....................]"));
}

TEST_CASE("a worker's summary survives its file's format") {
  WorkerSummary summary{.start_s = 12.5,
                        .wall_s = 3.25,
                        .exchanging_s = 0.5,
                        .steps = 100,
                        .samples = 3200,
                        .exchanges = 20,
                        .epochs = 2,
                        .mean_staleness = 1.5,
                        .last_loss = 0.125,
                        .reached_target_loss = true,
                        .transport = "shm",
                        .wire = "f16"};
  auto parsed = ParseWorkerSummary(ToJson(summary));
  REQUIRE(parsed.ok());
  CHECK(parsed->start_s == 12.5);
  CHECK(parsed->wall_s == 3.25);
  CHECK(parsed->exchanging_s == 0.5);
  CHECK(parsed->steps == 100);
  CHECK(parsed->samples == 3200);
  CHECK(parsed->exchanges == 20);
  CHECK(parsed->epochs == 2);
  CHECK(parsed->mean_staleness == 1.5);
  CHECK(parsed->last_loss == 0.125);
  CHECK(parsed->reached_target_loss);
  CHECK(parsed->transport == "shm");
  CHECK(parsed->wire == "f16");
  CHECK_FALSE(parsed->test_accuracy.has_value());
  summary.test_accuracy = 0.75;
  parsed = ParseWorkerSummary(ToJson(summary));
  REQUIRE(parsed.ok());
  CHECK(parsed->test_accuracy == 0.75);

  const auto progress = ParseWorkerProgress(
      ToJson(WorkerProgress{.epoch = 1.5, .epochs = 3, .samples_per_s = 10, .loss = 0.25, .accuracy = 0.5}));
  REQUIRE(progress.ok());
  CHECK(progress->epoch == 1.5);
  CHECK(progress->epochs == 3);
  CHECK(progress->samples_per_s == 10);
  CHECK(progress->loss == 0.25);
  CHECK(progress->accuracy == 0.5);
}

TEST_CASE("text that is no report is refused") {
  for (const char* text : {"", "{", "[]", "{}", R"({"epoch": "one"})"}) {
    INFO(text);
    CHECK(ParseWorkerSummary(text).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(ParseWorkerProgress(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a file is replaced, and a failure names it") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("report");
  REQUIRE(WriteFile(path, "first, longer").ok());
  REQUIRE(WriteFile(path, "second").ok());
  std::filesystem::create_symlink(path, folder.Path("link"));
  REQUIRE(WriteFile(folder.Path("link"), "second").ok());
  CHECK(std::filesystem::is_symlink(folder.Path("link")));
  const auto content = ReadFile(path);
  REQUIRE(content.ok());
  CHECK(*content == "second");
  using Entries = std::filesystem::directory_iterator;
  CHECK(std::distance(Entries(folder.path()), Entries()) == 2);
  CHECK(ReadFile(folder.Path("absent")).status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(WriteFile(folder.Path("absent/report"), "third").message()), Catch::Contains("absent/report"));
}

}  // namespace
}  // namespace paramd
