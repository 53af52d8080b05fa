// With a journal an exchange is answered once its commit is on disk, and a daemon that begins anew makes of it what
// there was, to the last bit.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/encoding.h"
#include "server/model.h"
#include "state/log.h"
#include "tests/support/await.h"
#include "tests/support/fake_clock.h"
#include "tests/support/log_recorder.h"
#include "tests/support/model_worker.h"
#include "tests/support/process.h"

namespace paramd::testing {
namespace {

using Vector = std::vector<float>;

constexpr size_t kFloats = 2 * kPieceFloats + 7;
constexpr int kWorkers = 3;

// In memory, where a sync costs nothing. Removed at the end.
class LogFolder {
 public:
  LogFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~LogFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_ + "/log"; }

 private:
  std::string path_ = "/dev/shm/paramd_journal_XXXXXX";
};

std::shared_ptr<Model> MakeShared(const v1::ModelSpec& spec, ModelOptions options) { return MakeModel(spec, options); }

std::unique_ptr<Log> OpenLog(const std::string& path, Model* replayed = nullptr) {
  auto log = Log::Open(path, {.retry_interval = absl::Milliseconds(5)}, [&](const LogRecord& record) {
    state::Record what;
    REQUIRE(what.ParseFromArray(record.head.data(), static_cast<int>(record.head.size())));
    return replayed != nullptr ? replayed->Replay(what, record) : absl::OkStatus();
  });
  INFO(log.status());
  REQUIRE(log.ok());
  return *std::move(log);
}

enum class Wire { kFloat32, kFloat16, kBfloat16, kShared };

CommitBuffer MakeBufferOf(Wire wire, Vector floats) {
  if (wire == Wire::kFloat32) return MakeBuffer(std::move(floats));
  CommitBuffer buffer(floats.size(), wire == Wire::kFloat16    ? v1::FLOAT16
                                     : wire == Wire::kBfloat16 ? v1::BFLOAT16
                                                               : v1::FLOAT32);
  if (wire == Wire::kShared) {
    const auto shared = std::make_shared<const Vector>(std::move(floats));
    if (!buffer.AppendUnstable(0, *shared, shared).ok()) throw std::logic_error("a commit of the right length");
    return buffer;
  }
  const auto narrow = std::make_shared<std::vector<uint16_t>>(floats.size());
  Narrow(buffer.encoding(), floats.data(), floats.size(), narrow->data());
  const std::string_view bytes(reinterpret_cast<const char*>(narrow->data()), 2 * narrow->size());
  // In pieces that split a float.
  if (!buffer.Append(0, {bytes.substr(0, 333), bytes.substr(333)}, narrow).ok()) {
    throw std::logic_error("a commit of the right length");
  }
  return buffer;
}

ModelImage TakeWhole(Model* model) {
  const auto whole = std::make_shared<std::promise<ModelImage>>();
  model->TakeImage([whole](absl::StatusOr<ModelImage> image) { whole->set_value(*std::move(image)); });
  return whole->get_future().get();
}

std::string BytesOf(const std::vector<BlockRef>& blocks) {
  std::string bytes;
  for (const BlockRef& block : blocks) {
    bytes.append(reinterpret_cast<const char*>(block.floats().data()), block.floats().size() * sizeof(float));
  }
  return bytes;
}

void CheckSame(const ModelImage& a, const ModelImage& b) {
  REQUIRE(a.image.has_value());
  REQUIRE(b.image.has_value());
  CHECK(a.image->version == b.image->version);
  CHECK(a.image->rounds == b.image->rounds);
  CHECK(a.image->folded == b.image->folded);
  CHECK((BytesOf(a.image->blocks) == BytesOf(b.image->blocks)));
  CHECK((BytesOf(a.image->sum) == BytesOf(b.image->sum)));
  REQUIRE(a.record.members_size() == b.record.members_size());
  for (int i = 0; i < a.record.members_size(); ++i) {
    state::Member x = a.record.members(i);
    state::Member y = b.record.members(i);
    // Pulls are not in the log.
    for (state::Member* const member : {&x, &y}) {
      member->clear_pulls();
      member->clear_base_version();
    }
    CHECK((x.SerializeAsString() == y.SerializeAsString()));
  }
}

Vector Random(std::minstd_rand* random) {
  Vector floats(kFloats);
  for (float& value : floats) value = std::uniform_real_distribution<float>(-1, 1)(*random);
  return floats;
}

TEST_CASE("What a journal says makes the same model again, to the last bit") {
  const std::string algorithm =
      GENERATE("downpour", "adag", "dynsgd", "adaptive_adag", "aeasgd", "eamsgd", "easgd", "averaging");
  const std::string consistency = GENERATE("async", "bounded:1", "sync");
  const Wire wire = GENERATE(Wire::kFloat32, Wire::kFloat16, Wire::kBfloat16, Wire::kShared);
  CAPTURE(algorithm, consistency, static_cast<int>(wire));
  const v1::ModelSpec spec = MakeSpec(algorithm, kFloats, consistency);
  const LogFolder folder;
  auto log = OpenLog(folder.path());
  LogRecorder recorder(log.get());
  const auto live = MakeShared(spec, {.recorder = &recorder, .journal = true});
  std::minstd_rand random(1);
  Initialize(live.get(), Random(&random));
  std::vector<std::unique_ptr<ModelWorker>> workers;
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<ModelWorker>(live.get(), absl::StrCat("w", i)));
    workers.back()->set_buffers([wire](Vector floats) { return MakeBufferOf(wire, std::move(floats)); });
  }
  std::vector<absl::Status> failed(kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i, seed = random()] {
      std::minstd_rand mine(seed);
      Outcome outcome = workers[i]->Pull();
      for (int window = 0; window < 3 && outcome.status.ok(); ++window) {
        outcome = workers[i]->Exchange(Random(&mine));
        if (window < 2) workers[i]->Acknowledge();
      }
      failed[i] = outcome.status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : failed) REQUIRE(status == absl::OkStatus());
  // A round that is under way.
  const bool sync = consistency == "sync";
  if (sync) workers[0]->Start(Random(&random));
  REQUIRE(Await([&] { return log->state().waiting == 0; }));
  const LogFolder copy;
  std::filesystem::copy(folder.path(), copy.path(), std::filesystem::copy_options::recursive);

  const auto again = MakeShared(spec, {});
  OpenLog(copy.path(), again.get());
  CheckSame(TakeWhole(live.get()), TakeWhole(again.get()));
  for (int i = sync ? 1 : 0; i < kWorkers; ++i) {
    // Answered once more, as a retry would be.
    const ExchangeCall call{.caller = workers[i]->caller(), .sequence = workers[i]->sequence(), .pull = true};
    const auto ask = [&](Model* model) {
      const auto answer = std::make_shared<std::promise<ExchangeAnswer>>();
      model->Await(call, [answer](ExchangeAnswer got) { answer->set_value(std::move(got)); });
      return answer->get_future().get();
    };
    const ExchangeAnswer first = ask(live.get());
    const ExchangeAnswer second = ask(again.get());
    CHECK(first.status == second.status);
    CHECK(second.committed);
    CHECK(first.version == second.version);
    REQUIRE((first.center == nullptr) == (second.center == nullptr));
    if (first.center == nullptr) continue;
    CHECK((BytesOf(first.center->snapshot->blocks) == BytesOf(second.center->snapshot->blocks)));
  }
  if (!sync) return;
  // It ends with the same center.
  for (int i = 1; i < kWorkers; ++i) {
    const ExchangeCall call{.caller = workers[i]->caller(),
                            .sequence = workers[i]->sequence() + 1,
                            .base_version = workers[i]->base_version(),
                            .floats = kFloats};
    const Vector floats = Random(&random);
    if (algorithm == "adaptive_adag") continue;
    for (Model* const model : {live.get(), again.get()}) {
      model->Exchange(call, MakeBuffer(floats), Reservation(), [](const ExchangeAnswer&) {});
    }
  }
  if (algorithm == "adaptive_adag") {
    workers[0]->Cancel();
    return;
  }
  CHECK(workers[0]->End().status == absl::OkStatus());
  CheckSame(TakeWhole(live.get()), TakeWhole(again.get()));
}

