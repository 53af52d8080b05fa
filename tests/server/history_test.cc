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

constexpr uint64_t kModel = 17;

// All pages in one; of a worker whose series goes on in the next page, too.
v1::GetHistoryReply Read(const Histories& history, const std::string& worker = "", bool averaged = false,
                         const std::vector<uint64_t>& models = {kModel}, int* pages = nullptr) {
  v1::GetHistoryRequest request;
  request.set_worker(worker);
  request.set_averaged(averaged);
  v1::GetHistoryReply all;
  size_t largest = 0;
  do {
    v1::GetHistoryReply page;
    REQUIRE(history.Read(models, request, &page).ok());
    largest = std::max(largest, page.ByteSizeLong());
    for (v1::WorkerHistory& part : *page.mutable_workers()) {
      const int n = all.workers_size();
      if (n > 0 && all.workers(n - 1).worker() == part.worker()) {
        all.mutable_workers(n - 1)->mutable_records()->MergeFrom(part.records());
      } else {
        *all.add_workers() = part;
      }
    }
    request.set_page_token(page.next_page_token());
    if (pages != nullptr) ++*pages;
  } while (!request.page_token().empty());
  CHECK(largest < (size_t{1} << 20) + 4096);
  return all;
}

std::vector<double> Losses(const v1::WorkerHistory& history) {
  std::vector<double> losses;
  for (const v1::HistoryRecord& record : history.records()) losses.push_back(record.loss());
  return losses;
}

TEST_CASE("A metric's name has a bound") {
  Histories history({.max_records = 100});
  v1::ReportHistoryRequest report = Report("a", 1, {1});
  report.set_metric_names(0, std::string(256, 'm'));
  CHECK(history.Report(kModel, report).ok());
  report.set_batch(2);
  report.set_metric_names(0, std::string(257, 'm'));
  const absl::Status refused = history.Report(kModel, report);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), Contains("has 257 bytes; use at most 256"));
}

TEST_CASE("Records are kept per worker, in order, and read for all workers or for one") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("b", 1, {3})).ok());
  REQUIRE(history.Report(kModel, Report("a", 1, {1, 2})).ok());
  REQUIRE(history.Report(kModel, Report("b", 2, {4}, 2)).ok());
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
  Histories history({.max_records = 3});
  REQUIRE(history.Report(kModel, Report("a", 1, {1, 2})).ok());
  REQUIRE(history.Report(kModel, Report("a", 2, {3, 4, 5}, 3)).ok());
  REQUIRE(history.Report(kModel, Report("b", 1, {9})).ok());
  const v1::GetHistoryReply reply = Read(history);
  CHECK(Losses(reply.workers(0)) == std::vector<double>{3, 4, 5});
  CHECK(reply.workers(0).dropped() == 2);
  CHECK(Losses(reply.workers(1)) == std::vector<double>{9});
}

TEST_CASE("A report that is repeated is kept once") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  REQUIRE(history.Report(kModel, Report("a", 2, {2})).ok());
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1, 2});
}

TEST_CASE("A new incarnation counts its reports anew, and adds to the worker's history") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  v1::ReportHistoryRequest again = Report("a", 1, {2});
  again.mutable_participant()->set_incarnation(2);
  REQUIRE(history.Report(kModel, again).ok());
  REQUIRE(history.Report(kModel, again).ok());
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1, 2});
}

TEST_CASE("A report whose records and metric names don't match is refused and keeps nothing") {
  Histories history({.max_records = 100});
  v1::ReportHistoryRequest request = Report("a", 1, {1, 2});
  request.mutable_records(1)->add_metrics(7);
  const absl::Status status = history.Report(kModel, request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             Contains("'a'") && Contains("step 2") && Contains("has 2 metrics") && Contains("has 1"));
  CHECK(Read(history).workers_size() == 0);
}

TEST_CASE("At most 64 metrics are kept") {
  Histories history({.max_records = 100});
  v1::ReportHistoryRequest request;
  request.mutable_participant()->set_worker("a");
  for (int i = 0; i < 65; ++i) request.add_metric_names(absl::StrCat("m", i));
  const absl::Status status = history.Report(kModel, request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("65 metrics") && Contains("at most 64"));
}

