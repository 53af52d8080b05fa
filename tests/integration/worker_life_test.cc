// The end of workers: refused by the server, left from a callback, forked; and what became of their history.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/await.h"
#include "tests/support/daemon.h"

namespace paramd {
namespace {

TEST_CASE("a worker whose heartbeats are refused ends: the call under way, all later ones, and one event") {
  auto server = StartServer({.listen = "127.0.0.1:0", .lease = absl::Milliseconds(300)});
  const std::string address = server->address();
  REQUIRE(Connect(address)->CreateModel(Spec("m", "downpour", 10)).ok());
  Mutex mutex;
  std::vector<std::string> ends;
  const auto worker = Join({.server = address, .model = "m", .worker = "a", .on_event = [&](absl::string_view event) {
                              MutexLock lock(&mutex);
                              if (absl::StartsWith(event, "this worker has ended")) ends.emplace_back(event);
                            }});
  std::vector<float> center(10);
  absl::Status under_way;
  std::unique_ptr<Worker> other;
  {
    const Thread thread([&] { under_way = worker->Pull(absl::MakeSpan(center), absl::InfiniteDuration()).status(); });
    CHECK(Await([&] { return server->GetStatus().models(0).waiting_workers() == 1; }));
    server.reset();
    // Another daemon of that address: nothing of the first one's is in there.
    server = StartServer({.listen = address, .lease = absl::Milliseconds(300)});
  }
  CHECK(under_way.code() == absl::StatusCode::kAborted);
  CHECK_THAT(std::string(under_way.message()), Catch::Contains("another daemon"));
  CHECK(Await([&] {
    MutexLock lock(&mutex);
    return !ends.empty();
  }));
  const absl::Status later = worker->Commit(std::vector<float>(10), kCallTimeout).status();
  CHECK(later.code() == absl::StatusCode::kAborted);
  CHECK(worker->Report({}, {{.step = 1}}).code() == absl::StatusCode::kAborted);
  worker->Resume();
  CHECK(worker->Initialize(std::vector<float>(10), kCallTimeout) == later);
  CHECK(worker->Leave() == later);
  MutexLock lock(&mutex);
  CHECK(ends.size() == 1);
}

TEST_CASE("on_event may leave, and may be the end of the worker") {
  const bool destroys = GENERATE(false, true);
  const auto server = StartServer({.lease = absl::Milliseconds(300)});
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  Mutex mutex;
  std::unique_ptr<Worker> worker;
  bool over = false;
  {
    MutexLock lock(&mutex);
    worker = Join({.server = server->address(), .model = "m", .worker = "a", .on_event = [&](absl::string_view event) {
                     if (!absl::StartsWith(event, "this worker has ended")) return;
                     MutexLock within(&mutex);
                     worker->Leave().IgnoreError();
                     if (destroys) worker.reset();
                     over = true;
                   }});
  }
  const auto successor = Join(server->address(), "m", "a");
  CHECK(Await([&] {
    MutexLock lock(&mutex);
    return over;
  }));
}

TEST_CASE("a worker that was left behind ends its window and its training at the next step") {
  const auto server = StartServer({.lease = absl::Milliseconds(300)});
  const std::string algorithm = GENERATE(as<std::string>(), "averaging", "downpour");
  CreateModel(server->address(), Spec("m", algorithm, 10), std::vector<float>(10, 0));
  const auto worker = Join(server->address(), "m", "a");
  std::vector<float> network(10);
  auto window = MakeWindow(worker.get(), {absl::MakeSpan(network)}, {.communication_window = 1'000'000'000});
  REQUIRE(window.ok());
  REQUIRE((*window)->Begin().ok());
  absl::Status trained;
  TrainSummary summary;
  {
    const Thread thread([&] {
      Quadratic model(10, 0, 1);
      EmptyBatches batches(1'000'000'000);
      trained = RunWorker({.server = server->address(), .model = "m", .worker = "b"},
                          {.communication_window = 1'000'000'000}, &model, &batches, nullptr, &summary)
                    .status();
    });
    CHECK(Await([&] { return server->GetStatus().models(0).live_workers() == 2; }));
    REQUIRE(Connect(server->address())->DeleteModel("m").ok());
    absl::Status ended;
    CHECK(Await([&] {
      ended = (*window)->BeforeStep();
      if (ended.ok()) ended = (*window)->AfterStep();
      return !ended.ok();
    }));
    CHECK(absl::IsNotFound(ended));
    CHECK((*window)->Finish() == ended);
  }
  CHECK(absl::IsNotFound(trained));
  CHECK(summary.exchanges == 0);
}

TEST_CASE("the steps of a cancelled window go to the history if their commit was applied") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10, "sync"), std::vector<float>(10, 0));
  const auto worker = Join(server->address(), "m", "a");
  const auto peer = Join(server->address(), "m", "b");
  std::vector<float> network(10);
  auto window = MakeWindow(worker.get(), {absl::MakeSpan(network)},
                           {.communication_window = 1, .overlap = GENERATE(false, true)});
  REQUIRE(window.ok());
  REQUIRE((*window)->Begin().ok());
  REQUIRE((*window)->BeforeStep().ok());
  REQUIRE((*window)->AfterStep({.loss = 1}).ok());
  {
    const Thread thread([&] {
      CHECK(Await([&] { return server->GetStatus().models(0).waiting_workers() == 1; }));
      worker->Cancel();
    });
    CHECK(absl::IsCancelled((*window)->Finish()));
  }
  CHECK(worker->last_commit() == CommitState::kUnknown);
  CHECK(absl::IsCancelled((*window)->Abandon()));
  window->reset();
  CHECK(worker->history().dropped == 0);
  switch (GENERATE(0, 1, 2)) {
    case 0: {  // the next call finds out, once the round is over
      worker->Resume();
      REQUIRE(peer->Leave().ok());
      std::vector<float> center(10);
      REQUIRE(worker->Pull(absl::MakeSpan(center), kCallTimeout).ok());
      break;
    }
    case 1:  // the leave does, in the middle of the round
      worker->Resume();
      break;
    case 2:  // also of a worker that is still cancelled
      break;
  }
  REQUIRE(worker->Leave().ok());
  CHECK(worker->history().reported == 1);
}

TEST_CASE("a cancel between two calls leaves nothing behind once it is taken back") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  int events = 0;
  const auto worker = Join(
      {.server = server->address(), .model = "m", .worker = "a", .on_event = [&](absl::string_view) { ++events; }});
  std::vector<float> center(10);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(worker->Pull(absl::MakeSpan(center), kCallTimeout).ok());
    worker->Cancel();
    worker->Resume();
  }
  CHECK(events == 0);
}

TEST_CASE("an exchange within an exchange is refused") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  Worker* within = nullptr;
  absl::Status status;
  std::vector<float> center(10);
  const auto worker = Join({.server = daemon.address(),
                            .model = "m",
                            .worker = "a",
                            .rpc_timeout = absl::Milliseconds(300),
                            .on_event = [&](absl::string_view event) {
                              if (within == nullptr || !absl::StartsWith(event, "exchange: ")) return;
                              status = within->Pull(absl::MakeSpan(center), absl::InfiniteDuration()).status();
                            }});
  within = worker.get();
  daemon.process().Signal(SIGKILL);
  CHECK_FALSE(worker->Commit(std::vector<float>(10), kCallTimeout).ok());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a worker whose calls run out of time is not ahead by more than its model allows") {
  const std::string consistency = GENERATE(as<std::string>(), "bounded:0", "sync");
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10, consistency), std::vector<float>(10, 0));
  const auto worker = Join(server->address(), "m", "a");
  const auto other = Join(server->address(), "m", "b");
  const std::vector<float> update(10, 1);
  for (int i = 0; i < 5; ++i) {
    const absl::Status late = worker->Commit(update, absl::Milliseconds(100)).status();
    CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
    // What is left to wait for is the first one's answer.
    CHECK(worker->last_commit() == (i == 0 ? CommitState::kApplied : CommitState::kNotApplied));
  }
  const auto committed = other->Commit(update, kCallTimeout);
  INFO(committed.status());
  REQUIRE(committed.ok());
  CHECK(other->last_commit() == CommitState::kApplied);
  CHECK(ReadCenter(server->address(), "m") == std::make_pair(std::vector<float>(10, 2), int64_t{2}));
  // The first one is answered now; this one waits for the other worker.
  CHECK_FALSE(worker->Commit(update, absl::Milliseconds(200)).ok());
  CHECK(worker->last_commit() == CommitState::kApplied);
  REQUIRE(other->Leave().ok());
  CHECK(worker->Commit(update, kCallTimeout).ok());
  CHECK(ReadCenter(server->address(), "m") == std::make_pair(std::vector<float>(10, 4), int64_t{4}));
}

