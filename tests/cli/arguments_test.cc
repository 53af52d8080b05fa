#include "client/cli/arguments.h"

#include <catch2/catch.hpp>

#include "client/cli/model_spec.h"

namespace paramd::cli {
namespace {

const CommandSpec& Command() {
  static const CommandSpec command = {
      .program = "tool",
      .summary = "tool: does things.",
      .flags = {{"server", "HOST:PORT", FlagSpec::kValue, "where"}, {"json", "", FlagSpec::kSwitch, "JSON"}},
      .verbs = {{.name = "create",
                 .operands = {"NAME"},
                 .summary = "make one",
                 .flags = {{"algorithm", "ALGORITHM", FlagSpec::kRequired, "how"},
                           {"tensor", "SPEC", FlagSpec::kRepeated, "what"},
                           {"watch", "SECONDS", FlagSpec::kOptionalValue, "again"}},
                 .example = "tool create x --algorithm=adag"},
                {.name = "list", .operands = {}, .summary = "list all", .flags = {}, .example = "tool list"}}};
  return command;
}

absl::StatusOr<Invocation> Parse(const std::vector<std::string>& words) { return ParseArguments(Command(), words); }

void CheckRefused(const std::vector<std::string>& words, const std::string& message) {
  const auto invocation = Parse(words);
  REQUIRE_FALSE(invocation.ok());
  CHECK(IsUsageError(invocation.status()));
  const std::string text(invocation.status().message());
  CHECK(text.substr(0, text.find("\nUsage: ")) == message);
}

TEST_CASE("Flags may stand before and after the verb, with = or as the next word") {
  const auto invocation =
      Parse({"--server", "a:1", "create", "--tensor=w:2", "m", "--algorithm", "adag", "--tensor", "b:3", "--json"});
  REQUIRE(invocation.ok());
  CHECK(invocation->verb->name == "create");
  CHECK_FALSE(invocation->help);
  const Arguments& arguments = invocation->arguments;
  CHECK(arguments.operands() == std::vector<std::string>{"m"});
  CHECK(arguments.Value("server") == "a:1");
  CHECK(arguments.Value("algorithm") == "adag");
  CHECK(arguments.Values("tensor") == std::vector<std::string>{"w:2", "b:3"});
  CHECK(arguments.Has("json"));
  CHECK_FALSE(arguments.Has("watch"));
  CHECK(arguments.Value("watch", "7") == "7");
}

TEST_CASE("An optional value is only taken after =") {
  const auto without = Parse({"create", "--algorithm=a", "--watch", "m"});
  REQUIRE(without.ok());
  CHECK(without->arguments.Has("watch"));
  CHECK(without->arguments.operands() == std::vector<std::string>{"m"});
  CHECK(*without->arguments.Number("watch", 2, 0) == 2);
  const auto with = Parse({"create", "--algorithm=a", "--watch=0.5", "m"});
  REQUIRE(with.ok());
  CHECK(*with->arguments.Number("watch", 2, 0) == 0.5);
}

TEST_CASE("A value may hold = and dashes, and -- ends the flags") {
  const auto invocation = Parse({"create", "--algorithm=a=b", "--tensor", "--x", "--", "--json"});
  REQUIRE(invocation.ok());
  CHECK(invocation->arguments.Value("algorithm") == "a=b");
  CHECK(invocation->arguments.Value("tensor") == "--x");
  CHECK(invocation->arguments.operands() == std::vector<std::string>{"--json"});
  CHECK_FALSE(invocation->arguments.Has("json"));
}

TEST_CASE("A wrong word is named, with the nearest right one") {
  CheckRefused({"creat"}, "unknown verb 'creat'; did you mean create?");
  CheckRefused({"frobnicate"}, "unknown verb 'frobnicate'");
  CheckRefused({"create", "--algoritm=a", "m"}, "unknown flag --algoritm of create; did you mean --algorithm?");
  CheckRefused({"list", "--servr", "x"}, "unknown flag --servr of list; did you mean --server?");
  CheckRefused({"list", "--algorithm=a"}, "unknown flag --algorithm of list");
  CheckRefused({"--tensor=a", "create"}, "unknown flag --tensor before the verb");
  CheckRefused({"list", "-json"}, "unknown flag -json of list; did you mean --json?");
}

TEST_CASE("Missing, empty, repeated and needless values are usage errors") {
  CheckRefused({"create", "m", "--algorithm"}, "--algorithm needs a value: --algorithm=ALGORITHM");
  CheckRefused({"create", "m", "--algorithm="}, "--algorithm has an empty value: --algorithm=ALGORITHM");
  CheckRefused({"create", "m"}, "create needs --algorithm=ALGORITHM: how");
  CheckRefused({"create", "--algorithm=a"}, "create needs a NAME");
  CheckRefused({"create", "m", "n", "--algorithm=a"}, "'n' is one word too many");
  CheckRefused({"list", "--server=a", "--server=b"}, "--server is given twice");
  CheckRefused({"list", "--json", "--json"}, "--json is given twice");
  CheckRefused({"list", "--json=yes"}, "--json takes no value");
}

TEST_CASE("A usage error ends in the usage of its verb, once there is one") {
  CHECK(std::string(Parse({"list", "--x"}).status().message()) == "unknown flag --x of list\nUsage: tool list");
  CHECK(std::string(Parse({"x"}).status().message()) == "unknown verb 'x'");
}

TEST_CASE("Numbers are checked") {
  const auto invocation = Parse({"create", "m", "--algorithm=x1", "--watch=-1", "--server=12"});
  REQUIRE(invocation.ok());
  const Arguments& arguments = invocation->arguments;
  CHECK(*arguments.Integer("server", 0, 1) == 12);
  CHECK(IsUsageError(arguments.Integer("server", 0, 13).status()));
  CHECK(IsUsageError(arguments.Integer("algorithm", 0, 0).status()));
  CHECK(std::string(arguments.Number("watch", 2, 0.1).status().message()) ==
        "--watch=-1: not a number of at least 0.1");
  CHECK(*arguments.Integer("absent", 5, 1) == 5);
}

TEST_CASE("Help needs nothing else to be right") {
  CHECK(Parse({"help"})->help);
  CHECK(Parse({"--help"})->verb == nullptr);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"help", "create"}, {"create", "--help"}, {"--help", "create"}, {"create", "m", "--help"}}) {
    const auto invocation = Parse(words);
    REQUIRE(invocation.ok());
    CHECK(invocation->help);
    REQUIRE(invocation->verb != nullptr);
    CHECK(invocation->verb->name == "create");
  }
  CHECK(Parse({})->verb == nullptr);
  CHECK_FALSE(Parse({})->help);
}

