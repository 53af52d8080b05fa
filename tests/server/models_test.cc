#include "server/models.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"

namespace paramd::testing {
namespace {

using Catch::Matchers::Contains;

v1::ModelSpec Named(const std::string& name, v1::ModelSpec spec = MakeSpec("downpour", 2)) {
  spec.set_name(name);
  return spec;
}

v1::JoinRequest JoinRequestOf(const std::string& model, const std::string& worker, uint64_t nonce = 1) {
  v1::JoinRequest request;
  request.set_model(model);
  request.set_worker(worker);
  request.set_nonce(nonce);
  return request;
}

// The name of the model that the worker is to use. Fails the test if it can't join.
std::string Join(Models* models, const std::string& model, const std::string& worker) {
  static uint64_t nonce = 1000;
  const auto reply = models->Join(JoinRequestOf(model, worker, ++nonce));
  INFO(reply.status());
  REQUIRE(reply.ok());
  return reply->model().spec().name();
}

std::shared_ptr<Model> Find(const Models& models, const std::string& name) {
  auto model = models.Find(name);
  INFO(model.status());
  REQUIRE(model.ok());
  return *model;
}

std::vector<std::string> Names(const Models& models) {
  std::vector<std::string> names;
  for (const auto& model : models.List()) names.push_back(model->name());
  return names;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("A model is created, found, listed and described") {
  Models models({});
  CHECK(models.List().empty());
  const auto created = models.Create(Named("b"));
  REQUIRE(created.ok());
  CHECK(created->spec().name() == "b");
  CHECK(created->parameters() == 2);
  CHECK_FALSE(created->initialized());
  REQUIRE(models.Create(Named("a")).ok());
  CHECK(Names(models) == std::vector<std::string>{"a", "b"});
  CHECK(Find(models, "b")->name() == "b");
  CHECK(models.Describe("b")->SerializeAsString() == created->SerializeAsString());
}

TEST_CASE("An identical repeat is OK and changes nothing; another specification is refused and the difference named") {
  Models models({});
  REQUIRE(models.Create(Named("m")).ok());
  Initialize(Find(models, "m").get(), {1, 2});
  const auto again = models.Create(Named("m"));
  REQUIRE(again.ok());
  CHECK(again->initialized());
  // Also when what is the default is spelled out.
  CHECK(models.Create(again->spec()).ok());

  const absl::Status status = models.Create(Named("m", MakeSpec("downpour", 3))).status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(Text(status), Contains("'m'") && Contains("w [2] there and w [3] in the request") &&
                               Contains("use another name, or delete it first"));
  CHECK(Find(models, "m")->Describe().parameters() == 2);
}

TEST_CASE("A bad specification creates nothing") {
  Models models({});
  CHECK(models.Create(Named("m", MakeSpec("adam", 2))).status().code() == absl::StatusCode::kNotFound);
  CHECK(models.Create(Named("m", MakeSpec("downpour", 0))).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(models.List().empty());
}

TEST_CASE("An unknown model is NOT_FOUND, and the error names no other") {
  Models models({});
  REQUIRE(models.Create(Named("secret")).ok());
  const absl::Status status = models.Find("x").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Text(status), Contains("no model 'x'") && Contains("paramctl create") && !Contains("secret"));
  CHECK(models.Describe("x").status().code() == absl::StatusCode::kNotFound);
  CHECK(models.Delete("x").code() == absl::StatusCode::kNotFound);
  CHECK(models.Join(JoinRequestOf("x", "w")).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Models are isolated from each other") {
  Models models({});
  REQUIRE(models.Create(Named("a")).ok());
  REQUIRE(models.Create(Named("b")).ok());
  Initialize(Find(models, "a").get(), {0, 0});
  const auto a = Find(models, "a");
  ModelWorker worker(a.get(), "w");
  REQUIRE(worker.Commit({1, 1}).status.ok());
  CHECK(models.Describe("a")->version() == 1);
  CHECK(models.Describe("b")->version() == 0);
  CHECK_FALSE(models.Describe("b")->initialized());
  CHECK(models.Describe("b")->workers_size() == 0);
}

TEST_CASE("As many models as allowed, and no more") {
  Models models({.max_models = 2});
  REQUIRE(models.Create(Named("a")).ok());
  REQUIRE(models.Create(Named("b")).ok());
  const absl::Status status = models.Create(Named("c")).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Text(status), Contains("hosts 2 models") && Contains("--max_models"));
  CHECK(models.Create(Named("b")).ok());
  REQUIRE(models.Delete("a").ok());
  CHECK(models.Create(Named("c")).ok());
}

TEST_CASE("A model larger than allowed is refused") {
  Models models({.max_model_bytes = 100});
  CHECK(models.Create(Named("a", MakeSpec("downpour", 25))).ok());
  CHECK_THAT(Text(models.Create(Named("b", MakeSpec("downpour", 26))).status()), Contains("the 100 bytes"));
}

TEST_CASE("The cap on bytes in flight holds two commits of the largest model that has a center") {
  Models models({.budget = {.max_in_flight_bytes = 1000}});
  REQUIRE(models.Create(Named("large", MakeSpec("downpour", 5000))).ok());
  // It may never get one.
  CHECK(models.budget()->max_in_flight_bytes() == 1000);
  testing::Initialize(models.Find("large")->get(), std::vector<float>(5000));
  CHECK(models.budget()->max_in_flight_bytes() == 40'000);
  REQUIRE(models.Create(Named("small", MakeSpec("downpour", 500))).ok());
  testing::Initialize(models.Find("small")->get(), std::vector<float>(500));
  CHECK(models.budget()->max_in_flight_bytes() == 40'000);
  REQUIRE(models.Delete("large").ok());
  CHECK(models.budget()->max_in_flight_bytes() == 4000);
}

TEST_CASE("Whoever has its turn because a model raised the cap may ask for models") {
  Models models({.budget = {.max_in_flight_bytes = 1000}});
  REQUIRE(models.Create(Named("m", MakeSpec("downpour", 5000))).ok());
  const Reservation all = models.budget()->TryReserve(1000);
  bool found = false;
  models.budget()->Reserve({.bytes = 10}, [&](Reservation) { found = models.Find("m").ok(); });
  testing::Initialize(models.Find("m")->get(), std::vector<float>(5000));
  CHECK(found);
}

TEST_CASE("A model that is made again under its name is another one: what its old workers send is refused, by name") {
  Models models({});
  REQUIRE(models.Create(Named("m")).ok());
  const auto joined = models.Join(JoinRequestOf("m", "w"));
  REQUIRE(joined.ok());
  v1::Participant participant;
  participant.set_model("m");
  participant.set_worker("w");
  participant.set_incarnation(joined->incarnation());
  participant.set_model_id(joined->model().id());
  participant.set_daemon_id(joined->daemon_id());
  CHECK(models.Find(participant).ok());

  // A worker says which model and which daemon it means.
  v1::Participant silent = participant;
  silent.clear_model_id();
  CHECK(models.Find(silent).status().code() == absl::StatusCode::kInvalidArgument);
  silent = participant;
  silent.clear_daemon_id();
  CHECK(models.Find(silent).status().code() == absl::StatusCode::kInvalidArgument);

  REQUIRE(models.Delete("m").ok());
  CHECK(models.Find(participant).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(models.Create(Named("m")).ok());
  CHECK(models.Find(participant).status().code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(models.Find(participant).status()), Contains("'m'") && Contains("deleted and created again"));

  Models restarted({});
  REQUIRE(restarted.Create(Named("m")).ok());
  CHECK(restarted.Find(participant).status().code() == absl::StatusCode::kAborted);
  CHECK_THAT(Text(restarted.Find(participant).status()), Contains("another daemon"));

  // Readers may say nothing of it; what they say must be right.
  v1::Participant reader;
  reader.set_model("m");
  CHECK(models.Find(reader).ok());
  reader.set_model_id(joined->model().id());
  CHECK(models.Find(reader).status().code() == absl::StatusCode::kAborted);
}

TEST_CASE("Deleting a model frees its center at once, whoever still holds the model") {
  Models models({});
  REQUIRE(models.Create(Named("m")).ok());
  const auto held = Find(models, "m");
  Initialize(held.get(), {1, 2});
  CHECK(models.budget()->used_bytes(BudgetKind::kCenters) == 2 * sizeof(float));
  const std::weak_ptr<const Snapshot> center = TakeSnapshot(held.get());
  REQUIRE(models.Delete("m").ok());
  CHECK(models.budget()->used_bytes(BudgetKind::kCenters) == 0);
  CHECK(center.expired());
  CHECK_FALSE(held->Describe().initialized());
}

TEST_CASE("Deleting a model answers whoever waits in it with NOT_FOUND, and frees its name") {
  Models models({});
  REQUIRE(models.Create(Named("m")).ok());
  const auto model = Find(models, "m");
  ModelWorker worker(model.get(), "w");
  worker.StartPull();
  REQUIRE(worker.waiting());
  REQUIRE(models.Delete("m").ok());
  REQUIRE_FALSE(worker.waiting());
  const absl::Status status = worker.End().status;
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Text(status), Contains("'m' was deleted"));
  CHECK(models.List().empty());
  CHECK(models.Create(Named("m", MakeSpec("adag", 7))).ok());
}

TEST_CASE("A join answers with the model's whole specification, the incarnation and the lease") {
  ModelsOptions options;
  options.model.lease = absl::Seconds(12);
  Models models(options);
  REQUIRE(models.Create(Named("m")).ok());
  const auto reply = models.Join(JoinRequestOf("m", "w"));
  REQUIRE(reply.ok());
  CHECK(reply->model().spec().name() == "m");
  CHECK(reply->model().spec().hyperparameters_size() == 2);
  CHECK(reply->incarnation() == 1);
  CHECK(reply->lease_s() == 12);
  CHECK(reply->model().live_workers() == 1);
  CHECK(reply->model().workers_size() == 0);
  CHECK(reply->model().id() == Find(models, "m")->id());
  CHECK(reply->daemon_id() == models.daemon_id());
}

TEST_CASE("Leases run out in every model at the tick") {
  FakeClock clock;
  ModelsOptions options;
  options.model.clock = &clock;
  Models models(options);
  for (const char* name : {"a", "b"}) {
    REQUIRE(models.Create(Named(name)).ok());
    Join(&models, name, "w");
  }
  clock.Advance(absl::Minutes(1));
  models.Tick();
  CHECK(models.Describe("a")->workers(0).state() == v1::WorkerInfo::EXPIRED);
  CHECK(models.Describe("b")->workers(0).state() == v1::WorkerInfo::EXPIRED);
}

TEST_CASE("While draining everything is UNAVAILABLE, and whoever waits is told so") {
  Models models({});
  REQUIRE(models.Create(Named("m")).ok());
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 2))).ok());
  const auto model = Find(models, "m");
  ModelWorker worker(model.get(), "w");
  worker.StartPull();
  models.Drain();
  REQUIRE_FALSE(worker.waiting());
  CHECK(worker.End().status.code() == absl::StatusCode::kUnavailable);
  CHECK(models.Create(Named("n")).status().code() == absl::StatusCode::kUnavailable);
  CHECK(models.Find("m").status().code() == absl::StatusCode::kUnavailable);
  CHECK(models.Delete("m").code() == absl::StatusCode::kUnavailable);
  CHECK(models.Join(JoinRequestOf("e", "w")).status().code() == absl::StatusCode::kUnavailable);
  CHECK(Names(models) == std::vector<std::string>{"e", "m"});
}

TEST_CASE("Each worker of an ensemble trains a center of its own, the same one when it joins again") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 2))).ok());
  CHECK(Join(&models, "e", "x") == "e/0");
  CHECK(Join(&models, "e", "y") == "e/1");
  CHECK(Join(&models, "e", "x") == "e/0");
  CHECK(Names(models) == std::vector<std::string>{"e", "e/0", "e/1"});
  CHECK(models.Describe("e/0")->spec().algorithm() == "ensemble");

  // A member that was deleted is made again.
  REQUIRE(models.Delete("e/0").ok());
  CHECK(Join(&models, "e", "x") == "e/0");
  CHECK(Join(&models, "e", "z") == "e/2");
}

