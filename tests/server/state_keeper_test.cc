// Models that outlive their daemon: every algorithm, every consistency.
#include "server/state_keeper.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "server/commit_check.h"
#include "state/model_file.h"
#include "tests/support/await.h"
#include "tests/support/fake_clock.h"
#include "tests/support/model_worker.h"
#include "tests/support/process.h"

namespace paramd::testing {
namespace {

namespace fs = std::filesystem;
using Floats32 = std::vector<float>;

// A folder of this test's own, gone at the end.
class Folder {
 public:
  Folder() : path_(TemporaryPath("state")) { fs::remove_all(path_); }
  // What is on the disk now. Of what its daemon removes meanwhile there is no copy: once more.
  explicit Folder(const Folder& other) : Folder() {
    std::error_code error;
    do {
      fs::remove_all(path_);
      fs::copy(other.path_, path_, fs::copy_options::recursive, error);
    } while (error == std::errc::no_such_file_or_directory);
    REQUIRE_FALSE(error);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::vector<fs::path> checkpoints() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  const std::string path_;
};

// What a daemon is without its transport.
struct Host {
  explicit Host(const Folder& folder, StateOptions options = {.every = absl::InfiniteDuration()},
                size_t max_workers = 10'000) {
    options.dir = folder.path();
    options.say = [this](bool error, const std::string& line) {
      MutexLock lock(&mutex);
      if (error) errors.push_back(line);
    };
    auto opened = StateKeeper::Open(options);
    status = opened.status();
    if (!status.ok()) return;
    keeper = *std::move(opened);
    ModelsOptions model_options;
    model_options.model.recorder = keeper.get();
    model_options.model.journal = options.durability == Durability::kJournal;
    model_options.model.clock = &clock;
    model_options.model.max_workers = max_workers;
    model_options.daemon_id = keeper->daemon_id();
    models = std::make_unique<Models>(model_options);
    status = keeper->Start(models.get());
  }
  ~Host() {
    if (keeper != nullptr) {
      keeper->Finish();
      // What it still tells models it tells none that are going.
      keeper->StopLog();
    }
    models.reset();
  }

  std::shared_ptr<Model> Find(const std::string& name) const {
    auto model = models->Find(name);
    INFO(model.status());
    REQUIRE(model.ok());
    return *model;
  }
  absl::Status AwaitDurable(const std::string& name) const {
    std::promise<absl::Status> done;
    keeper->AwaitDurable(Find(name), [&](const absl::Status& s) { done.set_value(s); });
    return done.get_future().get();
  }
  absl::Status Checkpoint() const {
    std::promise<absl::Status> done;
    keeper->Checkpoint(models->List(), [&](const absl::Status& s) { done.set_value(s); });
    return done.get_future().get();
  }
  absl::Status Delete(const std::string& name) const {
    Models::Deleted deleted;
    if (auto deleting = models->Delete(name, &deleted); !deleting.ok()) return deleting;
    std::promise<absl::Status> done;
    keeper->Remove(deleted, [&](const absl::Status& s) { done.set_value(s); });
    return done.get_future().get();
  }
  std::vector<std::string> Errors() const {
    MutexLock lock(&mutex);
    return errors;
  }

  absl::Status Restore(int64_t version, const std::string& as = "") const {
    v1::RestoreModelRequest request;
    request.set_model("m");
    request.set_version(version);
    request.set_as(as);
    std::promise<absl::Status> done;
    keeper->Restore(request, [&](const absl::Status& s) { done.set_value(s); });
    return done.get_future().get();
  }

  FakeClock clock;
  mutable Mutex mutex;
  std::vector<std::string> errors;
  absl::Status status;
  std::unique_ptr<StateKeeper> keeper;
  std::unique_ptr<Models> models;
};

// Somebody who has joined, before a restart or after.
struct Participant {
  Caller caller;
  uint64_t sequence = 0;
  int64_t base_version = -1;
};

Participant Join(const Host& host, const std::string& model, const std::string& worker, uint64_t nonce = 7) {
  v1::JoinRequest request;
  request.set_model(model);
  request.set_worker(worker);
  request.set_nonce(nonce);
  const auto joined = host.models->Join(request);
  INFO(joined.status());
  REQUIRE(joined.ok());
  return {.caller = {.worker = worker, .incarnation = joined->incarnation(), .nonce = nonce}};
}

// An exchange whose answer may come later, and on another thread.
class Exchange {
 public:
  Exchange(Model* model, Participant* who, Floats32 commit) {
    const ExchangeCall call{.caller = who->caller,
                            .sequence = ++who->sequence,
                            .base_version = who->base_version,
                            .floats = commit.size(),
                            .pull = false};
    auto answered = std::make_shared<std::promise<ExchangeAnswer>>();
    coming_ = answered->get_future();
    model->Exchange(call, MakeBuffer(std::move(commit)), Reservation(),
                    [answered](ExchangeAnswer answer) { answered->set_value(std::move(answer)); });
  }
  const ExchangeAnswer& answer() {
    if (!answer_.has_value()) {
      REQUIRE(coming_.wait_for(absl::ToChronoMilliseconds(kAwaitTimeout)) == std::future_status::ready);
      answer_ = coming_.get();
    }
    INFO(answer_->status);
    return *answer_;
  }