TEST_CASE("A worker that is forgotten has no history") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  REQUIRE(history.Report(kModel, Report("b", 1, {2})).ok());
  history.Forget(kModel, "a");
  history.Forget(kModel, "c");
  CHECK(Read(history, "a").workers_size() == 0);
  CHECK(Read(history).workers_size() == 1);
}

TEST_CASE("Metric names stay the same for a worker") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  v1::ReportHistoryRequest request = Report("a", 2, {2});
  request.set_metric_names(0, "top5");
  const absl::Status status = history.Report(kModel, request);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("[accuracy], not [top5]"));
  CHECK(Losses(Read(history).workers(0)) == std::vector<double>{1});
}

TEST_CASE("An averaged history is one series: the mean over the workers that have got as far") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1, 2, 3})).ok());
  REQUIRE(history.Report(kModel, Report("b", 1, {5})).ok());
  REQUIRE(history.Report(kModel, Report("c", 1, {3, 6})).ok());
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

TEST_CASE("Records of the same step are averaged, whatever was dropped before and whichever steps are missing") {
  Histories history({.max_records = 3});
  REQUIRE(history.Report(kModel, Report("a", 1, {1, 2, 3, 4})).ok());
  REQUIRE(history.Report(kModel, Report("b", 1, {10}, 2)).ok());
  REQUIRE(history.Report(kModel, Report("b", 2, {20, 30}, 4)).ok());
  const v1::GetHistoryReply reply = Read(history, "", /*averaged=*/true);
  const v1::WorkerHistory& mean = reply.workers(0);
  CHECK(mean.dropped() == 1);
  CHECK(Losses(mean) == std::vector<double>{6, 3, 12, 30});
  CHECK(mean.records(0).step() == 2);
  CHECK(mean.records(3).step() == 5);
}

TEST_CASE("A worker that was restarted counts its steps anew, and what it says last of each counts") {
  Histories history({.max_records = 100});
  REQUIRE(history.Report(kModel, Report("a", 1, {1, 2, 3})).ok());
  v1::ReportHistoryRequest again = Report("a", 1, {5, 6});
  again.mutable_participant()->set_incarnation(2);
  REQUIRE(history.Report(kModel, again).ok());
  CHECK(Losses(Read(history, "", /*averaged=*/true).workers(0)) == std::vector<double>{5, 6, 3});
  // It weighs as much as any other.
  REQUIRE(history.Report(kModel, Report("b", 1, {9})).ok());
  CHECK(Losses(Read(history, "", /*averaged=*/true).workers(0)) == std::vector<double>{7, 6, 3});
}

TEST_CASE("What a worker could not keep until it reported counts as dropped") {
  Histories history({.max_records = 2});
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  v1::ReportHistoryRequest gap = Report("a", 2, {5, 6}, 5);
  gap.set_dropped(3);
  REQUIRE(history.Report(kModel, gap).ok());
  REQUIRE(history.Report(kModel, gap).ok());
  CHECK(Read(history).workers(0).dropped() == 4);
}

TEST_CASE("Metrics are averaged over the workers that have the same ones") {
  Histories history({.max_records = 10});
  v1::ReportHistoryRequest without = Report("a", 1, {1});
  without.clear_metric_names();
  without.mutable_records(0)->clear_metrics();
  REQUIRE(history.Report(kModel, without).ok());
  REQUIRE(history.Report(kModel, Report("b", 1, {3})).ok());
  const v1::GetHistoryReply reply = Read(history, "", /*averaged=*/true);
  REQUIRE(reply.workers(0).records_size() == 1);
  CHECK(reply.workers(0).records(0).loss() == 2);
  REQUIRE(reply.workers(0).records(0).metrics_size() == 1);
  CHECK(reply.workers(0).records(0).metrics(0) == Approx(0.3));
}