TEST_CASE("what became of a commit whose answer was lost is found out by the next call") {
  const auto server = StartServer();
  CreateModel(server->address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  TcpProxy proxy(server->address());
  const auto worker = Join(proxy.address(), "m", "a");
  const std::vector<float> update(10, 1);
  std::vector<float> center(10);
  REQUIRE(worker->Pull(absl::MakeSpan(center), kCallTimeout).ok());
  CHECK(worker->last_commit() == CommitState::kNone);
  proxy.HoldReplies();
  CHECK(worker->Commit(update, absl::Milliseconds(500)).status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(worker->last_commit() == CommitState::kUnknown);
  proxy.Cut();
  REQUIRE(worker->Pull(absl::MakeSpan(center), kCallTimeout).ok());
  CHECK(worker->last_commit() == CommitState::kApplied);
  CHECK(center == update);
  const auto refused = worker->Commit(std::vector<float>(11, 1), kCallTimeout);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(worker->last_commit() == CommitState::kNotApplied);
}

TEST_CASE("on_event of an exchange may be the end of the worker") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  std::unique_ptr<Worker> worker;
  worker = Join({.server = daemon.address(), .model = "m", .worker = "a", .on_event = [&](absl::string_view event) {
                   if (absl::StartsWith(event, "exchange: ")) worker.reset();
                 }});
  daemon.process().Signal(SIGKILL);
  CHECK(worker->Commit(std::vector<float>(10), kCallTimeout).status().code() == absl::StatusCode::kCancelled);
  CHECK(worker == nullptr);
}

// Runs `child` in a fork, and returns its exit code; 128 + a signal's number, SIGALRM if it hangs.
template <typename Child>
int Fork(const Child& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(child());
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool IsForeign(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), "forked") &&
         absl::StrContains(status.message(), "fork first, and join in the child");
}