TEST_CASE("The members of an ensemble begin with its initial center, and go their own ways") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 2))).ok());
  Initialize(Find(models, "e").get(), {5, 6});
  Join(&models, "e", "x");
  Join(&models, "e", "y");
  const auto x = Find(models, "e/0");
  ModelWorker worker(x.get(), "x");
  REQUIRE(worker.Commit({1, 1}).status.ok());
  CHECK(Floats(*TakeSnapshot(x.get())) == std::vector<float>{6, 7});
  CHECK(Floats(*TakeSnapshot(Find(models, "e/1").get())) == std::vector<float>{5, 6});
  CHECK(Floats(*TakeSnapshot(Find(models, "e").get())) == std::vector<float>{5, 6});
}

TEST_CASE("An ensemble without an initial center leaves it to each worker") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  Join(&models, "e", "x");
  CHECK_FALSE(models.Describe("e/0")->initialized());
  Initialize(Find(models, "e/0").get(), {7});
  CHECK(models.Describe("e/0")->initialized());
}

TEST_CASE("An ensemble is described with the workers of all its members") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  Join(&models, "e", "x");
  Join(&models, "e", "y");
  const auto info = models.Describe("e");
  REQUIRE(info->workers_size() == 2);
  CHECK(info->workers(0).worker() == "x");
  CHECK(info->workers(1).worker() == "y");
  CHECK(models.Describe("e/1")->workers_size() == 1);
}