 private:
  std::future<ExchangeAnswer> coming_;
  std::optional<ExchangeAnswer> answer_;
};

void Pull(Model* model, Participant* who) {
  std::promise<ExchangeAnswer> answered;
  model->Pull({.caller = who->caller, .pull = true}, Reservation(),
              [&](ExchangeAnswer given) { answered.set_value(std::move(given)); });
  const ExchangeAnswer answer = answered.get_future().get();
  INFO(answer.status);
  REQUIRE(answer.status.ok());
  who->base_version = answer.version;
}

Floats32 Center(Model* model) { return Floats(*TakeSnapshot(model)); }

// Without what depends on the time.
std::string Description(const Model& model) {
  v1::ModelInfo info = model.Describe();
  info.clear_training_time_s();
  info.clear_pinned_bytes();
  info.clear_waiting_workers();
  for (v1::WorkerInfo& worker : *info.mutable_workers()) {
    worker.clear_lease_remaining_s();
    worker.clear_waiting();
  }
  return info.SerializeAsString();
}

TEST_CASE("Every algorithm with every consistency goes on after a restart as if there had been none") {
  for (const Algorithm* algorithm : ListAlgorithms()) {
    const auto checked = CheckSpec(MakeSpec(algorithm->name, 1), UINT64_MAX);
    if (!checked.ok()) continue;  // one without a server
    const auto half = algorithm->make_server(checked->hyperparameters);
    for (const std::string consistency : {"async", "bounded:1", "sync"}) {
      // Other tests of this program bring algorithms that throw.
      if (half->own_centers() || absl::StrContains(algorithm->name, "throw")) continue;
      const v1::ModelSpec spec = MakeSpec(algorithm->name, kBlockFloats + 2, consistency);
      INFO(algorithm->name << " " << consistency);
      const bool sync = consistency == "sync";
      Folder folder;
      Host before(folder);
      REQUIRE(before.status.ok());
      REQUIRE(before.models->Create(spec).ok());
      const auto model = before.Find("m");
      Initialize(model.get(), Floats32(kBlockFloats + 2, 0.5f));
      Participant a = Join(before, "m", "a");
      Participant b = Join(before, "m", "b", 8);
      const auto exchange_both = [&](Model* in, Participant* one, Participant* other, float value) {
        Pull(in, one);
        Pull(in, other);
        Exchange first(in, one, Floats32(kBlockFloats + 2, value));
        Exchange second(in, other, Floats32(kBlockFloats + 2, 2 * value));
        CHECK(first.answer().status.ok());
        CHECK(second.answer().status.ok());
      };
      exchange_both(model.get(), &a, &b, 1);
      Pull(model.get(), &a);
      Pull(model.get(), &b);
      // In the middle of a round, or of a window.
      std::optional<Exchange> open;
      open.emplace(model.get(), &a, Floats32(kBlockFloats + 2, 3));
      REQUIRE(before.Checkpoint().ok());

      // As after a kill: nothing more of this daemon comes to the copy.
      const Folder copied(folder);
      Host after(copied);
      REQUIRE(after.status.ok());
      CHECK(after.keeper->daemon_id() == before.keeper->daemon_id());
      const auto restored = after.Find("m");
      CHECK(restored->id() == model->id());
      CHECK(Description(*restored) == Description(*model));
      CHECK((Center(restored.get()) == Center(model.get())));
      Participant a2 = a;
      Participant b2 = b;
      // The duplicate check: the last commit again.
      Participant retrying = a2;
      --retrying.sequence;
      Exchange again(restored.get(), &retrying, Floats32(kBlockFloats + 2, 3));
      if (!sync) CHECK(again.answer().committed);
      if (half->needs_base()) {
        Participant stale = b2;
        Exchange refused(restored.get(), &stale, Floats32(kBlockFloats + 2, 1));
        CHECK(IsPullAgain(refused.answer().status));
      }
      if (sync) {
        // The round waits for b, as it did.
        Exchange last(model.get(), &b, Floats32(kBlockFloats + 2, 5));
        if (half->needs_base()) Pull(restored.get(), &b2);
        Exchange last2(restored.get(), &b2, Floats32(kBlockFloats + 2, 5));
        CHECK(last.answer().status.ok());
        CHECK(last2.answer().status.ok());
        CHECK(again.answer().committed);
        CHECK(again.answer().version == open->answer().version);
      } else {
        Exchange(model.get(), &b, Floats32(kBlockFloats + 2, 5));
        if (half->needs_base()) {
          // Told to pull, it commits from there.
          Pull(model.get(), &b);
          Pull(restored.get(), &b2);
        }
        if (!half->needs_base()) Exchange(restored.get(), &b2, Floats32(kBlockFloats + 2, 5));
        if (half->needs_base()) continue;
      }
      exchange_both(model.get(), &a, &b, 7);
      exchange_both(restored.get(), &a2, &b2, 7);
      CHECK((Center(restored.get()) == Center(model.get())));
      CHECK(restored->Describe().version() == model->Describe().version());
    }
  }
}

TEST_CASE("Who has joined, left or was fenced stays so after a kill, without any checkpoint since") {
  Folder folder;
  Host before(folder);
  REQUIRE(before.status.ok());
  REQUIRE(before.models->Create(MakeSpec("downpour", 2)).ok());
  REQUIRE(before.AwaitDurable("m").ok());
  const size_t files = folder.checkpoints().size();
  const Participant fenced = Join(before, "m", "a", 1);
  const Participant a = Join(before, "m", "a", 2);
  const Participant b = Join(before, "m", "b", 3);
  REQUIRE(before.Find("m")->Leave(b.caller, "out of memory").ok());
  REQUIRE(before.AwaitDurable("m").ok());
  CHECK(folder.checkpoints().size() == files);

  const Folder copied(folder);
  Host after(copied);
  REQUIRE(after.status.ok());
  const auto model = after.Find("m");
  CHECK(model->Heartbeat(a.caller).ok());
  CHECK(absl::IsAborted(model->Heartbeat(fenced.caller)));
  CHECK(absl::IsFailedPrecondition(model->Heartbeat(b.caller)));
  CHECK(Join(after, "m", "a", 4).caller.incarnation == 3);
  CHECK(Description(*after.Find("m")) != Description(*before.Find("m")));
}

TEST_CASE("A deleted model stays deleted, and one of its name that comes later is another one") {
  Folder folder;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("downpour", 2)).ok());
    REQUIRE(host.AwaitDurable("m").ok());
    CHECK(folder.checkpoints().size() == 1);
    REQUIRE(host.Delete("m").ok());
    CHECK(folder.checkpoints().empty());
  }
  Host again(folder);
  REQUIRE(again.status.ok());
  CHECK(absl::IsNotFound(again.models->Find("m").status()));
}

