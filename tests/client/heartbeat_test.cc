// When a worker says that it lives, and what becomes of it when the server has had enough.
#include "client/heartbeat.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/fake_clock.h"

namespace paramd {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);

class Fixture {
 public:
  Heartbeat::Options Options() {
    return {.lease = kLease,
            .beat =
                [this](absl::Time deadline, Cancellation*) {
                  CHECK(deadline == clock.Now() + kLease / 3);
                  ++beats;
                  return answer;
                },
            .report =
                [this](const v1::ReportHistoryRequest& report, absl::Time, Cancellation*) {
                  reported += report.records_size();
                  return answer;
                },
            .on_refused = [this](const absl::Status& status) { refusals.push_back(status); },
            .on_event = [this](absl::string_view event) { events.emplace_back(event); },
            .clock = &clock};
  }

  testing::FakeClock clock;
  absl::Status answer;
  int beats = 0;
  int reported = 0;
  std::vector<absl::Status> refusals;
  std::vector<std::string> events;
  HistoryQueue history{{.report_records = 10, .clock = &clock}};
  Heartbeat heartbeat{Options(), &history};
};

TEST_CASE_METHOD(Fixture, "a heartbeat goes out every third of the lease") {
  CHECK(heartbeat.Turn() == clock.Now() + kLease / 3);
  CHECK(beats == 0);
  for (int i = 1; i <= 3; ++i) {
    clock.Advance(kLease / 3);
    CHECK(heartbeat.Turn() == clock.Now() + kLease / 3);
    CHECK(beats == i);
  }
}

TEST_CASE_METHOD(Fixture, "a report takes the heartbeat's place, and all that are full go out at once") {
  clock.Advance(kLease / 3 - absl::Milliseconds(1));
  REQUIRE(history.Add({}, std::vector<StepResult>(35)).ok());
  // The rest waits for its second.
  CHECK(heartbeat.Turn() == clock.Now() + absl::Seconds(1));
  CHECK(reported == 30);
  clock.Advance(absl::Seconds(1));
  CHECK(heartbeat.Turn() == clock.Now() + kLease / 3);
  CHECK(reported == 35);
  CHECK(beats == 0);
}

TEST_CASE_METHOD(Fixture, "a failure is told once and tried again after a second, however often the thread is woken") {
  answer = absl::UnavailableError("away");
  clock.Advance(kLease / 3);
  const absl::Time again = heartbeat.Turn();
  CHECK(again == clock.Now() + absl::Seconds(1));
  CHECK(heartbeat.Turn() == again);
  CHECK(beats == 1);
  clock.Advance(absl::Seconds(1));
  heartbeat.Turn();
  CHECK(beats == 2);
  CHECK(events == std::vector<std::string>{"heartbeat: away"});
  answer = absl::OkStatus();
  clock.Advance(absl::Seconds(1));
  CHECK(heartbeat.Turn() == clock.Now() + kLease / 3);
  CHECK(beats == 3);
}

TEST_CASE_METHOD(Fixture, "a refusal is the last thing that happens") {
  answer = GENERATE(absl::AbortedError("fenced"), absl::NotFoundError("no such model"));
  clock.Advance(kLease / 3);
  CHECK(heartbeat.Turn() == absl::InfiniteFuture());
  CHECK(refusals == std::vector<absl::Status>{answer});
  CHECK(events.empty());
}

TEST_CASE_METHOD(Fixture, "a refused report ends neither the lease nor the next one") {
  answer = absl::InvalidArgumentError("has other metrics");
  REQUIRE(history.Add({}, std::vector<StepResult>(20)).ok());
  CHECK(heartbeat.Turn() == clock.Now() + kLease / 3);
  CHECK(reported == 20);
  CHECK(history.state().dropped == 20);
}

TEST_CASE_METHOD(Fixture, "what is left is sent at the end, until the server is away") {
  REQUIRE(history.Add({}, std::vector<StepResult>(25)).ok());
  heartbeat.Stop();
  answer = absl::UnavailableError("away");
  CHECK(heartbeat.Flush(clock.Now() + absl::Seconds(1)) == answer);
  CHECK(reported == 10);
  answer = absl::OkStatus();
  CHECK(heartbeat.Flush(clock.Now() + absl::Seconds(1)).ok());
  CHECK(history.state().reported == 25);
}

TEST_CASE("a callback of the thread may stop it and let go of it") {
  struct Owner {
    HistoryQueue history{HistoryQueue::Options()};
    std::optional<Heartbeat> heartbeat;
  };
  Mutex mutex;
  CondVar changed;
  bool over = false;
  auto owner = std::make_shared<Owner>();
  const std::weak_ptr<Owner> alive = owner;
  owner->heartbeat.emplace(
      Heartbeat::Options{.lease = absl::Milliseconds(3),
                         .beat = [](absl::Time, Cancellation*) { return absl::AbortedError("fenced"); },
                         .on_refused =
                             [&](const absl::Status&) {
                               MutexLock lock(&mutex);
                               owner->heartbeat->Stop();
                               owner.reset();
                               over = true;
                               changed.SignalAll();
                             }},
      &owner->history);
  {
    MutexLock lock(&mutex);
    owner->heartbeat->Start(owner);
    while (!over) changed.Wait(&mutex);
  }
  CHECK(Await([&] { return alive.expired(); }));
}

}  // namespace
}  // namespace paramd