TEST_CASE("Without reports every history is empty") {
  const Histories history({.max_records = 10});
  CHECK(Read(history).workers_size() == 0);
  const v1::GetHistoryReply averaged = Read(history, "", /*averaged=*/true);
  REQUIRE(averaged.workers_size() == 1);
  CHECK(averaged.workers(0).records_size() == 0);
}

TEST_CASE("A long history is read page by page, as it was reported") {
  Histories history({.max_records = 100'000});
  std::vector<double> losses(50'000);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = static_cast<double>(i);
  for (const char* worker : {"a", "b", "c"}) REQUIRE(history.Report(kModel, Report(worker, 1, losses)).ok());
  int pages = 0;
  const v1::GetHistoryReply all = Read(history, "", false, {kModel}, &pages);
  CHECK(pages > 5);
  REQUIRE(all.workers_size() == 3);
  for (const v1::WorkerHistory& worker : all.workers()) CHECK(Losses(worker) == losses);
  pages = 0;
  CHECK(Losses(Read(history, "b", false, {kModel}, &pages).workers(0)) == losses);
  CHECK(pages > 1);
  pages = 0;
  CHECK(Losses(Read(history, "", true, {kModel}, &pages).workers(0)) == losses);
  CHECK(pages > 1);
}

TEST_CASE("A worker that counted its steps anew is averaged page by page, too") {
  Histories history({.max_records = 100'000});
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    v1::ReportHistoryRequest report = Report("a", 1, std::vector<double>(30'000, static_cast<double>(incarnation)));
    report.mutable_participant()->set_incarnation(incarnation);
    REQUIRE(history.Report(kModel, report).ok());
  }
  int pages = 0;
  CHECK(Losses(Read(history, "", true, {kModel}, &pages).workers(0)) == std::vector<double>(30'000, 3));
  CHECK(pages > 1);
}

TEST_CASE("Records that are dropped while pages are read are missing, and nothing else") {
  Histories history({.max_records = 40'000});
  std::vector<double> losses(40'000);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = static_cast<double>(i);
  REQUIRE(history.Report(kModel, Report("a", 1, losses)).ok());
  v1::GetHistoryRequest request;
  v1::GetHistoryReply page;
  REQUIRE(history.Read({kModel}, request, &page).ok());
  const auto read = static_cast<size_t>(page.workers(0).records_size());
  REQUIRE(read < losses.size());
  REQUIRE(history.Report(kModel, Report("a", 2, std::vector<double>(39'990, -1), 40'001)).ok());
  request.set_page_token(page.next_page_token());
  v1::GetHistoryReply next;
  REQUIRE(history.Read({kModel}, request, &next).ok());
  CHECK(next.workers(0).records(0).loss() == 39'990);
  CHECK(next.workers(0).dropped() == 39'990);
}

TEST_CASE("Several models are read as one history, each only its own otherwise") {
  Histories history;
  REQUIRE(history.Report(1, Report("b", 1, {1, 2})).ok());
  REQUIRE(history.Report(2, Report("a", 1, {3, 4})).ok());
  REQUIRE(history.Report(3, Report("c", 1, {100})).ok());
  const v1::GetHistoryReply both = Read(history, "", false, {1, 2});
  REQUIRE(both.workers_size() == 2);
  CHECK(both.workers(0).worker() == "b");
  CHECK(both.workers(1).worker() == "a");
  CHECK(Losses(Read(history, "", true, {1, 2}).workers(0)) == std::vector<double>{2, 3});
  CHECK(Read(history, "a", false, {1, 2}).workers_size() == 1);
  history.ForgetModel(1);
  CHECK(Read(history, "", false, {1, 2}).workers_size() == 1);
  CHECK(Read(history, "", false, {1}).workers_size() == 0);
}

TEST_CASE("Models that know a worker of the same name are read whole, page by page") {
  Histories history({.max_records = 100'000});
  for (const uint64_t model : {1, 2}) {
    REQUIRE(history.Report(model, Report("w", 1, std::vector<double>(30'000, 1))).ok());
  }
  v1::GetHistoryRequest request;
  int records = 0;
  do {
    v1::GetHistoryReply page;
    REQUIRE(history.Read({1, 2}, request, &page).ok());
    for (const v1::WorkerHistory& worker : page.workers()) records += worker.records_size();
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  CHECK(records == 60'000);
}

TEST_CASE("A page token that is none of this history is refused") {
  Histories history;
  REQUIRE(history.Report(kModel, Report("a", 1, {1})).ok());
  for (const char* token : {"x", "1:2", "99:0:a"}) {
    for (const bool averaged : {false, true}) {
      v1::GetHistoryRequest request;
      request.set_page_token(token);
      request.set_averaged(averaged);
      v1::GetHistoryReply reply;
      const absl::Status status = history.Read({kModel}, request, &reply);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK_THAT(std::string(status.message()), Contains(token) && Contains("from the beginning"));
    }
  }
}

TEST_CASE("Past the cap those that left go first, the longest gone before the others, then the oldest of the largest") {
  Budget budget;
  const std::vector<double> losses(1000, 1);  // 40 kB a worker
  Histories history({.max_records = 10'000, .max_bytes = 200'000, .budget = &budget});
  const auto report = [&](uint64_t model, const char* worker, uint64_t batch, size_t n) {
    REQUIRE(history.Report(model, Report(worker, batch, std::vector<double>(n, 1), batch * 10'000)).ok());
    CHECK(budget.used_bytes(BudgetKind::kHistories) <= 200'000);
  };
  const auto count = [&](uint64_t model, const char* worker) {
    const v1::GetHistoryReply reply = Read(history, worker, false, {model});
    return reply.workers_size() == 0 ? -1 : reply.workers(0).records_size();
  };
  report(1, "first", 1, 1000);
  report(1, "second", 1, 1000);
  report(2, "back", 1, 1000);
  report(2, "there", 1, 1000);
  history.Left(2, "back");
  history.Left(1, "second");
  history.Left(1, "first");
  history.Left(1, "nobody");
  report(2, "back", 2, 1);
  CHECK(budget.used_bytes(BudgetKind::kHistories) > 160'000);
  report(2, "new", 1, 1500);
  CHECK(count(1, "second") == 0);
  CHECK(Read(history, "second", false, {1}).workers(0).dropped() == 1000);
  CHECK(Read(history, "", true, {1}).workers(0).dropped() == 1000);
  CHECK(count(1, "first") == 1000);
  report(2, "new", 2, 300);
  CHECK(count(1, "first") == 1000);
  report(2, "new", 3, 700);
  CHECK(count(1, "first") == 0);
  CHECK(count(2, "new") == 2500);
  report(2, "there", 2, 700);
  CHECK(count(2, "there") == 1700);
  CHECK(count(2, "back") == 1001);
  CHECK(count(2, "new") < 2500);
  CHECK(count(2, "new") > 1700);
  const v1::GetHistoryReply left = Read(history, "new", false, {2});
  CHECK(left.workers(0).dropped() == 2500 - static_cast<uint64_t>(left.workers(0).records_size()));
  history.ForgetModel(1);
  history.ForgetModel(2);
  CHECK(budget.used_bytes(BudgetKind::kHistories) == 0);
}

TEST_CASE("Names of which nothing is left but their number take an eighth of the cap at the most") {
  Budget budget;
  Histories history({.max_bytes = 100'000, .budget = &budget});
  for (int w = 0; w < 1000; ++w) {
    REQUIRE(history.Report(kModel, Report(absl::StrCat(w), 1, std::vector<double>(500, 1))).ok());
    history.Left(kModel, absl::StrCat(w));
    CHECK(budget.used_bytes(BudgetKind::kHistories) <= 100'000);
  }
  const v1::GetHistoryReply all = Read(history);
  CHECK(all.workers_size() <= 12 + 4);
  CHECK(all.workers_size() > 10);
}

TEST_CASE("Without any room nothing is kept, and reports are accepted all the same") {
  Histories history({.max_bytes = 0});
  CHECK(history.Report(kModel, Report("a", 1, {1, 2})).ok());
  CHECK(Read(history).workers_size() == 0);
}

}  // namespace
}  // namespace paramd
