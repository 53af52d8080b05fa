#include "server/model_event.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "proto/text.h"
#include "server/models.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Kind = ModelEvent::Kind;

class Listener : public EventSink {
 public:
  bool Wants(ModelEvent::Kind kind) const override { return kind != ModelEvent::Kind::kCommitted; }
  void Tell(const ModelEvent& event) override { lines.push_back(FormatEvent(event)); }

  std::vector<std::string> lines;
};

TEST_CASE("An event is a line of what it says") {
  CHECK(FormatEvent({.kind = Kind::kCreated, .model = "m"}) == "event=created model=m version=0");
  CHECK(FormatEvent({.kind = Kind::kFenced,
                     .model = "m",
                     .worker = "w0",
                     .incarnation = 2,
                     .version = 7,
                     .reason = "incarnation 3 has joined"}) ==
        "event=fenced model=m worker=w0 incarnation=2 version=7 reason=\"incarnation 3 has joined\"");
}

TEST_CASE("What peers wrote can't break a line, pass for a key, or fill the log") {
  const std::string line = FormatEvent(
      {.kind = Kind::kLeft, .model = "a b", .worker = "x\nevent=deleted", .incarnation = 1, .reason = "say \"no\""});
  CHECK(line ==
        "event=left model=\"a b\" worker=\"x\\nevent=deleted\" incarnation=1 version=0 reason=\"say \\\"no\\\"\"");
  const std::string cut = FormatEvent({.kind = Kind::kLeft, .model = "m", .reason = std::string(5000, 'x')});
  CHECK(cut.size() < 400);
  CHECK_THAT(cut, Catch::Matchers::Contains("x ... x"));
  std::string euros;
  for (int i = 0; i < 1000; ++i) euros += "\xe2\x82\xac";
  for (const std::string& reason : {euros, "x" + euros, "xx" + euros, std::string("caf\xe9\xc2\x9b[2J")}) {
    const std::string line_of = FormatEvent({.kind = Kind::kLeft, .model = "m", .reason = reason});
    CHECK(IsUtf8(line_of));
    CHECK(line_of == Printable(line_of));
  }
}

TEST_CASE("What happens to a model is told, one event each") {
  FakeClock clock;
  Listener listener;
  ModelsOptions options;
  options.model.clock = &clock;
  options.model.lease = absl::Seconds(30);
  options.model.events = &listener;
  Models models(options);
  REQUIRE(models.Create(MakeSpec("downpour", 1)).ok());
  REQUIRE(models.Create(MakeSpec("downpour", 1)).ok());
  const auto model = *models.Find("m");
  Initialize(model.get(), {0});
  Initialize(model.get(), {0});
  ModelWorker a(model.get(), "a");
  REQUIRE(a.Commit({1}).status.ok());
  REQUIRE_FALSE(a.Commit({1, 2}).status.ok());
  ModelWorker again(model.get(), "a");
  clock.Advance(absl::Seconds(31));
  model->Tick();
  REQUIRE(again.Heartbeat().ok());
  REQUIRE(again.Leave("out of data").ok());
  REQUIRE(models.Delete("m").ok());

  std::vector<std::string> expected = {
      "event=created model=m version=0",
      "event=initialized model=m version=0",
      "event=joined model=m worker=a incarnation=1 version=0",
      "",  // rejected, with the message
      "event=fenced model=m worker=a incarnation=1 version=1 reason=\"incarnation 2 has joined\"",
      "event=joined model=m worker=a incarnation=2 version=1",
      "event=expired model=m worker=a incarnation=2 version=1 reason=\"no sign of life for 30s\"",
      "event=returned model=m worker=a incarnation=2 version=1",
      "event=left model=m worker=a incarnation=2 version=1 reason=\"out of data\"",
      "event=deleted model=m version=1",
  };
  REQUIRE(listener.lines.size() == expected.size());
  CHECK_THAT(listener.lines[3], Catch::Matchers::StartsWith("event=rejected model=m worker=a incarnation=1 version=1 "
                                                            "reason=\"a commit of worker 'a' has 2 floats") ||
                                    Catch::Matchers::StartsWith("event=rejected model=m worker=a incarnation=1 "
                                                                "version=1 reason=\"a commit of worker \\'a\\' has 2"));
  expected[3] = listener.lines[3];
  CHECK(listener.lines == expected);
}

}  // namespace
}  // namespace paramd::testing
