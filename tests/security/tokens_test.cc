#include "security/tokens.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

NewToken Make(const std::string& name, const std::string& role, const std::string& models = "") {
  auto made = MakeToken(name, role, models);
  REQUIRE(made.ok());
  return *made;
}

TEST_CASE("a token has what its lines give, and no other has") {
  const NewToken alice = Make("alice", "admin");
  const NewToken trainer = Make("trainer", "worker", "mnist*");
  const std::string also =
      absl::StrCat("trainer reader ", std::string(trainer.line).substr(15, 71), " of one, and two\n");
  const auto tokens = Tokens::Parse(absl::StrCat("# who\n\n", alice.line, "  ", trainer.line, also));
  INFO(tokens.status());
  REQUIRE(tokens.ok());
  REQUIRE(tokens->Find(alice.token).size() == 1);
  CHECK(tokens->Find(alice.token)[0].role == Role::kAdmin);
  CHECK(tokens->Find(alice.token)[0].models == "*");
  REQUIRE(tokens->Find(trainer.token).size() == 2);
  CHECK(tokens->Find(trainer.token)[0].models == "mnist*");
  CHECK(tokens->Find(trainer.token)[1].role == Role::kReader);
  CHECK(tokens->Find(trainer.token)[1].models == "of one, and two");
  CHECK(tokens->Find("").empty());
  CHECK(tokens->Find(alice.token.substr(1)).empty());
  CHECK(tokens->Find(alice.token + "0").empty());
  CHECK_FALSE(absl::StrContains(alice.line, alice.token));
  CHECK(alice.token != trainer.token);
}

TEST_CASE("what is wrong with a file of tokens is told by its line") {
  const std::string good = Make("a", "reader").line;
  const auto told = [&](const std::string& line) {
    const auto tokens = Tokens::Parse(absl::StrCat(good, line));
    CHECK(absl::IsInvalidArgument(tokens.status()));
    return std::string(tokens.status().message());
  };
  CHECK_THAT(told("b\n"), Catch::StartsWith("line 2: ") && Catch::Contains("the role"));
  CHECK_THAT(told("b boss sha256:00"), Catch::Contains("the role"));
  CHECK_THAT(told("b/c reader sha256:00"), Catch::Contains("a token's name"));
  CHECK_THAT(told("b reader"), Catch::Contains("64 hexadecimal digits"));
  CHECK_THAT(told("b reader sha256:00"), Catch::Contains("64 hexadecimal digits"));
  CHECK_THAT(told("b reader sha256:" + std::string(64, 'g')), Catch::Contains("64 hexadecimal digits"));
  CHECK_THAT(told(absl::StrCat("b reader sha256:", std::string(64, '0'), " ", std::string(2000, 'x'))),
             Catch::Contains("1,024 bytes"));
  CHECK_FALSE(Tokens::Parse("# nobody\n").ok());
  CHECK_FALSE(MakeToken("two words", "reader", "").ok());
  CHECK_FALSE(MakeToken("a", "reader", "x\nb admin").ok());
}

TEST_CASE("a pattern covers the names that it fits, and the members of ensembles") {
  CHECK(Covers("*", ""));
  CHECK(Covers("*", "any/thing\xc3\xa9"));
  CHECK(Covers("mnist", "mnist"));
  CHECK_FALSE(Covers("mnist", "mnist2"));
  CHECK_FALSE(Covers("mnist", ""));
  CHECK(Covers("team/*", "team/a/b"));
  CHECK_FALSE(Covers("team/*", "teams"));
  CHECK(Covers("*-x-*", "a-x-x-b"));
  CHECK_FALSE(Covers("a*b", "abc"));
  CHECK(Covers("whole", "whole/0"));
  CHECK(Covers("whole", "whole/17"));
  CHECK_FALSE(Covers("whole", "whole/x"));
  CHECK_FALSE(Covers("whole", "whole/"));
  CHECK_FALSE(Covers("whole", "whole/1/2"));
  CHECK(Covers(std::string(20, '*') + "b", std::string(50'000, 'a') + "b"));
}

}  // namespace
}  // namespace paramd