TEST_CASE("A commit that can't be written is not acknowledged, and is once there is room") {
  FakeClock clock;
  Budget budget({.clock = &clock});
  const LogFolder folder;
  auto log = OpenLog(folder.path());
  LogRecorder recorder(log.get());
  const auto model = MakeShared(MakeSpec("downpour", 20'000),
                                {.clock = &clock, .budget = &budget, .recorder = &recorder, .journal = true});
  Initialize(model.get(), Vector(20'000, 1));
  ModelWorker worker(model.get(), "w");
  worker.set_wait(absl::Seconds(5));
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  rlimit low = old;
  low.rlim_cur = 100'000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);

  Reservation room = budget.TryReserve(model->RoomToReceive(sizeof(float), /*shared=*/false, /*pull=*/true));
  worker.Start(Vector(20'000, 1));
  REQUIRE(Await([&] { return !log->state().problem.ok(); }));
  CHECK(worker.waiting());
  // Meanwhile its retry is no better off, but knows why.
  clock.Advance(absl::Seconds(6));
  model->Tick();
  Outcome outcome = worker.End();
  CHECK(outcome.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(outcome.committed);
  CHECK(absl::StrContains(outcome.status.message(), "in the center, but not on disk yet: "));
  worker.StartRetry();
  CHECK(worker.waiting());

  REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
  signal(SIGXFSZ, handler);
  outcome = worker.End();
  CHECK(outcome.status == absl::OkStatus());
  CHECK(outcome.version == 1);
  room.Release();
}

TEST_CASE("What waits for the disk keeps the room that it was given, and gives it back then") {
  Budget budget;
  const LogFolder folder;
  auto log = OpenLog(folder.path());
  LogRecorder recorder(log.get());
  const auto model =
      MakeShared(MakeSpec("aeasgd", kFloats), {.budget = &budget, .recorder = &recorder, .journal = true});
  Initialize(model.get(), Vector(kFloats, 1));
  ModelWorker worker(model.get(), "w");
  // The log's thread is kept busy.
  std::promise<void> go_on;
  log->Append("", {}, [&](const absl::Status&) { go_on.get_future().wait(); });
  const uint64_t room = model->RoomToReceive(/*float_bytes=*/2, /*shared=*/false, /*pull=*/true);
  CHECK(room == kFloats * (sizeof(float) + 2));
  const ExchangeCall call{.caller = worker.caller(), .sequence = 1, .base_version = 0, .floats = kFloats, .pull = true};
  const auto answer = std::make_shared<std::promise<ExchangeAnswer>>();
  model->Exchange(call, MakeBufferOf(Wire::kFloat16, Vector(kFloats, 1)), budget.TryReserve(room),
                  [answer](ExchangeAnswer got) { answer->set_value(std::move(got)); });
  CHECK(budget.used_bytes(BudgetKind::kInFlight) == room);
  go_on.set_value();
  const ExchangeAnswer got = answer->get_future().get();
  CHECK(got.status == absl::OkStatus());
  // The center as it was, until it is acknowledged.
  REQUIRE(Await([&] { return budget.used_bytes(BudgetKind::kInFlight) == kFloats * sizeof(float); }));
  model->Acknowledge(worker.caller(), 1);
}

TEST_CASE("A round whose end did not get to the disk ends when the model has come back") {
  const v1::ModelSpec spec = MakeSpec("downpour", 1, "sync");
  const LogFolder folder;
  {
    auto log = OpenLog(folder.path());
    LogRecorder recorder(log.get());
    const auto live = MakeShared(spec, {.recorder = &recorder, .journal = true});
    Initialize(live.get(), {0});
    ModelWorker a(live.get(), "a");
    ModelWorker b(live.get(), "b");
    a.Start({1});
    b.Start({2});
    REQUIRE(a.End().status.ok());
    REQUIRE(b.End().status.ok());
  }
  const auto again = MakeShared(spec, {});
  const auto state = Log::Read(
      folder.path(),
      [&](const LogRecord& record) {
        state::Record what;
        REQUIRE(what.ParseFromArray(record.head.data(), static_cast<int>(record.head.size())));
        return what.has_round_end() ? absl::OkStatus() : again->Replay(what, record);
      },
      nullptr);
  REQUIRE(state.ok());
  again->ComeBack();
  CHECK(again->Describe().version() == 0);
  again->Tick();
  CHECK(again->Describe().version() == 2);
  CHECK(Floats(*TakeSnapshot(again.get())) == Vector{3});
}

TEST_CASE("A record that does not follow from those before is not applied") {
  const auto model = MakeShared(MakeSpec("downpour", 2), {});
  const Vector floats{1, 2};
  const LogRecord record{.position = 1, .payload = {reinterpret_cast<const char*>(floats.data()), 8}};
  state::Record what;
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kInvalidArgument);
  what.mutable_commit()->set_worker("w");
  what.mutable_commit()->set_incarnation(1);
  what.mutable_commit()->set_nonce(1);
  what.mutable_commit()->set_sequence(1);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kDataLoss);
  Initialize(model.get(), {0, 0});
  what.mutable_commit()->set_version(1);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kDataLoss);
  what.mutable_commit()->set_version(0);
  what.mutable_commit()->set_encoding(v1::FLOAT16);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kInvalidArgument);
  what.mutable_commit()->set_encoding(77);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kInvalidArgument);
  what.mutable_commit()->set_encoding(v1::FLOAT32);
  what.mutable_commit()->set_contribution(true);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kDataLoss);
  what.mutable_round_end()->set_version(1);
  CHECK(model->Replay(what, record).code() == absl::StatusCode::kDataLoss);
  CHECK(Floats(*TakeSnapshot(model.get())) == Vector{0, 0});
}