TEST_CASE("A second daemon on the same folder is refused while the first lives") {
  Folder folder;
  {
    Host first(folder);
    Host second(folder);
    CHECK(absl::IsFailedPrecondition(second.status));
    CHECK(absl::StrContains(second.status.message(), "another daemon"));
  }
  CHECK(Host(folder).status.ok());
}

TEST_CASE("A damaged newest checkpoint falls back to the one before and says so; with none left the start fails") {
  Folder folder;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("downpour", 2)).ok());
    const auto model = host.Find("m");
    Initialize(model.get(), {0, 0});
    Participant a = Join(host, "m", "a");
    for (float i = 1; i <= 5; ++i) {
      Exchange(model.get(), &a, {1, 1});
      REQUIRE(host.Checkpoint().ok());
    }
  }
  REQUIRE(folder.checkpoints().size() == 3);  // the last ones
  const auto damage = [](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('\x5a');
  };
  damage(folder.checkpoints()[2]);
  {
    Host host(folder);
    REQUIRE(host.status.ok());
    CHECK(Center(host.Find("m").get()) == Floats32{4, 4});
    REQUIRE(host.Errors().size() == 2);
    CHECK(absl::StrContains(host.Errors()[0], "checkpoint_damaged"));
    CHECK(absl::StrContains(host.Errors()[0], folder.checkpoints()[2].filename().string()));
    CHECK(absl::StrContains(host.Errors()[1], "checkpoint_fallback"));
    // What its worker had pulled since is unknown here.
    Participant a{.caller = {.worker = "a", .incarnation = 1, .nonce = 7}, .sequence = 9, .base_version = 5};
    Exchange lost(host.Find("m").get(), &a, {1, 1});
    CHECK(IsPullAgain(lost.answer().status));
    Pull(host.Find("m").get(), &a);
    CHECK(Exchange(host.Find("m").get(), &a, {1, 1}).answer().status.ok());
  }
  for (const fs::path& file : folder.checkpoints()) damage(file);
  CHECK(absl::IsDataLoss(Host(folder).status));
}

