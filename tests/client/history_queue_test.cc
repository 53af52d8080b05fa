// A worker's history between the training loop and the server.
#include "client/history_queue.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/client/waiting_clock.h"

namespace paramd {
namespace {

const absl::Status kAway = absl::UnavailableError("away");

std::vector<StepResult> Steps(int64_t first, int64_t last, size_t metrics = 0) {
  std::vector<StepResult> steps;
  for (int64_t step = first; step <= last; ++step) {
    steps.push_back({.step = step, .loss = 1.0 / static_cast<double>(step), .metrics = std::vector<double>(metrics)});
  }
  return steps;
}

class Fixture {
 public:
  // Sends one report as the heartbeats' thread does; what it held.
  v1::ReportHistoryRequest Send(const absl::Status& status, bool again = false) {
    const v1::ReportHistoryRequest* const next = queue.Next();
    REQUIRE(next != nullptr);
    v1::ReportHistoryRequest report = *next;
    queue.Sent(status, again);
    return report;
  }

  testing::WaitingClock clock;
  std::vector<std::string> events;
  HistoryQueue queue{{.max_records = 10,
                      .report_records = 4,
                      .on_event = [this](absl::string_view event) { events.emplace_back(event); },
                      .clock = &clock}};
};

TEST_CASE_METHOD(Fixture, "a report is due when it is full, or a second after its first record") {
  CHECK(queue.due() == absl::InfiniteFuture());
  CHECK(queue.Next() == nullptr);
  int woken = 0;
  queue.set_on_due([&] { ++woken; });
  const absl::Time now = clock.Now();
  REQUIRE(queue.Add({}, Steps(1, 2)).ok());
  CHECK(queue.due() == now + absl::Seconds(1));
  CHECK(woken == 1);
  clock.Advance(absl::Milliseconds(500));
  REQUIRE(queue.Add({}, Steps(3, 3)).ok());
  CHECK(queue.due() == now + absl::Seconds(1));
  CHECK(woken == 1);
  REQUIRE(queue.Add({}, Steps(4, 5)).ok());
  CHECK(queue.due() <= clock.Now());
  CHECK(woken == 2);
  CHECK(Send(absl::OkStatus()).records_size() == 4);
  CHECK(queue.due() == clock.Now() + absl::Seconds(1));
  CHECK(queue.state().reported == 4);
  CHECK(queue.state().queued == 1);
}

TEST_CASE_METHOD(Fixture, "a report that did not get through is sent again as it was, others follow in order") {
  REQUIRE(queue.Add({"acc"}, Steps(1, 6, 1)).ok());
  const v1::ReportHistoryRequest first = Send(kAway, /*again=*/true);
  CHECK(queue.due() <= clock.Now());
  CHECK(Send(absl::OkStatus()).SerializeAsString() == first.SerializeAsString());
  CHECK(first.batch() == 1);
  CHECK(first.metric_names(0) == "acc");
  const v1::ReportHistoryRequest second = Send(absl::OkStatus());
  CHECK(second.batch() == 2);
  CHECK(second.records(0).step() == 5);
  CHECK(second.records(0).metrics_size() == 1);
  CHECK(queue.Next() == nullptr);
}

TEST_CASE_METHOD(Fixture,
                 "what comes while the server is away is held up for a second, then the oldest are counted out") {
  REQUIRE(queue.Add({}, Steps(1, 10)).ok());
  Send(kAway, /*again=*/true);
  absl::Time begin = clock.Now();
  REQUIRE(queue.Add({}, Steps(11, 11)).ok());
  CHECK(clock.Now() - begin == absl::Seconds(1));
  // Not once for every step.
  begin = clock.Now();
  for (int64_t step = 12; step <= 20; ++step) REQUIRE(queue.Add({}, Steps(step, step)).ok());
  CHECK(clock.Now() == begin);
  HistoryState state = queue.state();
  CHECK(state.queued <= 10);
  CHECK(state.dropped + state.queued == 20);
  // The report under way stays whole; the next one tells the gap behind it.
  const v1::ReportHistoryRequest first = Send(absl::OkStatus());
  CHECK(first.records(0).step() == 1);
  CHECK(first.dropped() == 0);
  const v1::ReportHistoryRequest second = Send(absl::OkStatus());
  CHECK(second.dropped() == state.dropped);
  CHECK(second.records(0).step() == 5 + state.dropped);
  while (queue.Next() != nullptr) CHECK(Send(absl::OkStatus()).dropped() == 0);
  state = queue.state();
  CHECK(state.queued == 0);
  CHECK(state.reported + state.dropped == 20);
  // Once it is back, it is waited for again.
  REQUIRE(queue.Add({}, Steps(21, 30)).ok());
  begin = clock.Now();
  REQUIRE(queue.Add({}, Steps(31, 31)).ok());
  CHECK(clock.Now() - begin == absl::Seconds(1));
}

TEST_CASE_METHOD(Fixture, "a refused report is told, once for each reason, and counted with the next one") {
  const absl::Status renamed = absl::InvalidArgumentError("has other metrics");
  REQUIRE(queue.Add({}, Steps(1, 8)).ok());
  Send(renamed);
  Send(renamed);
  CHECK(events == std::vector<std::string>{"history: has other metrics"});
  CHECK(queue.state().refused == renamed);
  CHECK(queue.state().dropped == 8);
  CHECK(queue.Add({}, Steps(9, 9)) == renamed);
  CHECK(Send(absl::OkStatus()).dropped() == 8);
  CHECK(queue.state().refused.ok());
  CHECK(queue.Add({}, Steps(10, 10)).ok());
}

TEST_CASE_METHOD(Fixture, "a step with other metrics than are named is refused at once, and nothing is kept") {
  auto steps = Steps(1, 2, 1);
  steps.push_back({.step = 3, .metrics = {1, 2}});
  const absl::Status refused = queue.Add({"acc"}, steps);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("step 3 has 2 metrics where 1 are named"));
  CHECK(events.size() == 1);
  CHECK(queue.Next() == nullptr);
  CHECK(queue.state().dropped == 3);
}

TEST_CASE_METHOD(Fixture, "other metric names begin another report") {
  REQUIRE(queue.Add({"a"}, Steps(1, 1, 1)).ok());
  REQUIRE(queue.Add({"b"}, Steps(2, 2, 1)).ok());
  CHECK(Send(absl::OkStatus()).metric_names(0) == "a");
  CHECK(Send(absl::OkStatus()).metric_names(0) == "b");
}

TEST_CASE_METHOD(Fixture, "nothing is added once it is closed, and nobody is held up") {
  REQUIRE(queue.Add({}, Steps(1, 10)).ok());
  queue.Close(absl::FailedPreconditionError("left"));
  const absl::Time begin = clock.Now();
  CHECK(queue.Add({}, Steps(11, 11)).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(clock.Now() == begin);
  CHECK(queue.state().queued == 10);
}

}  // namespace
}  // namespace paramd
