#include "server/spec.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

constexpr uint64_t kMaxBytes = 1 << 20;

v1::Tensor MakeTensor(const std::string& name, const std::vector<int64_t>& shape) {
  v1::Tensor tensor;
  tensor.set_name(name);
  for (const int64_t dimension : shape) tensor.add_shape(dimension);
  return tensor;
}

v1::ModelSpec Good() {
  v1::ModelSpec spec;
  spec.set_name("mnist");
  spec.set_algorithm("adag");
  *spec.add_tensors() = MakeTensor("dense/kernel", {7, 4});
  *spec.add_tensors() = MakeTensor("dense/bias", {4});
  return spec;
}

void SetHyperparameter(v1::ModelSpec* spec, const std::string& name, double value) {
  v1::Hyperparameter* h = spec->add_hyperparameters();
  h->set_name(name);
  h->set_value(value);
}

// Fails the test unless the specification is refused.
std::string Error(const v1::ModelSpec& spec, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = CheckSpec(spec, kMaxBytes).status();
  INFO(status);
  CHECK(status.code() == code);
  return std::string(status.message());
}

TEST_CASE("A good specification is completed: every hyperparameter, sorted by name, and the consistency") {
  v1::ModelSpec spec = Good();
  SetHyperparameter(&spec, "learning_rate", 0.25);
  const auto checked = CheckSpec(spec, kMaxBytes);
  REQUIRE(checked.ok());
  CHECK(checked->floats == 7 * 4 + 4);
  CHECK(checked->algorithm->name == "adag");
  CHECK(checked->consistency.mode == Consistency::kAsync);
  CHECK(checked->spec.name() == "mnist");
  CHECK(checked->spec.algorithm() == "adag");
  CHECK(checked->spec.consistency() == "async");
  CHECK(checked->spec.tensors_size() == 2);
  REQUIRE(checked->spec.hyperparameters_size() == 2);
  CHECK(checked->spec.hyperparameters(0).name() == "communication_window");
  CHECK(checked->spec.hyperparameters(1).name() == "learning_rate");
  CHECK(checked->spec.hyperparameters(1).value() == 0.25);
  CHECK(checked->hyperparameters.at("learning_rate") == 0.25);
}

TEST_CASE("A completed specification is its own completion") {
  v1::ModelSpec spec = Good();
  spec.set_algorithm("eamsgd");
  const auto once = CheckSpec(spec, kMaxBytes);
  REQUIRE(once.ok());
  const auto twice = CheckSpec(once->spec, kMaxBytes);
  REQUIRE(twice.ok());
  CHECK(twice->spec.SerializeAsString() == once->spec.SerializeAsString());
}

TEST_CASE("An alias becomes the algorithm's own name, and an empty consistency the algorithm's default") {
  v1::ModelSpec spec = Good();
  spec.set_algorithm("agn");
  CHECK(CheckSpec(spec, kMaxBytes)->spec.algorithm() == "adag");
  spec.set_algorithm("easgd");
  const auto checked = CheckSpec(spec, kMaxBytes);
  CHECK(checked->spec.consistency() == "sync");
  CHECK(checked->consistency.mode == Consistency::kSync);
}

TEST_CASE("An unknown algorithm is NOT_FOUND and the error names those there are") {
  v1::ModelSpec spec = Good();
  spec.set_algorithm("adam");
  CHECK_THAT(Error(spec, absl::StatusCode::kNotFound), Contains("adam") && Contains("adag") && Contains("easgd"));
}

TEST_CASE("single is refused for a model, because it trains without a server") {
  v1::ModelSpec spec = Good();
  spec.set_algorithm("single");
  CHECK_THAT(Error(spec), Contains("'single'") && Contains("without a server") && Contains("choose another"));
}

