#include "flags/command_line.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "tests/examples/temporary_folder.h"

ABSL_FLAG(int64_t, count, 4, "how many");
ABSL_FLAG(bool, quick, false, "whether to hurry");
ABSL_FLAG(std::string, title, "none", "what to call it");
ABSL_FLAG(std::vector<std::string>, item, {}, "things");
ABSL_FLAG(absl::Duration, pause, absl::Seconds(1), "how long to rest");

namespace paramd {
namespace {

absl::Status Parse(std::vector<const char*> arguments, Repeated repeated = Repeated::kReplaces) {
  arguments.insert(arguments.begin(), "program");
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data(), repeated);
}

TEST_CASE("flags are set in every spelling") {
  const absl::FlagSaver saver;
  REQUIRE(Parse({"--count=7", "--title", "a=b", "--quick"}).ok());
  CHECK(absl::GetFlag(FLAGS_count) == 7);
  CHECK(absl::GetFlag(FLAGS_title) == "a=b");
  CHECK(absl::GetFlag(FLAGS_quick));
  REQUIRE(Parse({"--noquick", "--title="}).ok());
  CHECK_FALSE(absl::GetFlag(FLAGS_quick));
  CHECK(absl::GetFlag(FLAGS_title).empty());
  REQUIRE(Parse({"--quick=true", "--count=1", "--count=2"}).ok());
  CHECK(absl::GetFlag(FLAGS_quick));
  CHECK(absl::GetFlag(FLAGS_count) == 2);
}

TEST_CASE("a repeated list adds up, with commas or without") {
  const absl::FlagSaver saver;
  REQUIRE(Parse({"--item=a=1", "--item=b=2,c=3", "--count=1", "--item", "d=4"}).ok());
  CHECK(absl::GetFlag(FLAGS_item) == std::vector<std::string>{"a=1", "b=2", "c=3", "d=4"});
  REQUIRE(Parse({"--item=e"}).ok());
  CHECK(absl::GetFlag(FLAGS_item) == std::vector<std::string>{"e"});
}

TEST_CASE("a second value is refused where it is not to replace the first, but for one of a flag file") {
  const absl::FlagSaver saver;
  const TemporaryFolder folder;
  const std::string argument = "--flagfile=" + folder.Path("flags");
  std::ofstream(folder.Path("flags")) << "--count=9\n--quick\n";
  REQUIRE(Parse({argument.c_str(), "--count=1", "--noquick", "--item=a", "--item=b"}, Repeated::kRefused).ok());
  CHECK(absl::GetFlag(FLAGS_count) == 1);
  CHECK(absl::GetFlag(FLAGS_item) == std::vector<std::string>{"a", "b"});
  const absl::Status twice = Parse({"--count=1", "--count=2"}, Repeated::kRefused);
  CHECK(twice.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(twice.message()), Catch::Contains("--count is given twice") && Catch::Contains("remove one"));
}

TEST_CASE("mistakes are refused with the flag's name") {
  const absl::FlagSaver saver;
  const auto message = [](std::vector<const char*> arguments) {
    const absl::Status status = Parse(std::move(arguments));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK_THAT(message({"--colour=red"}), Catch::Contains("unknown flag --colour"));
  CHECK_THAT(message({"--nocount"}), Catch::Contains("unknown flag --nocount"));
  CHECK_THAT(message({"--count=many"}), Catch::Contains("--count can't be 'many'"));
  CHECK_THAT(message({"--quick=perhaps"}), Catch::Contains("--quick can't be 'perhaps'"));
  CHECK_THAT(message({"--pause=30"}),
             Catch::Contains("--pause can't be '30': write a number with its unit, as in 30s"));
  CHECK_THAT(message({"--count"}), Catch::Contains("--count wants a value"));
  CHECK_THAT(message({"count=1"}), Catch::Contains("'count=1' is no flag"));
}

TEST_CASE("a flag file stands for its flags, and its mistakes are told with its name") {
  const absl::FlagSaver saver;
  const TemporaryFolder folder;
  const std::string path = folder.Path("flags");
  const std::string argument = "--flagfile=" + path;
  std::ofstream(path) << "# a comment\n\n  --count=9\n--item=a\n--item=b\n";
  REQUIRE(Parse({"--item=first", argument.c_str()}).ok());
  CHECK(absl::GetFlag(FLAGS_count) == 9);
  CHECK(absl::GetFlag(FLAGS_item) == std::vector<std::string>{"first", "a", "b"});

  std::ofstream(path) << "--colour=red\n";
  CHECK_THAT(std::string(Parse({argument.c_str()}).message()),
             Catch::Contains(path) && Catch::Contains("unknown flag --colour"));
  std::ofstream(path) << argument << "\n";
  CHECK_THAT(std::string(Parse({argument.c_str()}).message()), Catch::Contains("without end"));
  std::remove(path.c_str());
  CHECK_THAT(std::string(Parse({argument.c_str()}).message()), Catch::Contains("can't read the flag file"));
}

TEST_CASE("help lists the flags of the named files alone") {
  const char* const arguments[] = {"program", "--count=1", "--help"};
  CHECK(WantsHelp(3, arguments));
  CHECK_FALSE(WantsHelp(2, arguments));
  const std::string help = FlagsHelp("tests/flags/");
  CHECK_THAT(help, Catch::Contains("--count") && Catch::Contains("how many") && Catch::Contains("default: '4'"));
  CHECK(help.find("--count") < help.find("--item"));
  CHECK(FlagsHelp("nowhere/").empty());
}

}  // namespace
}  // namespace paramd