TEST_CASE("Every single byte of a checkpoint that changes is noticed") {
  Folder folder;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("downpour", 3)).ok());
    Initialize(host.Find("m").get(), {1, 2, 3});
    Join(host, "m", "a");
    REQUIRE(host.Checkpoint().ok());
  }
  const std::string path = folder.checkpoints().back();
  const std::string good = ReadFile(path);
  REQUIRE(ModelFile::Open(path)->Verify().ok());
  const std::string changed_path = folder.path() + "/changed";
  size_t missed = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x20', '\xff'}) {
      std::string changed = good;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      std::ofstream(changed_path, std::ios::binary) << changed;
      const auto file = ModelFile::Open(changed_path);
      if (file.ok() && file->Verify().ok() && file->has_record()) ++missed;
    }
  }
  CHECK(missed == 0);
  for (size_t length = 0; length < good.size(); ++length) {
    std::ofstream(changed_path, std::ios::binary) << good.substr(0, length);
    if (ModelFile::Open(changed_path).ok()) ++missed;
  }
  CHECK(missed == 0);
}

TEST_CASE("An ensemble comes back with its members, each its worker's, also after one was deleted") {
  Folder folder;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("ensemble", 2)).ok());
    Initialize(host.Find("m").get(), {1, 2});
    for (const std::string worker : {"x", "y", "z"}) Join(host, "m", worker);
    for (const std::string member : {"m/0", "m/1", "m/2"}) REQUIRE(host.AwaitDurable(member).ok());
    REQUIRE(host.Delete("m/1").ok());
  }
  Host host(folder);
  INFO(host.status);
  REQUIRE(host.status.ok());
  const auto member_of = [&](const std::string& worker) {
    v1::JoinRequest request;
    request.set_model("m");
    request.set_worker(worker);
    request.set_nonce(9);
    const auto joined = host.models->Join(request);
    REQUIRE(joined.ok());
    return joined->model().spec().name();
  };
  CHECK(member_of("z") == "m/2");
  CHECK(member_of("x") == "m/0");
  CHECK(member_of("y") == "m/1");
  CHECK(member_of("new") == "m/3");
  CHECK(Center(host.Find("m/3").get()) == Floats32{1, 2});
}

TEST_CASE("Names that lead out of the folder, and very long ones, are kept in it") {
  Folder folder;
  const std::vector<std::string> names = {"..", "../../up", "a/b", "/etc/passwd", std::string(256, '/'), ".hidden"};
  {
    Host host(folder);
    for (const std::string& name : names) {
      v1::ModelSpec spec = MakeSpec("downpour", 1);
      spec.set_name(name);
      REQUIRE(host.models->Create(spec).ok());
      REQUIRE(host.AwaitDurable(name).ok());
    }
    CHECK(folder.checkpoints().size() == names.size());
  }
  Host host(folder);
  REQUIRE(host.status.ok());
  for (const std::string& name : names) CHECK(host.models->Find(name).ok());
}

TEST_CASE("What workers reported, and which names are forgotten, comes back") {
  Folder folder;
  v1::ReportHistoryRequest report;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
    const Participant a = Join(host, "m", "a");
    report.mutable_participant()->set_worker("a");
    report.mutable_participant()->set_incarnation(a.caller.incarnation);
    report.mutable_participant()->set_nonce(a.caller.nonce);
    report.add_metric_names("accuracy");
    report.set_batch(1);
    for (uint64_t step = 1; step <= 3; ++step) {
      v1::HistoryRecord* const record = report.add_records();
      record->set_step(step);
      record->set_loss(0.5);
      record->add_metrics(0.9);
    }
    REQUIRE(host.Find("m")->Report(report).ok());
  }
  Host host(folder);
  REQUIRE(host.status.ok());
  // The same batch again is kept once.
  REQUIRE(host.Find("m")->Report(report).ok());
  v1::GetHistoryRequest request;
  request.set_model("m");
  const auto history = host.models->ReadHistory(request);
  REQUIRE(history.ok());
  REQUIRE(history->workers_size() == 1);
  CHECK(history->workers(0).records_size() == 3);
  CHECK(history->workers(0).metric_names(0) == "accuracy");
}