TEST_CASE("A bad hyperparameter is refused with its name, its value and what is allowed") {
  v1::ModelSpec spec = Good();
  SECTION("out of range") {
    SetHyperparameter(&spec, "learning_rate", -1);
    CHECK_THAT(Error(spec), Contains("learning_rate") && Contains("-1"));
  }
  SECTION("not whole") {
    SetHyperparameter(&spec, "communication_window", 2.5);
    CHECK_THAT(Error(spec), Contains("communication_window") && Contains("2.5"));
  }
  SECTION("unknown") {
    SetHyperparameter(&spec, "learning_rat", 0.1);
    CHECK_THAT(Error(spec), Contains("learning_rat") && Contains("learning_rate"));
  }
  SECTION("given twice") {
    SetHyperparameter(&spec, "learning_rate", 0.1);
    SetHyperparameter(&spec, "learning_rate", 0.1);
    CHECK_THAT(Error(spec), Equals("hyperparameter 'learning_rate' is given twice"));
  }
  SECTION("two that don't go together") {
    spec.set_algorithm("aeasgd");
    SetHyperparameter(&spec, "rho", 10);
    SetHyperparameter(&spec, "learning_rate", 0.5);
    CHECK_THAT(Error(spec), Contains("rho") && Contains("learning_rate") && Contains("below 1"));
  }
}

TEST_CASE("Consistencies are async, sync, and bounded:S with a whole S") {
  CHECK(ParseConsistency("async")->mode == Consistency::kAsync);
  CHECK(ParseConsistency("sync")->mode == Consistency::kSync);
  CHECK(ParseConsistency("bounded:0")->mode == Consistency::kBounded);
  CHECK(ParseConsistency("bounded:0")->bound == 0);
  CHECK(ParseConsistency("bounded:12")->bound == 12);
  for (const char* bad : {"", "bounded", "bounded:", "bounded:-1", "bounded:1.5", "bounded:x", "Sync", "eventually",
                          "bounded:18446744073709551616"}) {
    INFO(bad);
    const absl::Status status = ParseConsistency(bad).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains(absl::StrCat("'", bad, "'")) &&
                                                  Contains("use async, sync, or bounded:S") && Contains("S >= 0"));
  }
  v1::ModelSpec spec = Good();
  spec.set_consistency("bounded:three");
  CHECK_THAT(Error(spec), Contains("'bounded:three'"));
}

TEST_CASE("A consistency is spelled in one way, so that equal ones compare equal") {
  v1::ModelSpec spec = Good();
  spec.set_consistency("bounded:007");
  CHECK(CheckSpec(spec, kMaxBytes)->spec.consistency() == "bounded:7");
}

TEST_CASE("A model has at least one tensor") {
  v1::ModelSpec spec = Good();
  spec.clear_tensors();
  CHECK_THAT(Error(spec), Contains("'mnist' has no tensors") && Contains("name at least one"));
}

TEST_CASE("Two tensors of one name are refused") {
  v1::ModelSpec spec = Good();
  *spec.add_tensors() = MakeTensor("dense/bias", {3});
  CHECK_THAT(Error(spec), Equals("model 'mnist' has two tensors named 'dense/bias'"));
}

TEST_CASE("A tensor of rank 0 is a scalar") {
  v1::ModelSpec spec = Good();
  *spec.add_tensors() = MakeTensor("temperature", {});
  CHECK(CheckSpec(spec, kMaxBytes)->floats == 7 * 4 + 4 + 1);
}

TEST_CASE("A shape with a dimension of zero or less, or whose product overflows, is refused") {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{0}, {3, 0}, {-1}, {4, -2}, {int64_t{1} << 40, int64_t{1} << 40}, {INT64_MIN}}) {
    v1::ModelSpec spec = Good();
    *spec.add_tensors() = MakeTensor("odd", shape);
    CHECK_THAT(Error(spec), Contains("tensor odd [") && Contains("must be positive"));
  }
}