TEST_CASE("a forked child can't use its parent's worker or admin, nor can it harm them") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  auto worker = Join(daemon.address(), "m", "a");
  auto admin = Connect(daemon.address());
  const std::vector<float> update(10, 1);
  REQUIRE(worker->Commit(update, kCallTimeout).ok());
  const int code = Fork([&] {
    std::vector<float> center(10);
    int failed = 0;
    for (const absl::Status& status :
         {worker->Commit(update, kCallTimeout).status(), worker->Pull(absl::MakeSpan(center), kCallTimeout).status(),
          worker->Initialize(update, kCallTimeout), worker->Report({}, {}), worker->Leave(),
          admin->GetStatus().status(), admin->Pull("m", absl::MakeSpan(center)).status(),
          Worker::Join({.server = daemon.address(), .model = "m", .worker = "b"}).status(),
          Admin::Connect(daemon.address()).status()}) {
      ++failed;
      if (!IsForeign(status)) return failed;
    }
    worker->Cancel();
    worker.reset();
    admin.reset();
    return 0;
  });
  CHECK(code == 0);
  const auto committed = worker->Commit(update, kCallTimeout);
  REQUIRE(committed.ok());
  CHECK(committed->version == 2);
  CHECK(admin->GetModel("m")->live_workers() == 1);
}