// A commit that is answered once it is on disk.
ExchangeAnswer Commit(Model* model, Participant* who, Floats32 commit) {
  const ExchangeCall call{
      .caller = who->caller, .sequence = ++who->sequence, .base_version = who->base_version, .floats = commit.size()};
  std::promise<ExchangeAnswer> done;
  model->Exchange(call, MakeBuffer(std::move(commit)), Reservation(),
                  [&](ExchangeAnswer answer) { done.set_value(std::move(answer)); });
  return done.get_future().get();
}

StateOptions JournalOptions() { return {.durability = Durability::kJournal, .every = absl::InfiniteDuration()}; }

TEST_CASE("A model that is brought back to a checkpoint keeps its id, its workers and its fences, and they pull") {
  for (const Durability durability : {Durability::kCheckpoint, Durability::kJournal}) {
    Folder folder;
    Host host(folder, {.durability = durability, .every = absl::InfiniteDuration()});
    REQUIRE(host.models->Create(MakeSpec("downpour", 2)).ok());
    const auto model = host.Find("m");
    REQUIRE(host.AwaitDurable("m").ok());
    CHECK(absl::IsFailedPrecondition(host.Restore(0)));  // it had no center
    Initialize(model.get(), {0, 0});
    const Participant fenced = Join(host, "m", "a", 1);
    Participant a = Join(host, "m", "a", 2);
    for (int i = 0; i < 2; ++i) {
      Pull(model.get(), &a);
      CHECK(Commit(model.get(), &a, {1, 1}).status.ok());
      REQUIRE(host.Checkpoint().ok());
    }
    Pull(model.get(), &a);
    const auto list = host.keeper->List({model});
    REQUIRE(list.ok());
    CHECK(list->checkpoints_size() == 3);
    CHECK(list->checkpoints(0).version() == 2);

    REQUIRE(host.Restore(1).ok());
    CHECK(host.Find("m") == model);
    CHECK(Center(model.get()) == Floats32{1, 1});
    CHECK(absl::IsAborted(model->Heartbeat(fenced.caller)));
    CHECK(model->Heartbeat(a.caller).ok());
    const auto check_pulls = [&](Model* in, Participant who) {
      CHECK(IsPullAgain(Commit(in, &who, {1, 1}).status));
      Pull(in, &who);
      CHECK(Commit(in, &who, {5, 5}).status.ok());
      CHECK(Center(in) == Floats32{6, 6});
    };
    {
      // As after a kill right then.
      const Folder copied(folder);
      Host again(copied);
      REQUIRE(again.status.ok());
      CHECK(Center(again.Find("m").get()) == Floats32{1, 1});
      check_pulls(again.Find("m").get(), a);
    }
    check_pulls(model.get(), a);
    CHECK(model->Describe().commits() == 3);

    REQUIRE(host.Restore(1, "other").ok());
    const auto other = host.Find("other");
    CHECK(Center(other.get()) == Floats32{1, 1});
    CHECK(other->id() != model->id());
    CHECK(other->Describe().version() == 1);
    REQUIRE(other->Describe().workers_size() == 1);
    CHECK(other->Describe().workers(0).state() == v1::WorkerInfo::LEFT);
    CHECK(other->Describe().workers(0).commits() == 2);
    CHECK_FALSE(other->Heartbeat(a.caller).ok());
    CHECK(absl::IsNotFound(host.Restore(99)));
    CHECK(absl::IsAlreadyExists(host.Restore(1, "other")));
    CHECK(absl::IsInvalidArgument(host.Restore(1, "a\nb")));
    const Folder copied(folder);
    Host again(copied);
    REQUIRE(again.status.ok());
    CHECK(Center(again.Find("m").get()) == (durability == Durability::kJournal ? Floats32{6, 6} : Floats32{1, 1}));
    CHECK(Center(again.Find("other").get()) == Floats32{1, 1});
  }
}