TEST_CASE("A model larger than the server allows is refused, also when the sum of its tensors overflows") {
  v1::ModelSpec spec = Good();
  *spec.mutable_tensors(0) = MakeTensor("huge", {kMaxBytes / sizeof(float) - 4});
  CHECK(CheckSpec(spec, kMaxBytes).ok());
  *spec.mutable_tensors(0) = MakeTensor("huge", {kMaxBytes / sizeof(float) - 3});
  CHECK_THAT(Error(spec), Contains("'mnist' is larger than the 1048576 bytes") && Contains("--max_model_bytes"));

  spec.clear_tensors();
  for (int i = 0; i < 5; ++i) *spec.add_tensors() = MakeTensor(std::string(1, 'a' + i), {INT64_MAX});
  CHECK(CheckSpec(spec, UINT64_MAX).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Names of models are short, of characters that can be seen, and names of tensors short") {
  for (const std::string& bad : {std::string(), std::string(257, 'x'), std::string("a\nb"), std::string("\x1b[2J"),
                                 std::string("a\0b", 3), std::string("\u202eabc"), std::string("\xff")}) {
    v1::ModelSpec spec = Good();
    spec.set_name(bad);
    CHECK_THAT(Error(spec), Contains("model name '") && Contains("1 to 256 bytes of UTF-8"));
  }
  for (const std::string& good : {std::string(256, 'x'), std::string("ens/0"), std::string("A.b_c-9"),
                                  std::string("two words"), std::string("naïve 模型"), std::string(".."),
                                  std::string("../a"), std::string("%2e"), std::string("\"'`$a:b\\")}) {
    v1::ModelSpec spec = Good();
    spec.set_name(good);
    CHECK(CheckSpec(spec, kMaxBytes).ok());
  }
  v1::ModelSpec spec = Good();
  spec.mutable_tensors(0)->set_name("");
  CHECK_THAT(Error(spec), Contains("a tensor's name has 0 bytes"));
  spec.mutable_tensors(0)->set_name(std::string(257, 'x'));
  CHECK_THAT(Error(spec), Contains("257 bytes"));
  spec.mutable_tensors(0)->set_name("__metadata__");
  CHECK_THAT(Error(spec), Contains("can't be named __metadata__"));
}

TEST_CASE("A tensor has at most 16 dimensions, and a model at most 65536 tensors") {
  v1::ModelSpec spec = Good();
  *spec.add_tensors() = MakeTensor("deep", std::vector<int64_t>(17, 1));
  CHECK_THAT(Error(spec), Contains("'deep' has 17 dimensions") && Contains("at most 16"));
  spec = Good();
  for (int i = 0; i < 65535; ++i) *spec.add_tensors() = MakeTensor(std::to_string(i), {1});
  CHECK_THAT(Error(spec), Contains("65537 tensors") && Contains("at most 65536"));
}

TEST_CASE("The difference between two specifications is said in words") {
  const v1::ModelSpec there = CheckSpec(Good(), kMaxBytes)->spec;
  const auto difference = [&](const auto& change) {
    v1::ModelSpec here = Good();
    change(&here);
    return DescribeDifference(there, CheckSpec(here, kMaxBytes)->spec);
  };
  CHECK(difference([](v1::ModelSpec*) {}) == "");
  CHECK(difference([](v1::ModelSpec* s) { s->set_algorithm("downpour"); }) ==
        "the algorithm is adag there and downpour in the request");
  CHECK(difference([](v1::ModelSpec* s) { s->set_consistency("bounded:3"); }) ==
        "the consistency is async there and bounded:3 in the request");
  CHECK(difference([](v1::ModelSpec* s) { SetHyperparameter(s, "learning_rate", 0.125); }) ==
        "hyperparameter learning_rate is 0.5 there and 0.125 in the request");
  CHECK(difference([](v1::ModelSpec* s) { s->mutable_tensors()->RemoveLast(); }) ==
        "the number of tensors is 2 there and 1 in the request");
  CHECK(difference([](v1::ModelSpec* s) { s->mutable_tensors(1)->set_shape(0, 5); }) ==
        "tensor 1 is dense/bias [4] there and dense/bias [5] in the request");
  CHECK(difference([](v1::ModelSpec* s) { s->mutable_tensors(1)->set_name("dense/b"); }) ==
        "tensor 1 is dense/bias [4] there and dense/b [4] in the request");
}

TEST_CASE("A position in the flattened center is said as a place in a tensor") {
  v1::ModelSpec spec = Good();
  *spec.add_tensors() = MakeTensor("scale", {});
  *spec.add_tensors() = MakeTensor("cube", {2, 3, 4});
  CHECK(DescribePosition(spec, 0) == "tensor 'dense/kernel' at [0, 0]");
  CHECK(DescribePosition(spec, 4) == "tensor 'dense/kernel' at [1, 0]");
  CHECK(DescribePosition(spec, 27) == "tensor 'dense/kernel' at [6, 3]");
  CHECK(DescribePosition(spec, 28) == "tensor 'dense/bias' at [0]");
  CHECK(DescribePosition(spec, 32) == "tensor 'scale' at []");
  CHECK(DescribePosition(spec, 33 + 12 + 4 + 2) == "tensor 'cube' at [1, 1, 2]");
}

}  // namespace
}  // namespace paramd