TEST_CASE("A verb's page has its usage, flags and example") {
  CHECK(VerbHelp(Command(), Command().verbs[0]) ==
        "make one\n"
        "\n"
        "Usage: tool create NAME --algorithm=ALGORITHM [--tensor=SPEC]... [--watch[=SECONDS]]\n"
        "\n"
        "Flags:\n"
        "  --algorithm=ALGORITHM  how\n"
        "  --tensor=SPEC          what\n"
        "  --watch[=SECONDS]      again\n"
        "\n"
        "Flags of every verb:\n"
        "  --server=HOST:PORT  where\n"
        "  --json              JSON\n"
        "  --help              print this and exit\n"
        "\n"
        "Example:\n"
        "  tool create x --algorithm=adag\n");
  CHECK_THAT(CommandHelp(Command()), Catch::Contains("  create  make one\n  list    list all\n"));
}

TEST_CASE("Only our own errors are usage errors") {
  CHECK(IsUsageError(UsageError("x")));
  CHECK_FALSE(IsUsageError(absl::InvalidArgumentError("x")));
  CHECK_FALSE(IsUsageError(absl::OkStatus()));
}

TEST_CASE("Tensors are typed as NAME:ROWSxCOLS") {
  const auto shape = [](const std::string& text) {
    const auto tensor = ParseTensor(text);
    REQUIRE(tensor.ok());
    return std::vector<int64_t>(tensor->shape().begin(), tensor->shape().end());
  };
  CHECK(shape("w:784x128") == std::vector<int64_t>{784, 128});
  CHECK(shape("b:128") == std::vector<int64_t>{128});
  CHECK(shape("s:").empty());
  CHECK(shape("k:3x3x16x32") == std::vector<int64_t>{3, 3, 16, 32});
  CHECK(ParseTensor("layer:0/w:2x3")->name() == "layer:0/w");
}

TEST_CASE("Bad tensors are usage errors that name the tensor") {
  for (const std::string text : {"", "w", ":2x3", "w:x", "w:2x", "w:x2", "w:0", "w:2x0", "w:-1", "w:+1", "w: 2",
                                 "w:2.5", "w:2X3", "w:2,3", "w:99999999999999999999", "w:4294967296x4294967296"}) {
    INFO(text);
    const auto tensor = ParseTensor(text);
    REQUIRE_FALSE(tensor.ok());
    CHECK(IsUsageError(tensor.status()));
    CHECK_THAT(std::string(tensor.status().message()), Catch::StartsWith("tensor '" + text + "': "));
  }
}

TEST_CASE("Hyperparameters are typed as KEY=VALUE") {
  const auto hyperparameter = ParseHyperparameter("learning_rate=2.5e-1");
  REQUIRE(hyperparameter.ok());
  CHECK(hyperparameter->name() == "learning_rate");
  CHECK(hyperparameter->value() == 0.25);
  for (const std::string text : {"", "rho", "=1", "rho=", "rho=x", "rho=1x", "rho=nan", "rho=inf", "rho=1=2"}) {
    INFO(text);
    CHECK(IsUsageError(ParseHyperparameter(text).status()));
  }
}

}  // namespace
}  // namespace paramd::cli