TEST_CASE("A round under way when its model is brought back is over, and whoever waited for it pulls") {
  for (const std::string algorithm : {"downpour", "easgd"}) {
    Folder folder;
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec(algorithm, 2, "sync")).ok());
    const auto model = host.Find("m");
    Initialize(model.get(), {0, 0});
    REQUIRE(host.Checkpoint().ok());
    Participant a = Join(host, "m", "a");
    Participant b = Join(host, "m", "b", 8);
    Pull(model.get(), &a);
    Pull(model.get(), &b);
    Exchange waiting(model.get(), &a, {1, 1});
    REQUIRE(host.Restore(0).ok());
    CHECK(waiting.answer().committed);
    CHECK(IsPullAgain(waiting.answer().status));
    // The next round takes both.
    Pull(model.get(), &a);
    Pull(model.get(), &b);
    Exchange first(model.get(), &a, {2, 2});
    Exchange second(model.get(), &b, {4, 4});
    CHECK(first.answer().status.ok());
    CHECK(second.answer().status.ok());
    CHECK(model->Describe().version() == 2);
    CHECK(model->Describe().rounds() == 1);
  }
}

TEST_CASE("A model that has a problem is well again once it was brought back to before") {
  Folder folder;
  Host host(folder);
  REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
  const auto model = host.Find("m");
  Initialize(model.get(), {3e38f});
  REQUIRE(host.Checkpoint().ok());
  Participant a = Join(host, "m", "a");
  Pull(model.get(), &a);
  Exchange(model.get(), &a, {3e38f});
  CHECK_FALSE(model->Describe().problem().empty());
  REQUIRE(host.Restore(0).ok());
  CHECK(model->Describe().problem().empty());
  Pull(model.get(), &a);
  CHECK(Exchange(model.get(), &a, {-1}).answer().status.ok());
}

TEST_CASE(
    "What was journaled after a checkpoint that is damaged, and does not follow from the one before, is left out") {
  Folder folder;
  {
    Host host(folder, JournalOptions());
    REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
    Initialize(host.Find("m").get(), {0});
    Participant a = Join(host, "m", "a");
    CHECK(Commit(host.Find("m").get(), &a, {1}).status.ok());
    REQUIRE(host.Checkpoint().ok());
    CHECK(Commit(host.Find("m").get(), &a, {1}).status.ok());
  }
  Participant a{.caller = {.worker = "a", .incarnation = 1, .nonce = 7}, .sequence = 2};
  {
    // Without a journal.
    Host host(folder);
    Pull(host.Find("m").get(), &a);
    CHECK(Exchange(host.Find("m").get(), &a, {10}).answer().status.ok());
  }
  const fs::path newest = folder.checkpoints().back();
  Host last(folder, JournalOptions());
  Pull(last.Find("m").get(), &a);
  CHECK(Commit(last.Find("m").get(), &a, {100}).status.ok());
  const Folder copied(folder);
  std::ofstream(copied.path() + newest.string().substr(folder.path().size())) << "damaged";
  for (const float center : {2.0f, 3.0f}) {
    Host host(copied, JournalOptions());
    INFO(host.status);
    REQUIRE(host.status.ok());
    CHECK(Center(host.Find("m").get()) == Floats32{center});
    Participant later{.caller = a.caller, .sequence = 100 + static_cast<uint64_t>(center)};
    Pull(host.Find("m").get(), &later);
    CHECK(Commit(host.Find("m").get(), &later, {1}).status.ok());
    const auto gaps = host.Errors();
    CHECK(std::count_if(gaps.begin(), gaps.end(), [](const auto& line) {
            return absl::StrContains(line, "journal_gap");
          }) == (center == 2 ? 1 : 0));
  }
}

