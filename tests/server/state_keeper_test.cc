// Models that outlive their daemon: every algorithm, every consistency.
#include "server/state_keeper.h"

#include <catch2/catch.hpp>
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
  explicit Folder(const Folder& other) : Folder() { fs::copy(other.path_, path_, fs::copy_options::recursive); }
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
  explicit Host(const Folder& folder, StateOptions options = {.every = absl::InfiniteDuration()}) {
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
    model_options.daemon_id = keeper->daemon_id();
    models = std::make_unique<Models>(model_options);
    status = keeper->Start(models.get());
  }
  ~Host() {
    if (keeper != nullptr) keeper->Finish();
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

// An exchange whose answer may come later.
class Exchange {
 public:
  Exchange(Model* model, Participant* who, Floats32 commit) {
    const ExchangeCall call{.caller = who->caller,
                            .sequence = ++who->sequence,
                            .base_version = who->base_version,
                            .floats = commit.size(),
                            .pull = false};
    model->Exchange(call, MakeBuffer(std::move(commit)), Reservation(),
                    [this](ExchangeAnswer answer) { answer_ = std::move(answer); });
  }
  const ExchangeAnswer& answer() const {
    REQUIRE(answer_.has_value());
    INFO(answer_->status);
    return *answer_;
  }

 private:
  std::optional<ExchangeAnswer> answer_;
};

void Pull(Model* model, Participant* who) {
  ExchangeAnswer answer;
  model->Pull({.caller = who->caller, .pull = true}, Reservation(), [&](ExchangeAnswer given) { answer = given; });
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

}  // namespace
}  // namespace paramd::testing
