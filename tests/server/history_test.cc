#include "server/history.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paramd {
namespace {

using Catch::Matchers::Contains;

v1::ReportHistoryRequest Report(const std::string& worker, uint64_t batch, const std::vector<double>& losses,
                                uint64_t first_step = 1) {
  v1::ReportHistoryRequest request;
  request.mutable_participant()->set_worker(worker);
  request.mutable_participant()->set_incarnation(1);
  request.set_batch(batch);
  request.add_metric_names("accuracy");
  for (size_t i = 0; i < losses.size(); ++i) {
    v1::HistoryRecord* record = request.add_records();
    record->set_step(first_step + i);
    record->set_epoch(0.5 * static_cast<double>(first_step + i));
    record->set_time_s(2 * static_cast<double>(first_step + i));
    record->set_loss(losses[i]);
    record->add_metrics(losses[i] / 10);
  }
  return request;
}

v1::GetHistoryReply Read(const History& history, const std::string& worker = "", bool averaged = false) {
  v1::GetHistoryRequest request;
  request.set_worker(worker);
  request.set_averaged(averaged);
  v1::GetHistoryReply reply;
  history.Read(request, &reply);
  return reply;
}

std::vector<double> Losses(const v1::WorkerHistory& history) {
  std::vector<double> losses;
  for (const v1::HistoryRecord& record : history.records()) losses.push_back(record.loss());
  return losses;
}

TEST_CASE("Records are kept per worker, in order, and read for all workers or for one") {
  History history(100);
  REQUIRE(history.Report(Report("b", 1, {3})).ok());
  REQUIRE(history.Report(Report("a", 1, {1, 2})).ok());
  REQUIRE(history.Report(Report("b", 2, {4}, 2)).ok());
  const v1::GetHistoryReply all = Read(history);
  REQUIRE(all.workers_size() == 2);
  CHECK(all.workers(0).worker() == "a");
  CHECK(Losses(all.workers(0)) == std::vector<double>{1, 2});
  CHECK(all.workers(1).worker() == "b");
  CHECK(Losses(all.workers(1)) == std::vector<double>{3, 4});
  CHECK(all.workers(1).metric_names(0) == "accuracy");
  CHECK(all.workers(1).records(1).metrics(0) == 0.4);
  CHECK(all.workers(1).dropped() == 0);

  const v1::GetHistoryReply one = Read(history, "b");
  REQUIRE(one.workers_size() == 1);
  CHECK(Losses(one.workers(0)) == std::vector<double>{3, 4});
  CHECK(Read(history, "c").workers_size() == 0);
}

TEST_CASE("Only the last records of each worker are kept, and the others counted") {
  History history(3);
  REQUIRE(history.Report(Report("a", 1, {1, 2})).ok());
  REQUIRE(history.Report(Report("a", 2, {3, 4, 5}, 3)).ok());
  REQUIRE(history.Report(Report("b", 1, {9})).ok());
  const v1::GetHistoryReply reply = Read(history);
  CHECK(Losses(reply.workers(0)) == std::vector<double>{3, 4, 5});
  CHECK(reply.workers(0).dropped() == 2);
  CHECK(Losses(reply.workers(1)) == std::vector<double>{9});
}

TEST_CASE("A report that is repeated is kept once") {
  History history(100);
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  REQUIRE(history.Report(Report("a", 2, {2})).ok());
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1, 2});
}

TEST_CASE("A new incarnation counts its reports anew, and adds to the worker's history") {
  History history(100);
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  v1::ReportHistoryRequest again = Report("a", 1, {2});
  again.mutable_participant()->set_incarnation(2);
  REQUIRE(history.Report(again).ok());
  REQUIRE(history.Report(again).ok());
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1, 2});
}

TEST_CASE("A report whose records and metric names don't match is refused and keeps nothing") {
  History history(100);
  v1::ReportHistoryRequest request = Report("a", 1, {1, 2});
  request.mutable_records(1)->add_metrics(7);
  const absl::Status status = history.Report(request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             Contains("'a'") && Contains("step 2") && Contains("has 2 metrics") && Contains("has 1"));
  CHECK(Read(history).workers_size() == 0);
}

