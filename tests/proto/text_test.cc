#include "proto/text.h"

#include <catch2/catch.hpp>
#include <string>

namespace paramd {
namespace {

TEST_CASE("text that is not UTF-8 is repaired, and other text stays as it is") {
  for (const std::string text : {"", "plain", "z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x98\x80"}) {
    CHECK(IsUtf8(text));
    CHECK(Repaired(text) == text);
    CHECK(Printable(text) == text);
  }
  const std::string zero("a\0b", 3);
  CHECK(Repaired(zero) == zero);
  for (const std::string text : {"\xff", "caf\xe9 au lait", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82"}) {
    CHECK_FALSE(IsUtf8(text));
    CHECK(IsUtf8(Repaired(text)));
    CHECK(Repaired(text).size() == text.size());
  }
  CHECK(Repaired("caf\xe9 au lait") == "caf? au lait");
}

TEST_CASE("long text keeps its beginning and its end, and whole characters") {
  CHECK(Shortened("abc", 3) == "abc");
  const std::string text = "what happened: " + std::string(5000, 'x') + "; next step";
  const std::string shortened = Shortened(text, 200);
  CHECK(shortened.size() <= 200);
  CHECK_THAT(shortened,
             Catch::StartsWith("what happened: x") && Catch::Contains("x ... x") && Catch::EndsWith("; next step"));
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  for (size_t max = 0; max < euros.size(); ++max) {
    INFO(max);
    CHECK(IsUtf8(Shortened(euros, max)));
    CHECK(Shortened(euros, max).size() <= std::max<size_t>(max, 5));
  }
}

TEST_CASE("printable text does nothing to a terminal") {
  CHECK(Printable("a\x1b[2Jb\nc\td\r\x7f\xc2\x9b!") == "a\\x1b[2Jb\\nc\\td\\r\\x7f\\x9b!");
  CHECK(Printable(std::string("\0", 1)) == "\\x00");
  CHECK(Printable("w\xe2\x80\xaelive\xe2\x80\x8b \xe2\x81\xa6 \xef\xbb\xbf!") ==
        "w\\u{202e}live\\u{200b} \\u{2066} \\u{feff}!");
  CHECK(Printable("\xe2\x82\xac \xe2\x80\x94") == "\xe2\x82\xac \xe2\x80\x94");
  CHECK(Printable(Printable("a\nb")) == Printable("a\nb"));
  CHECK(Quoted(std::string(20'000, '\n')).size() <= 100);
}

}  // namespace
}  // namespace paramd