// Runs until it is killed; writes a worker's number for each of its commits that was acknowledged.
[[noreturn]] void TrainUntilKilled(const v1::ModelSpec& spec, const std::string& path, uint64_t incarnation,
                                   int acknowledgements) {
  auto log = Log::Open(path, {.segment_bytes = 20'000}, [](const LogRecord&) { return absl::OkStatus(); });
  if (!log.ok()) _exit(3);
  LogRecorder recorder(log->get());
  const auto model =
      std::make_shared<Model>(*CheckSpec(spec, 1 << 20), ModelOptions{.recorder = &recorder, .journal = true});
  const auto state = Log::Read(
      path,
      [&](const LogRecord& record) {
        state::Record what;
        if (!what.ParseFromArray(record.head.data(), static_cast<int>(record.head.size()))) _exit(4);
        return model->Replay(what, record);
      },
      nullptr);
  if (!state.ok()) _exit(5);
  if (!model->Describe(false).initialized()) {
    if (!TryInitialize(model.get(), MakeBuffer(Vector(kWorkers, 0))).ok()) _exit(6);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      ModelWorker worker(model.get(), absl::StrCat("w", i), incarnation);
      Vector delta(kWorkers, 0);
      delta[i] = 1;
      while (true) {
        if (!worker.Commit(delta).status.ok()) _exit(7);
        const char number = static_cast<char>(i);
        if (write(acknowledgements, &number, 1) != 1) _exit(8);
      }
    });
  }
  threads[0].join();
  _exit(9);
}