TEST_CASE("Leases that ran out, and workers that came back, are so in a replay") {
  Folder folder;
  Host host(folder, JournalOptions(), /*max_workers=*/2);
  REQUIRE(host.models->Create(MakeSpec("downpour", 1, "bounded:1")).ok());
  REQUIRE(host.AwaitDurable("m").ok());
  const auto model = host.Find("m");
  Initialize(model.get(), {0});
  Participant a = Join(host, "m", "a");
  Participant b = Join(host, "m", "b", 8);
  host.clock.Advance(absl::Seconds(20));
  CHECK(model->Heartbeat(a.caller).ok());
  host.clock.Advance(absl::Seconds(20));
  model->Tick();
  for (int i = 0; i < 5; ++i) CHECK(Commit(model.get(), &a, {1}).status.ok());
  // It is away no longer, and starts beside the slowest.
  CHECK(model->Heartbeat(b.caller).ok());
  const auto clocks = [](const Model& in) {
    std::string text;
    const v1::ModelInfo info = in.Describe();
    for (const v1::WorkerInfo& worker : info.workers()) {
      absl::StrAppend(&text, worker.worker(), " ", worker.clock(), " ", worker.state(), ", ");
    }
    return text;
  };
  CHECK(clocks(*model) == "a 5 1, b 5 1, ");
  CHECK(Commit(model.get(), &a, {1}).status.ok());
  const auto check_replayed = [&] {
    const Folder copied(folder);
    Host after(copied, JournalOptions(), 2);
    INFO(after.status);
    REQUIRE(after.status.ok());
    CHECK(clocks(*after.Find("m")) == clocks(*model));
  };
  check_replayed();
  // Somebody makes room for another one.
  host.clock.Advance(absl::Seconds(20));
  CHECK(model->Heartbeat(b.caller).ok());
  host.clock.Advance(absl::Seconds(20));
  model->Tick();
  Join(host, "m", "c", 9);
  REQUIRE(host.AwaitDurable("m").ok());
  CHECK(model->Describe().workers_size() == 2);
  check_replayed();
  {
    const Folder copied(folder);
    CHECK(Host(copied, JournalOptions(), /*max_workers=*/1).status.ok());
  }
}

TEST_CASE("A model that is at rest holds up no records of others") {
  Folder folder;
  Host host(folder, {.durability = Durability::kJournal, .every = absl::Milliseconds(20)});
  for (const std::string name : {"m", "rest"}) {
    v1::ModelSpec spec = MakeSpec("downpour", 1);
    spec.set_name(name);
    REQUIRE(host.models->Create(spec).ok());
    Initialize(host.Find(name).get(), {0});
    Participant a = Join(host, name, "a");
    for (int i = 0; i < 3; ++i) CHECK(Commit(host.Find(name).get(), &a, {1}).status.ok());
  }
  CHECK(Await([&] { return host.keeper->log()->state().first == 0; }));
}

TEST_CASE("A model whose algorithm has other state vectors than it was saved with is refused, not touched") {
  Folder folder;
  {
    Host host(folder);
    REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
    Initialize(host.Find("m").get(), {0});
    REQUIRE(host.Checkpoint().ok());
  }
  const std::string path = folder.checkpoints().back();
  const auto file = ModelFile::Open(path);
  REQUIRE(file.ok());
  const auto record = file->ReadRecord();
  REQUIRE(record.ok());
  const Floats32 zero = {0};
  REQUIRE(WriteModelFile(path, {.spec = file->spec(), .center = {zero}, .state = {{zero}}, .record = &*record}).ok());
  const Host host(folder);
  CHECK(absl::IsFailedPrecondition(host.status));
  CHECK(absl::StrContains(host.status.message(), "state vectors"));
}

TEST_CASE("Who trained from what never came back is told so after further restarts, too") {
  Folder folder;
  Host first(folder);
  REQUIRE(first.models->Create(MakeSpec("dynsgd", 1)).ok());
  Initialize(first.Find("m").get(), {0});
  Participant a = Join(first, "m", "a");
  Participant b = Join(first, "m", "b", 8);
  REQUIRE(first.Checkpoint().ok());
  const Folder at_start(folder);
  for (int i = 0; i < 5; ++i) CHECK(Exchange(first.Find("m").get(), &b, {1}).answer().status.ok());
  Pull(first.Find("m").get(), &a);
  Host second(at_start);
  REQUIRE(second.status.ok());
  Pull(second.Find("m").get(), &b);
  for (int i = 0; i < 8; ++i) CHECK(Exchange(second.Find("m").get(), &b, {100}).answer().status.ok());
  REQUIRE(second.Checkpoint().ok());
  const Folder further(at_start);
  Host third(further);
  REQUIRE(third.status.ok());
  // Its version 5 and the one here have nothing in common.
  CHECK(a.base_version == 5);
  CHECK(IsPullAgain(Exchange(third.Find("m").get(), &a, {1}).answer().status));
  Pull(third.Find("m").get(), &a);
  CHECK(Exchange(third.Find("m").get(), &a, {1}).answer().status.ok());
}