TEST_CASE("At most 64 metrics are kept") {
  History history(100);
  v1::ReportHistoryRequest request;
  request.mutable_participant()->set_worker("a");
  for (int i = 0; i < 65; ++i) request.add_metric_names(absl::StrCat("m", i));
  const absl::Status status = history.Report(request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("65 metrics") && Contains("at most 64"));
}

TEST_CASE("A worker that is forgotten has no history") {
  History history(100);
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  REQUIRE(history.Report(Report("b", 1, {2})).ok());
  history.Forget("a");
  history.Forget("c");
  CHECK(Read(history, "a").workers_size() == 0);
  CHECK(Read(history).workers_size() == 1);
}

TEST_CASE("Metric names stay the same for a worker") {
  History history(100);
  REQUIRE(history.Report(Report("a", 1, {1})).ok());
  v1::ReportHistoryRequest request = Report("a", 2, {2});
  request.set_metric_names(0, "top5");
  const absl::Status status = history.Report(request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("[accuracy], not [top5]"));
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1});
}

TEST_CASE("An averaged history is one series: the mean over the workers that have got as far") {
  History history(100);
  REQUIRE(history.Report(Report("a", 1, {1, 2, 3})).ok());
  REQUIRE(history.Report(Report("b", 1, {5})).ok());
  REQUIRE(history.Report(Report("c", 1, {3, 6})).ok());
  const v1::GetHistoryReply reply = Read(history, "", /*averaged=*/true);
  REQUIRE(reply.workers_size() == 1);
  const v1::WorkerHistory& mean = reply.workers(0);
  CHECK(mean.worker().empty());
  REQUIRE(mean.metric_names_size() == 1);
  CHECK(mean.metric_names(0) == "accuracy");
  REQUIRE(mean.records_size() == 3);
  CHECK(mean.records(0).loss() == Approx(3));
  CHECK(mean.records(1).loss() == Approx(4));
  CHECK(mean.records(2).loss() == Approx(3));
  CHECK(mean.records(0).metrics(0) == Approx(0.3));
  CHECK(mean.records(1).metrics(0) == Approx(0.4));
  CHECK(mean.records(1).step() == 2);
  CHECK(mean.records(1).epoch() == Approx(1));
  CHECK(mean.records(1).time_s() == Approx(4));
}

TEST_CASE("Records are averaged with those of the same place also when older ones were dropped") {
  History history(2);
  REQUIRE(history.Report(Report("a", 1, {1, 2, 3})).ok());
  REQUIRE(history.Report(Report("b", 1, {7, 8})).ok());
  const v1::GetHistoryReply reply = Read(history, "", /*averaged=*/true);
  const v1::WorkerHistory& mean = reply.workers(0);
  CHECK(mean.dropped() == 0);
  REQUIRE(mean.records_size() == 3);
  CHECK(mean.records(0).loss() == 7);
  CHECK(mean.records(1).loss() == 5);
  CHECK(mean.records(2).loss() == 3);
}

TEST_CASE("Metrics are averaged over the workers that have the same ones") {
  History history(10);
  v1::ReportHistoryRequest without = Report("a", 1, {1});
  without.clear_metric_names();
  without.mutable_records(0)->clear_metrics();
  REQUIRE(history.Report(without).ok());
  REQUIRE(history.Report(Report("b", 1, {3})).ok());
  const v1::GetHistoryReply reply = Read(history, "", /*averaged=*/true);
  REQUIRE(reply.workers(0).records_size() == 1);
  CHECK(reply.workers(0).records(0).loss() == 2);
  REQUIRE(reply.workers(0).records(0).metrics_size() == 1);
  CHECK(reply.workers(0).records(0).metrics(0) == Approx(0.3));
}

TEST_CASE("Without reports every history is empty") {
  const History history(10);
  CHECK(Read(history).workers_size() == 0);
  const v1::GetHistoryReply averaged = Read(history, "", /*averaged=*/true);
  REQUIRE(averaged.workers_size() == 1);
  CHECK(averaged.workers(0).records_size() == 0);
}

}  // namespace
}  // namespace paramd