TEST_CASE(
    "After a kill -9 each acknowledged commit is in the center once, and at most one of each worker that was not") {
  const std::string consistency = GENERATE("async", "bounded:2", "sync");
  CAPTURE(consistency);
  const v1::ModelSpec spec = MakeSpec("downpour", kWorkers, consistency);
  const LogFolder folder;
  std::vector<float> acknowledged(kWorkers, 0);
  constexpr int kKills = 6;
  for (int kill_number = 1; kill_number <= kKills; ++kill_number) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) TrainUntilKilled(spec, folder.path(), kill_number, ends[1]);
    close(ends[1]);
    char number = 0;
    for (int i = 0; read(ends[0], &number, 1) == 1; ++i) {
      ++acknowledged[static_cast<size_t>(number)];
      if (i == 20 + 17 * kill_number) kill(child, SIGKILL);
    }
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    INFO("ended with " << (WIFEXITED(status) ? WEXITSTATUS(status) : 0));
    REQUIRE(WIFSIGNALED(status));

    const auto model = MakeShared(spec, {});
    OpenLog(folder.path(), model.get());
    const ModelImage whole = TakeWhole(model.get());
    REQUIRE(whole.image.has_value());
    Vector applied = Floats(*TakeSnapshot(model.get()));
    if (whole.image->folded > 0) {
      for (int i = 0; i < kWorkers; ++i) applied[i] += whole.image->sum[0].floats()[i];
    }
    for (int i = 0; i < kWorkers; ++i) {
      CHECK(applied[i] >= acknowledged[i]);
      CHECK(applied[i] <= acknowledged[i] + static_cast<float>(kill_number));
    }
  }
}

}  // namespace
}  // namespace paramd::testing