v1::ReportHistoryRequest ReportOf(const v1::JoinReply& joined, const std::string& worker, uint64_t nonce) {
  v1::ReportHistoryRequest request;
  v1::Participant* p = request.mutable_participant();
  p->set_model(joined.model().spec().name());
  p->set_worker(worker);
  p->set_incarnation(joined.incarnation());
  p->set_nonce(nonce);
  p->set_model_id(joined.model().id());
  p->set_daemon_id(joined.daemon_id());
  v1::HistoryRecord* record = request.add_records();
  record->set_step(1);
  record->set_loss(static_cast<double>(nonce));
  return request;
}

TEST_CASE("The history of an ensemble is that of all its members, averaged over them if asked so") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  for (const uint64_t nonce : {1, 2}) {
    const std::string worker = absl::StrCat("w", nonce);
    const auto joined = models.Join(JoinRequestOf("e", worker, nonce));
    REQUIRE(joined.ok());
    const v1::ReportHistoryRequest report = ReportOf(*joined, worker, nonce);
    REQUIRE((*models.Find(report.participant()))->Report(report).ok());
  }
  v1::GetHistoryRequest request;
  request.set_model("e");
  const auto whole = models.ReadHistory(request);
  REQUIRE(whole.ok());
  REQUIRE(whole->workers_size() == 2);
  CHECK(whole->workers(0).worker() == "w1");
  CHECK(whole->workers(1).worker() == "w2");
  request.set_averaged(true);
  const auto averaged = models.ReadHistory(request);
  REQUIRE(averaged->workers_size() == 1);
  CHECK(averaged->workers(0).records(0).loss() == 1.5);
  request.set_averaged(false);
  request.set_model("e/1");
  REQUIRE(models.ReadHistory(request)->workers_size() == 1);
  CHECK(models.ReadHistory(request)->workers(0).worker() == "w2");
}