TEST_CASE("A folder that is gone is told, and nothing is acknowledged until it is back") {
  Folder folder;
  Host host(folder, {.durability = Durability::kJournal, .every = absl::Milliseconds(10)});
  REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
  const auto model = host.Find("m");
  Initialize(model.get(), {0});
  Participant a = Join(host, "m", "a");
  CHECK(Commit(model.get(), &a, {1}).status.ok());
  const std::string elsewhere = folder.path() + ".moved";
  fs::rename(folder.path(), elsewhere);
  std::future<ExchangeAnswer> committed = std::async(std::launch::async, [&] { return Commit(model.get(), &a, {1}); });
  const auto problem = [&] {
    v1::ModelInfo info;
    host.keeper->Describe(model->id(), &info);
    return info.checkpoint_problem();
  };
  CHECK(Await([&] { return !host.keeper->log()->state().problem.ok() && !problem().empty(); }));
  CHECK(absl::StrContains(problem(), "moved or removed"));
  v1::ServerStatus status;
  host.keeper->DescribeLog(&status);
  CHECK(absl::StrContains(status.log_problem(), "moved or removed"));
  fs::rename(elsewhere, folder.path());
  CHECK(committed.get().status.ok());
  CHECK(Await([&] { return problem().empty() && host.keeper->log()->state().problem.ok(); }));
}

TEST_CASE("What a daemon keeps is nobody else's to read or to lock") {
  Folder folder;
  fs::create_directory(folder.path());
  fs::permissions(folder.path(), fs::perms{0755});
  std::ofstream(folder.path() + "/lock") << "1";
  const Host host(folder);
  REQUIRE(host.status.ok());
  for (const char* const kept : {"/lock", "/models", "/log"}) {
    INFO(kept);
    CHECK((fs::status(folder.path() + kept).permissions() & fs::perms{0077}) == fs::perms::none);
  }
}

TEST_CASE("A join that could not be recorded is not taken for durable because later records are") {
  Folder folder;
  Host host(folder);
  REQUIRE(host.models->Create(MakeSpec("downpour", 1000)).ok());
  const auto model = host.Find("m");
  Initialize(model.get(), Floats32(1000));
  Join(host, "m", "a");
  REQUIRE(host.AwaitDurable("m").ok());
  // The system's limit on files stands for a full disk.
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  rlimit low = old;
  low.rlim_cur = 1;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  Join(host, "m", "lost");
  CHECK_FALSE(host.AwaitDurable("m").ok());
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
  signal(SIGXFSZ, handler);
  Join(host, "m", "later");
  REQUIRE(host.AwaitDurable("m").ok());
  const Folder copied(folder);
  Host after(copied);
  REQUIRE(after.status.ok());
  CHECK(after.Find("m")->Describe().workers_size() == 3);
}

TEST_CASE("Files of a deleted model that can't be removed are told, and removed once they can be") {
  Folder folder;
  Host host(folder, {.every = absl::Milliseconds(10)});
  REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
  REQUIRE(host.AwaitDurable("m").ok());
  // It goes there in one step first.
  const fs::path model = folder.checkpoints().front().parent_path();
  const fs::path taken = model.parent_path() / (".removed-" + model.extension().string().substr(1));
  fs::create_directory(taken);
  std::ofstream(taken / "file") << "x";
  const absl::Status status = host.Delete("m");
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK(absl::StrContains(status.message(), "comes back"));
  fs::remove_all(taken);
  CHECK(Await([&] { return !fs::exists(model); }));
}

TEST_CASE("A join is answered once it is on disk, whatever commits have come since") {
  Folder folder;
  Host host(folder, JournalOptions());
  REQUIRE(host.models->Create(MakeSpec("downpour", 1)).ok());
  const auto model = host.Find("m");
  REQUIRE(host.AwaitDurable("m").ok());
  Initialize(model.get(), {0});
  Participant a = Join(host, "m", "a");
  REQUIRE(host.AwaitDurable("m").ok());
  // The log's thread is kept busy between the join's record and the commit's.
  Join(host, "m", "b", 8);
  std::promise<void> reached;
  std::promise<void> go_on;
  host.keeper->log()->Append("", {}, [&](const absl::Status&) {
    reached.set_value();
    go_on.get_future().wait();
  });
  reached.get_future().wait();
  std::future<ExchangeAnswer> committed = std::async(std::launch::async, [&] { return Commit(model.get(), &a, {1}); });
  CHECK(Await([&] { return model->save_point().position > model->save_point().recorded + 1; }));
  CHECK(host.AwaitDurable("m").ok());
  go_on.set_value();
  CHECK(committed.get().status.ok());
}

}  // namespace
}  // namespace paramd::testing