TEST_CASE("a child joins for itself if its parent has nothing open when it forks") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto child = [&] {
    auto worker = Worker::Join({.server = daemon.address(), .model = "m", .worker = "child"});
    if (absl::IsFailedPrecondition(worker.status())) return 1;
    if (!worker.ok() || !(*worker)->Commit(std::vector<float>(10, 1), kCallTimeout).ok()) return 2;
    return (*worker)->Leave().ok() ? 0 : 3;
  };
  // gRPC may still be putting away what the parent had.
  int code = 1;
  CHECK(Await([&] { return (code = Fork(child)) != 1; }));
  CHECK(code == 0);
  CHECK(ReadCenter(daemon.address(), "m").second == 1);
}

TEST_CASE("a training whose daemon is gone ends soon after it was found so") {
  Daemon daemon;
  CreateModel(daemon.address(), Spec("m", "downpour", 10), std::vector<float>(10, 0));
  const auto admin = Connect(daemon.address());
  absl::Status status;
  absl::Time killed;
  {
    const Thread thread([&] {
      Quadratic model(10, 0, 1);
      EmptyBatches batches(1'000'000'000);
      status =
          RunWorker({.server = daemon.address(), .model = "m", .worker = "a", .rpc_timeout = absl::Milliseconds(500)},
                    {}, &model, &batches)
              .status();
    });
    CHECK(Await([&] { return admin->GetModel("m")->version() > 0; }));
    daemon.process().Signal(SIGKILL);
    killed = absl::Now();
  }
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::Now() - killed < absl::Seconds(8));  // and not the ten that a leave may take
}

TEST_CASE("a history of quick steps arrives whole") {
  constexpr int64_t kSteps = 300'000;
  const auto server = StartServer({.max_history_records = kSteps});
  CreateModel(server->address(), Spec("m", "downpour", 1), {0});
  const auto worker = Join(server->address(), "m", "a");
  std::vector<StepResult> window(10);
  for (int64_t step = 1; step <= kSteps;) {
    for (StepResult& result : window) result = {.step = step++, .loss = 1, .metrics = {0.5}};
    const absl::Status kept = worker->Report({"accuracy"}, window);
    if (!kept.ok()) FAIL(kept);
  }
  REQUIRE(worker->Leave().ok());
  const HistoryState state = worker->history();
  CHECK(state.dropped == 0);
  CHECK(state.reported == kSteps);
  v1::GetHistoryRequest request;
  request.set_model("m");
  const auto history = Connect(server->address())->GetHistory(request);
  INFO(history.status());
  REQUIRE(history.ok());
  REQUIRE(history->workers_size() == 1);
  const v1::WorkerHistory& series = history->workers(0);
  CHECK(series.dropped() == 0);
  REQUIRE(series.records_size() == kSteps);
  bool in_order = true;
  for (int i = 0; i < series.records_size(); ++i) in_order &= series.records(i).step() == static_cast<uint64_t>(i) + 1;
  CHECK(in_order);
}

TEST_CASE("a report that the server refuses is told, and counted") {
  const auto server = StartServer({.lease = absl::Milliseconds(300)});
  CreateModel(server->address(), Spec("m", "downpour", 1), {0});
  Mutex mutex;
  std::vector<std::string> told;
  const auto worker =
      Join({.server = server->address(), .model = "m", .worker = "a", .on_event = [&](absl::string_view event) {
              MutexLock lock(&mutex);
              told.emplace_back(event);
            }});
  REQUIRE(worker->Report({"a"}, {{.step = 1, .metrics = {1}}}).ok());
  REQUIRE(worker->Report({"b"}, {{.step = 2, .metrics = {1}}}).ok());
  CHECK(Await([&] { return worker->history().dropped == 1; }));
  CHECK(worker->history().reported == 1);
  CHECK(worker->history().refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Await([&] {
    MutexLock lock(&mutex);
    return told.size() == 1;
  }));
  MutexLock lock(&mutex);
  CHECK_THAT(told[0], Catch::Contains("history: ") && Catch::Contains("metrics"));
}

}  // namespace
}  // namespace paramd