TEST_CASE("Joining by a member's own name joins that member, and does not nest") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  REQUIRE(Join(&models, "e", "x") == "e/0");
  CHECK(Join(&models, "e/0", "x") == "e/0");
  CHECK(Join(&models, "e/0", "other") == "e/0");
  CHECK(Names(models) == std::vector<std::string>{"e", "e/0"});
}

TEST_CASE("A join that is refused leaves no member behind") {
  Models models({.max_models = 2});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  CHECK(models.Join(JoinRequestOf("e", std::string(300, 'x'))).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(models.Join(JoinRequestOf("e", "x", /*nonce=*/0)).status().code() == absl::StatusCode::kInvalidArgument);
  v1::JoinRequest high = JoinRequestOf("e", "x");
  high.set_incarnation(UINT64_MAX);
  CHECK(models.Join(high).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Names(models) == std::vector<std::string>{"e"});
  CHECK(Join(&models, "e", "x") == "e/0");
}

TEST_CASE("A model that took a deleted member's name is not handed out to its worker") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  REQUIRE(Join(&models, "e", "x") == "e/0");
  REQUIRE(models.Delete("e/0").ok());
  REQUIRE(models.Create(Named("e/0")).ok());
  CHECK(models.Join(JoinRequestOf("e", "x")).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(Find(models, "e/0")->Describe().spec().algorithm() == "downpour");
}

TEST_CASE("Deleting an ensemble deletes its members and forgets who had which") {
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  REQUIRE(models.Create(Named("other")).ok());
  Join(&models, "e", "x");
  Join(&models, "e", "y");
  const auto member = Find(models, "e/1");
  ModelWorker waiting(member.get(), "y");
  waiting.StartPull();
  REQUIRE(models.Delete("e").ok());
  CHECK(waiting.End().status.code() == absl::StatusCode::kNotFound);
  CHECK(Names(models) == std::vector<std::string>{"other"});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  CHECK(Join(&models, "e", "y") == "e/0");
}

TEST_CASE("A model that stands where a member of an ensemble would go is not touched") {
  Models models({});
  REQUIRE(models.Create(Named("e/0")).ok());
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  const absl::Status status = models.Join(JoinRequestOf("e", "x")).status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(Text(status), Contains("'e/0' exists") && Contains("ensemble 'e'"));
  REQUIRE(models.Delete("e/0").ok());
  CHECK(Join(&models, "e", "x") == "e/0");
}

TEST_CASE("Members count among the models that are allowed") {
  Models models({.max_models = 2});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  Join(&models, "e", "x");
  CHECK(models.Join(JoinRequestOf("e", "y")).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(Join(&models, "e", "x") == "e/0");
}

TEST_CASE("Many threads that create, join and delete leave a consistent set of models") {
  constexpr int kThreads = 8;
  Models models({});
  REQUIRE(models.Create(Named("e", MakeSpec("ensemble", 1))).ok());
  std::vector<std::string> member(kThreads);
  std::vector<int> failures(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string worker = absl::StrCat("w", t);
      for (int i = 0; i < 20; ++i) {
        const auto reply = models.Join(JoinRequestOf("e", worker));
        if (!reply.ok()) {
          ++failures[t];
          continue;
        }
        member[t] = reply->model().spec().name();
        if (!models.Create(Named(worker)).ok()) ++failures[t];
        models.Tick();
        if (!models.Delete(worker).ok()) ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == std::vector<int>(kThreads, 0));
  CHECK(std::set<std::string>(member.begin(), member.end()).size() == kThreads);
  CHECK(models.List().size() == kThreads + 1);
  CHECK(models.Describe("e")->workers_size() == kThreads);
}

}  // namespace
}  // namespace paramd::testing
