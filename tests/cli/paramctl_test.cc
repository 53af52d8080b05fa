// The whole of paramctl against a real server.
#include "client/cli/paramctl.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "algorithms/registry.h"
#include "client/admin.h"
#include "client/cli/verbs.h"
#include "client/worker.h"
#include "server/server.h"
#include "state/safetensors.h"
#include "state/state.pb.h"
#include "tests/support/await.h"
#include "tests/support/memory_limit.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace paramd::cli {
namespace {

struct Result {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// A server, a folder for files, and paramctl to run against them.
class House {
 public:
  explicit House(bool keeps_state = false) {
    std::string path = (std::filesystem::temp_directory_path() / "paramctl_test.XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    folder_ = path;
    auto started = Server::Start({.listen = "127.0.0.1:0", .state = {.dir = keeps_state ? File("state") : ""}});
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }
  ~House() { std::filesystem::remove_all(folder_); }

  Result Run(std::vector<std::string> words) const {
    words.insert(words.begin(), "--server=" + server_->address());
    std::ostringstream out, err;
    Result result;
    result.exit_code = RunParamctl(words, out, err);
    result.out = out.str();
    result.err = err.str();
    return result;
  }

  // Runs what must succeed, and returns what it printed.
  std::string Must(const std::vector<std::string>& words) const {
    const Result result = Run(words);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.empty());
    return result.out;
  }

  nlohmann::json Json(const std::vector<std::string>& words) const {
    auto json = nlohmann::json::parse(Must(words), nullptr, false);
    REQUIRE_FALSE(json.is_discarded());
    return json;
  }

  std::string File(const std::string& name) const { return (folder_ / name).string(); }

  // Writes tensors w [2, 2] and b [1].
  std::string Write(const std::string& name, const std::vector<float>& w, float b) const {
    REQUIRE(WriteSafetensors(File(name), {{"w", {2, 2}, w}, {"b", {1}, absl::MakeConstSpan(&b, 1)}}).ok());
    return File(name);
  }

  std::vector<float> Read(const std::string& name, size_t tensor) const {
    const auto file = SafetensorsFile::Open(File(name));
    REQUIRE(file.ok());
    const auto& entry = file->tensors().at(tensor);
    std::vector<float> values((entry.end - entry.begin) / sizeof(float));
    REQUIRE(file->Read(entry, absl::MakeSpan(values)).ok());
    return values;
  }

  std::unique_ptr<Worker> Join(const std::string& model, const std::string& worker) const {
    auto joined = Worker::Join({.server = server_->address(), .model = model, .worker = worker});
    REQUIRE(joined.ok());
    return *std::move(joined);
  }

  const std::string& address() const { return server_->address(); }

 private:
  std::unique_ptr<Server> server_;
  std::filesystem::path folder_;
};

// "live waiting", for instance; empty if there is no such worker.
std::string FindState(const nlohmann::json& model, const std::string& name) {
  for (const auto& worker : model["workers"]) {
    if (worker["worker"] != name) continue;
    return worker["state"].get<std::string>() + (worker["waiting"].get<bool>() ? " waiting" : "");
  }
  return "";
}

TEST_CASE("A model lives from create to delete") {
  const House house;
  CHECK(house.Must({"list"}) == "no models\n");
  CHECK(house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:2x2", "--tensor", "b:1", "--set",
                    "learning_rate=0.25", "--consistency=bounded:3"}) ==
        "created m: downpour, bounded:3, 5 parameters\n");

  const auto shown = house.Json({"show", "m", "--json"});
  CHECK(shown["name"] == "m");
  CHECK(shown["algorithm"] == "downpour");
  CHECK(shown["hyperparameters"]["learning_rate"] == 0.25);
  CHECK(shown["consistency"] == "bounded:3");
  CHECK(shown["version"] == 0);
  CHECK(shown["initialized"] == false);
  CHECK(shown["tensors"] == nlohmann::json::parse(R"([{"name":"w","shape":[2,2]},{"name":"b","shape":[1]}])"));
  CHECK(shown["workers"].empty());

  CHECK_THAT(house.Must({"list"}), Catch::Contains("m      downpour"));
  CHECK(house.Json({"--json", "list"}).size() == 1);
  CHECK_THAT(house.Must({"status"}), Catch::Contains("downpour"));
  CHECK(house.Must({"delete", "m"}) == "deleted m\n");
  CHECK(house.Json({"status", "--json"})["models"].empty());
}

TEST_CASE("A center goes in from a file, is committed to, and comes out into a file") {
  const House house;
  CHECK_THAT(house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)}),
             Catch::Contains("5 parameters, initialized from "));
  CHECK(house.Json({"show", "m", "--json"})["tensors"][0]["name"] == "w");

  const std::string delta = house.Write("delta", {0.5f, 0, 0, -1}, 10);
  CHECK_THAT(house.Must({"commit", "m", delta, "--worker=by-hand"}),
             Catch::EndsWith("to m as by-hand (incarnation 1): version 1, staleness 0\n"));
  const auto again = house.Json({"commit", "m", delta, "--worker=by-hand", "--json"});
  CHECK(again["version"] == 2);
  CHECK(again["incarnation"] == 2);

  CHECK_THAT(house.Must({"pull", "m", house.File("out")}), Catch::StartsWith("pulled version 2 of m (20 B) to "));
  CHECK(house.Read("out", 0) == std::vector<float>{2, 2, 3, 2});
  CHECK(house.Read("out", 1) == std::vector<float>{25});
  CHECK(SafetensorsFile::Open(house.File("out"))->metadata().at("version") == "2");

  const auto workers = house.Json({"show", "m", "--json"})["workers"];
  REQUIRE(workers.size() == 1);
  CHECK(workers[0]["worker"] == "by-hand");
  CHECK(workers[0]["state"] == "left");
}

// θ += δ + what came before it; so its state counts.
class HeavyHalf : public ServerHalf {
 public:
  int state_vectors() const override { return 2; }
  void Finish(const RoundInfo& /*round*/, const FinishPiece& piece) const override {
    for (size_t i = 0; i < piece.next.size(); ++i) {
      piece.next[i] = piece.center[i] + piece.sum[i] + piece.state[0][i] + 10 * piece.state[1][i];
      piece.state[1][i] = piece.state[0][i];
      piece.state[0][i] = piece.sum[i];
    }
  }
};

class SendingHalf : public WorkerHalf {
 public:
  void MakeCommit(int64_t /*minibatches*/, absl::Span<const float> parameters, absl::Span<const float> /*pulled*/,
                  absl::Span<float> commit) override {
    std::copy(parameters.begin(), parameters.end(), commit.begin());
  }
};

REGISTER_ALGORITHM({.name = "heavy",
                    .description = "of the tests of paramctl",
                    .make_server = [](const Hyperparameters&) { return std::make_unique<HeavyHalf>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<SendingHalf>(); }});

TEST_CASE("A pulled file, or a checkpoint, alone makes exactly that model again, and flags go before what it says") {
  const House house(/*keeps_state=*/true);
  house.Must({"create", "m", "--algorithm=heavy", "--from", house.Write("in", {1, 2, 3, 4}, 5),
              "--consistency=bounded:3", "--set", "learning_rate=0.02"});
  const std::string delta = house.Write("delta", {1, 1, 1, 1}, 1);
  for (int i = 0; i < 3; ++i) house.Must({"commit", "m", delta, "--worker=a"});
  {
    const auto worker = house.Join("m", "reporter");
    const std::vector<StepResult> steps{{.step = 7, .epoch = 0.5, .time_s = 1, .loss = 0.25, .metrics = {0.5}}};
    REQUIRE(worker->Report({"accuracy"}, steps).ok());
    REQUIRE(worker->Leave("out of luck").ok());
  }
  const auto before = house.Json({"show", "m", "--json"});
  CHECK(before["version"] == 3);
  CHECK(before["rounds"] == 3);
  const std::string history = house.Must({"history", "m", "--format=csv"});
  house.Must({"pull", "m", house.File("pulled")});
  const auto checkpoint = house.Json({"checkpoint", "m", "--json"});
  REQUIRE(checkpoint.size() == 1);
  // The same commit again and again leads to the same only from the same state.
  for (int i = 0; i < 2; ++i) house.Must({"commit", "m", delta, "--worker=a"});
  house.Must({"pull", "m", house.File("expected")});
  for (const std::string& file : {house.File("pulled"), checkpoint[0]["file"].get<std::string>()}) {
    for (const std::string name : {"again", "moved"}) {
      INFO(file << " as " << name);
      CHECK_THAT(house.Must({"create", name, "--from", file}), Catch::EndsWith(", version 3\n"));
      const auto after = house.Json({"show", name, "--json"});
      for (const char* const same : {"algorithm", "consistency", "hyperparameters", "tensors", "version", "rounds",
                                     "commits", "rejected", "staleness_histogram", "mean_staleness", "known_workers"}) {
        INFO(same);
        CHECK(after[same] == before[same]);
      }
      REQUIRE(after["workers"].size() == 2);
      CHECK(after["workers"][0]["state"] == "left");
      CHECK(after["workers"][0]["commits"] == 3);
      CHECK(after["workers"][0]["incarnation"] == 3);
      CHECK(after["workers"][1]["message"] == "out of luck");
      CHECK(house.Must({"history", name, "--format=csv"}) == history);
      // Once more changes nothing.
      house.Must({"create", name, "--from", file});
      CHECK(house.Must({"history", name, "--format=csv"}) == history);
      for (int i = 0; i < 2; ++i) house.Must({"commit", name, delta, "--worker=a"});
      CHECK(FindState(house.Json({"show", name, "--json"}), "a") == "left");
      house.Must({"pull", name, house.File("led_to")});
      for (const size_t tensor : {0, 1}) CHECK(house.Read("led_to", tensor) == house.Read("expected", tensor));
      CHECK(house.Json({"show", name, "--json"})["version"] == 5);
      house.Must({"delete", name});
    }
  }
  house.Must({"create", "m2", "--from", house.File("pulled"), "--algorithm=adag"});
  CHECK(house.Json({"show", "m2", "--json"})["algorithm"] == "adag");
  CHECK_THAT(house.Run({"create", "m3", "--from", house.File("pulled"), "--tensor=b:1", "--tensor=w:2x2"}).err,
             Catch::Contains("state vectors are in the order"));

  house.Must({"create", "n", "--from", house.File("pulled"), "--set", "learning_rate=0.5", "--consistency=async"});
  const auto other = house.Json({"show", "n", "--json"});
  CHECK(other["hyperparameters"]["learning_rate"] == 0.5);
  CHECK(other["consistency"] == "async");
  CHECK(other["algorithm"] == "heavy");
}

TEST_CASE("Checkpoints are made, listed and brought back, as the model or as another one") {
  const House house(/*keeps_state=*/true);
  house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  house.Must({"create", "other", "--algorithm=downpour", "--tensor=w:1"});
  house.Must({"commit", "m", house.Write("delta", {1, 1, 1, 1}, 1), "--worker=a"});
  CHECK(house.Json({"show", "m", "--json"})["checkpoint_version"] == 0);
  CHECK_THAT(house.Must({"show", "m"}), Catch::Contains("checkpoint"));
  CHECK_THAT(house.Must({"checkpoint", "m"}), Catch::Contains("-1.safetensors"));
  CHECK(house.Json({"show", "m", "--json"})["checkpoint_version"] == 1);
  CHECK(house.Json({"list", "--json"})[0]["checkpoint_version"] == 1);
  CHECK(house.Json({"status", "--json"})["models"][0]["checkpoint_version"] == 1);
  house.Must({"commit", "m", house.File("delta"), "--worker=a"});
  CHECK(house.Json({"checkpoint", "--all", "--json"}).size() == 2);
  const auto listed = house.Json({"checkpoints", "m", "--json"});
  REQUIRE(listed.size() == 3);
  CHECK(listed[0]["version"] == 2);
  CHECK(listed[1]["version"] == 1);
  CHECK(house.Json({"checkpoints", "--json"}).size() > 3);

  CHECK(house.Must({"restore", "m", "--version=1", "--as=copy"}) == "restored version 1 of m as copy\n");
  CHECK(house.Must({"restore", "m", "--version=1"}) == "restored m to version 1; its workers pull again\n");
  for (const std::string name : {"m", "copy"}) {
    house.Must({"pull", name, house.File("center")});
    CHECK(house.Read("center", 0) == std::vector<float>{2, 3, 4, 5});
  }
  house.Must({"commit", "m", house.File("delta"), "--worker=a"});
  CHECK_THAT(house.Must({"status"}), Catch::Contains("state in " + house.File("state") + ", journal "));
  const auto status = house.Json({"status", "--json"});
  CHECK(status["log_problem"] == "");
  CHECK(status["state_dir"] == house.File("state"));
  CHECK(status["image_bytes"] == 0);

  CHECK(house.Run({"checkpoint"}).exit_code == 2);
  CHECK(house.Run({"checkpoint", "m", "--all"}).exit_code == 2);
  CHECK(house.Run({"checkpoint", "absent"}).exit_code == 1);
  CHECK_THAT(house.Run({"restore", "m", "--version=77"}).err, Catch::Contains("it has some of"));
  const House forgetful;
  CHECK_THAT(forgetful.Run({"checkpoint", "--all"}).err, Catch::Contains("--state_dir"));
  CHECK_THAT(forgetful.Run({"checkpoints"}).err, Catch::Contains("--state_dir"));
  CHECK_THAT(forgetful.Run({"restore", "m"}).err, Catch::Contains("--state_dir"));
}

TEST_CASE("Nobody's past is added to a model that has a center, or is another one, or when it is none") {
  const House house;
  const auto admin = Admin::Connect(house.address());
  REQUIRE(admin.ok());
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1"});
  v1::AddPastRequest request;
  request.set_model("m");
  request.set_model_id((*admin)->GetModel("m")->id());
  const auto add = [&](const auto& fill) {
    state::Checkpoint past;
    fill(&past);
    request.set_past(past.SerializeAsString());
    return (*admin)->AddPast(request);
  };
  CHECK(add([](state::Checkpoint* past) { past->add_members()->set_name("a"); }).ok());
  CHECK(absl::IsInvalidArgument(add([](state::Checkpoint* past) { past->add_members(); })));
  CHECK(absl::IsInvalidArgument(add([](state::Checkpoint* past) {
    past->add_members()->set_name("b");
    past->mutable_members(0)->set_windows(UINT64_MAX);
  })));
  CHECK(absl::IsInvalidArgument(add([](state::Checkpoint* past) {
    past->add_histories()->set_worker("b");
    past->mutable_histories(0)->add_numbers(1);
  })));
  CHECK(absl::IsInvalidArgument(
      add([](state::Checkpoint* past) { past->mutable_statistics()->set_training_time_s(std::nan("")); })));
  CHECK(absl::IsResourceExhausted(add([](state::Checkpoint* past) {
    for (int i = 0; i < 10'000; ++i) past->add_members()->set_name(absl::StrCat(i));
  })));
  request.set_past("\xff");
  CHECK(absl::IsInvalidArgument((*admin)->AddPast(request)));
  CHECK((*admin)->GetModel("m")->workers_size() == 1);
  request.set_model_id(1);
  CHECK(absl::IsAborted((*admin)->AddPast(request)));
  request.set_model_id((*admin)->GetModel("m")->id());
  const std::vector<float> one = {1};
  CHECK(absl::IsInvalidArgument((*admin)->InitializeAt("m", one, {.version = -1, .rounds = 0})));
  CHECK(absl::IsInvalidArgument((*admin)->InitializeAt("m", one, {.version = 0, .rounds = -1})));
  REQUIRE((*admin)->InitializeAt("m", one, {.version = 5, .rounds = 4}).ok());
  request.set_past("");
  CHECK(absl::IsFailedPrecondition((*admin)->AddPast(request)));
  CHECK((*admin)->GetModel("m")->version() == 5);
  CHECK((*admin)->GetModel("m")->rounds() == 4);
}

TEST_CASE("verify looks at a folder without a server, and names what is damaged") {
  const std::string state = TemporaryPath("state");
  {
    const auto server = Server::Start({.listen = "127.0.0.1:0", .state = {.dir = state}});
    REQUIRE(server.ok());
    const auto admin = Admin::Connect((*server)->address());
    v1::ModelSpec spec;
    spec.set_name("m");
    spec.set_algorithm("downpour");
    spec.add_tensors()->set_name("w");
    REQUIRE((*admin)->CreateModel(spec).ok());
  }
  const auto verify = [&](std::string* out) {
    std::ostringstream text;
    std::ostringstream errors;
    const int code = RunParamctl({"verify", state}, text, errors);
    *out = text.str() + errors.str();
    return code;
  };
  std::string out;
  CHECK(verify(&out) == 0);
  CHECK_THAT(out, Catch::Contains("m version 0"));
  // What a server would be told is of no matter.
  setenv("PARAMD_TOKEN_FILE", (state + "/missing").c_str(), 1);
  CHECK(verify(&out) == 0);
  unsetenv("PARAMD_TOKEN_FILE");
  for (const char* const gone : {"/log", "/daemon"}) {
    std::filesystem::rename(state + gone, state + ".kept");
    CHECK(verify(&out) == 1);
    CHECK_THAT(out, Catch::Contains(absl::StrCat("DAMAGED  ", state, gone)));
    std::filesystem::rename(state + ".kept", state + gone);
  }
  CHECK(verify(&out) == 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(state)) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  }
  CHECK(verify(&out) == 1);
  CHECK_THAT(out, Catch::Contains("DAMAGED") && Catch::Contains("was it cut off?"));
  std::filesystem::remove_all(state);
}

TEST_CASE("A file name that is too long is told, naming the file") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  const std::string path = house.File(std::string(300, 'a'));
  const Result result = house.Run({"pull", "m", path});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Catch::Contains(path + ": can't create it: File name too long"));
}

TEST_CASE("A center that there is no memory for is an error") {
  if (!testing::kMemoryCanBeLimited) return testing::Skip("sanitizers need all of the address space");
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1073741824"});
  const testing::MemoryLimit limit(uint64_t{1} << 30);
  const Result result = house.Run({"pull", "m", house.File("out")});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Catch::Contains("there is no memory for it here"));
}

TEST_CASE("With - data go to standard output, and words to standard error") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  house.Must({"pull", "m", house.File("out")});
  std::ifstream file(house.File("out"), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  for (const std::string path : {"-", "/dev/stdout"}) {
    const Result result = house.Run({"pull", "m", path});
    CHECK(result.exit_code == 0);
    CHECK(result.out == bytes);
    CHECK(result.err == "pulled version 0 of m (20 B) to standard output\n");
    CHECK(nlohmann::json::parse(house.Run({"pull", "m", path, "--json"}).err)["file"] == "standard output");
  }
  CHECK_FALSE(std::filesystem::exists("-"));
}

TEST_CASE("With - data come from standard input") {
  const House house;
  const std::string start = house.Write("start", {1, 2, 3, 4}, 5);
  const int own = ::dup(STDIN_FILENO);
  const auto with_input = [&](const std::string& path, const std::vector<std::string>& words) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(::dup2(file, STDIN_FILENO) >= 0);
    ::close(file);
    const std::string out = house.Must(words);
    ::dup2(own, STDIN_FILENO);
    return out;
  };
  CHECK_THAT(with_input(start, {"create", "m", "--algorithm=downpour", "--from=-"}),
             Catch::Contains("initialized from standard input"));
  CHECK_THAT(with_input(start, {"commit", "m", "-", "--worker=w"}), Catch::Contains("committed standard input to m"));
  house.Must({"pull", "m", house.File("out")});
  CHECK(house.Read("out", 0) == std::vector<float>{2, 4, 6, 8});
  ::close(own);
}

TEST_CASE("The center of an ensemble's own name is refused, naming the members") {
  const House house;
  house.Must({"create", "m", "--algorithm=ensemble", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  REQUIRE(house.Join("m", "a")->Leave().ok());
  const Result result = house.Run({"pull", "m", house.File("out")});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Catch::Contains("m/0"));
  CHECK_FALSE(std::filesystem::exists(house.File("out")));
  house.Must({"pull", "m/0", house.File("out")});
}

TEST_CASE("A commit that waits leaves at once when it is interrupted") {
  const House house;
  house.Must(
      {"create", "m", "--algorithm=downpour", "--consistency=sync", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  const auto other = house.Join("m", "other");
  auto waiting = std::async(std::launch::async, [&] {
    return house.Run({"commit", "m", house.Write("delta", {1, 1, 1, 1}, 1), "--worker=by-hand", "--timeout=600"});
  });
  const auto state = [&] { return FindState(house.Json({"show", "m", "--json"}), "by-hand"); };
  REQUIRE(Await([&] { return state() == "live waiting"; }));
  ::kill(::getpid(), SIGINT);
  REQUIRE(waiting.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  const Result result = waiting.get();
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Catch::Contains("may be in the center: interrupted"));
  CHECK(state() == "failed");
}

TEST_CASE("A commit in the background of a script goes on at a Ctrl-C, which is ignored there") {
  const House house;
  house.Must(
      {"create", "m", "--algorithm=downpour", "--consistency=sync", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  const auto other = house.Join("m", "other");
  const auto before = ::signal(SIGINT, SIG_IGN);
  auto waiting = std::async(std::launch::async, [&] {
    return house.Run({"commit", "m", house.Write("delta", {1, 1, 1, 1}, 1), "--worker=by-hand", "--timeout=600"});
  });
  REQUIRE(Await([&] { return FindState(house.Json({"show", "m", "--json"}), "by-hand") == "live waiting"; }));
  ::kill(::getpid(), SIGINT);
  REQUIRE(other->Leave().ok());
  const Result result = waiting.get();
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(::signal(SIGINT, before) == SIG_IGN);
}

TEST_CASE("Status names workers, and every page a model's problem") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1"});
  const auto worker = house.Join("m", "worker-7");
  REQUIRE(worker->Initialize(std::vector<float>{0}, absl::Seconds(60)).ok());
  CHECK_THAT(house.Must({"status"}), Catch::Contains("worker-7") && !Catch::Contains("PROBLEM"));
  for (int i = 0; i < 2; ++i) worker->Commit(std::vector<float>{3e38f}, absl::Seconds(60)).status().IgnoreError();
  for (const std::string verb : {"list", "status"}) CHECK_THAT(house.Must({verb}), Catch::Contains("MODEL  PROBLEM"));
  CHECK_THAT(house.Must({"show", "m"}), Catch::Contains("\nproblem "));
  CHECK_FALSE(house.Json({"show", "m", "--json"})["problem"].empty());
  CHECK_THAT(house.Must({"pull", "m", house.File("m.safetensors")}), Catch::Contains("; it has a problem: "));
}

TEST_CASE("A commit works with an algorithm that needs the center it was made from") {
  const House house;
  house.Must({"create", "m", "--algorithm=adaptive_adag", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  CHECK(house.Json({"commit", "m", house.Write("delta", {1, 1, 1, 1}, 1), "--worker=w", "--json"})["version"] == 1);
}

TEST_CASE("Files that don't fit their model change nothing and say why") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  const std::vector<float> values = {1, 2, 3, 4};
  REQUIRE(WriteSafetensors(house.File("other"), {{"w", {4}, values}}).ok());
  Result result = house.Run({"commit", "m", house.File("other"), "--worker=w"});
  CHECK(result.exit_code == 1);
  CHECK(result.err == "paramctl: " + house.File("other") + ": tensor 'w': its shape is 4, the model's is 2x2\n");
  CHECK(house.Run({"commit", "m", house.File("absent"), "--worker=w"}).exit_code == 1);
  CHECK(house.Json({"show", "m", "--json"})["workers"].empty());

  result = house.Run({"commit", "m", house.Write("nan", {1, NAN, 3, 4}, 5), "--worker=w"});
  CHECK(result.exit_code == 1);
  CHECK(house.Json({"show", "m", "--json"})["version"] == 0);
  CHECK(house.Json({"show", "m", "--json"})["workers"][0]["state"] == "failed");

  result = house.Run({"create", "n", "--algorithm=downpour", "--tensor=w:4", "--from", house.File("in")});
  CHECK(result.exit_code == 1);
  CHECK(house.Json({"list", "--json"}).size() == 1);
  result = house.Run({"create", "m", "--algorithm=downpour", "--from", house.Write("in2", {9, 9, 9, 9}, 9)});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Catch::Contains("did not become its center"));
}

TEST_CASE("The server's refusals are exit code 1, wrong command lines 2") {
  const House house;
  const Result absent = house.Run({"show", "absent"});
  CHECK(absent.exit_code == 1);
  CHECK(absent.out.empty());
  CHECK_THAT(absent.err, Catch::StartsWith("paramctl: ") && Catch::Contains("absent"));
  CHECK(house.Run({"create", "m", "--algorithm=nonsense", "--tensor=w:1"}).exit_code == 1);
  CHECK(house.Run({"create", "m", "--algorithm=adag", "--tensor=w:1", "--set=rho=1"}).exit_code == 1);
  CHECK(house.Run({"create", "m", "--algorithm=adag", "--tensor=w:1", "--consistency=sometimes"}).exit_code == 1);
  CHECK(house.Run({"history", "absent"}).exit_code == 1);
  CHECK(house.Run({"wait", "absent"}).exit_code == 1);

  for (const auto& words : std::vector<std::vector<std::string>>{
           {},
           {"sow", "m"},
           {"show"},
           {"list", "--timeout=soon"},
           {"create", "m", "--algorithm=adag"},
           {"create", "m", "--algorithm=adag", "--tensor=w"},
           {"create", "m", "--algorithm=adag", "--tensor=w:1", "--set=learning_rate"},
           {"create", "m", "--algorithm=adag", "--tensor=w:1", "--set=learning_rate=1", "--set=learning_rate=1"},
           {"history", "m", "--format=xml"},
           {"history", "m", "--format=csv", "--json"},
           {"status", "--watch=0"},
           {"wait", "m", "--workers=0"}}) {
    const Result result = house.Run(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
  CHECK(house.Must({"list"}) == "no models\n");
}

TEST_CASE("A server that can't be reached is exit code 1 by the timeout") {
  std::ostringstream out, err;
  CHECK(RunParamctl({"list", "--server=127.0.0.1:1", "--timeout=0.2"}, out, err) == 1);
  CHECK_THAT(err.str(), Catch::Contains("127.0.0.1:1"));
}

TEST_CASE("An address that can't be is exit code 2 at once, naming the part that is wrong") {
  for (const auto& [address, text] : std::vector<std::pair<std::string, std::string>>{
           {"nonsense", "the port is missing"},
           {"127.0.0.1:70000", "the port '70000' is above 65535"},
           {"127.0.0.1:5000abc", "the port '5000abc' is no number"},
           {"http://127.0.0.1:5000", "the host 'http://127.0.0.1' begins with a scheme"}}) {
    std::ostringstream out, err;
    CHECK(RunParamctl({"list", "--server=" + address}, out, err) == 2);
    CHECK_THAT(err.str(), Catch::Contains(text));
  }
}

TEST_CASE("The server's address may come from the environment") {
  const House house;
  ::setenv("PARAMD_SERVER", house.address().c_str(), 1);
  std::ostringstream out, err;
  CHECK(RunParamctl({"list"}, out, err) == 0);
  ::unsetenv("PARAMD_SERVER");
  CHECK(out.str() == "no models\n");
}

TEST_CASE("Wait ends well when all workers have left") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--from", house.Write("in", {1, 2, 3, 4}, 5)});
  auto first = house.Join("m", "first");
  auto second = house.Join("m", "second");
  auto waiting = std::async(std::launch::async, [&] { return house.Run({"wait", "m", "--workers=2"}); });
  REQUIRE(first->Leave().ok());
  CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  REQUIRE(second->Leave().ok());
  const Result result = waiting.get();
  CHECK(result.exit_code == 0);
  CHECK(result.out == "all 2 workers of m are done; version 0\n");
}

TEST_CASE("Wait names a worker that failed") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1"});
  REQUIRE(house.Join("m", "good")->Leave().ok());
  REQUIRE(house.Join("m", "bad")->Leave("out of memory").ok());
  const Result result = house.Run({"wait", "m"});
  CHECK(result.exit_code == 1);
  CHECK(result.err == "paramctl: 1 of 2 workers of 'm' did not finish: bad failed: out of memory\n");
}

TEST_CASE("Wait gives up at its timeout and says who is live") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1"});
  // The verb alone, so that the short timeout is not also that of the calls.
  const auto admin = Admin::Connect(house.address());
  REQUIRE(admin.ok());
  const auto invocation = ParseArguments(ParamctlSpec(), {"wait", "m", "--timeout=0.05"});
  REQUIRE(invocation.ok());
  std::ostringstream out;
  absl::Status status = Wait(**admin, invocation->arguments, {.out = out, .err = out});
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(status.message()) ==
        "the workers of 'm' were not done after 0.05 s: 0 joined (awaited: at least 1)");
  const auto worker = house.Join("m", "slow");
  status = Wait(**admin, invocation->arguments, {.out = out, .err = out});
  CHECK(std::string(status.message()) ==
        "the workers of 'm' were not done after 0.05 s: 1 joined (awaited: at least 1), still live: slow");
  CHECK(out.str().empty());
}

TEST_CASE("History comes as table, CSV and JSON") {
  const House house;
  house.Must({"create", "m", "--algorithm=downpour", "--tensor=w:1"});
  for (const std::string name : {"a", "b"}) {
    auto worker = house.Join("m", name);
    const std::vector<StepResult> steps{
        {.step = 1, .epoch = 0.5, .time_s = 1, .loss = name == "a" ? 1.0 : 3.0, .metrics = {0.5}}};
    REQUIRE(worker->Report({"accuracy"}, steps).ok());
    REQUIRE(worker->Leave().ok());
  }
  CHECK(house.Must({"history", "m", "--format=csv"}) ==
        "worker,step,epoch,time_s,loss,accuracy\na,1,0.5,1,1,0.5\nb,1,0.5,1,3,0.5\n");
  CHECK(house.Must({"history", "m", "--worker=b", "--format=csv"}) ==
        "worker,step,epoch,time_s,loss,accuracy\nb,1,0.5,1,3,0.5\n");
  CHECK_THAT(house.Must({"history", "m", "--averaged"}), Catch::Contains("mean"));
  const auto json = house.Json({"history", "m", "--averaged", "--json"});
  REQUIRE(json["workers"].size() == 1);
  CHECK(json["workers"][0]["records"][0]["loss"] == 2.0);
}

TEST_CASE("Every algorithm of the server is listed") {
  const House house;
  const auto json = house.Json({"algorithms", "--json"});
  CHECK(json.size() >= 9);
  CHECK_THAT(house.Must({"algorithms"}), Catch::Contains("adag (async): ") && Catch::Contains("learning_rate"));
}

TEST_CASE("Every verb has a help page, which needs no server") {
  std::ostringstream out, err;
  CHECK(RunParamctl({"help"}, out, err) == 0);
  CHECK(RunParamctl({"--version"}, out, err) == 0);
  for (const std::string verb : {"create", "list", "show", "delete", "pull", "commit", "history", "status", "wait",
                                 "algorithms", "init-tls", "new-token"}) {
    CHECK_THAT(out.str(), Catch::Contains("  " + verb + " "));
    std::ostringstream page;
    CHECK(RunParamctl({verb, "--help"}, page, err) == 0);
    CHECK_THAT(page.str(),
               Catch::Contains("Usage: paramctl " + verb) && Catch::Contains("Example:\n  paramctl " + verb));
  }
  CHECK(err.str().empty());
}

TEST_CASE("tokens that are made at once are all in the file") {
  const House house;
  std::vector<Result> results(8);
  {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < results.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = house.Run({"new-token", absl::StrCat("t", i), "reader", house.File("tokens")});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Result& result : results) CHECK(result.exit_code == 0);
  const std::string text = ReadFile(house.File("tokens"));
  for (size_t i = 0; i < results.size(); ++i) CHECK(absl::StrContains(text, absl::StrCat("t", i, " reader ")));
  CHECK(house.Run({"init-tls", house.File("tls"), "--days=99999999"}).exit_code == 2);
}

TEST_CASE("init-tls and new-token make all that a daemon and its clients need") {
  const House house;
  const std::string tls = house.File("tls");
  CHECK_THAT(house.Must({"init-tls", tls, "--host=paramd.example.org"}), Catch::Contains("paramd.example.org"));
  const std::string token = house.Must({"new-token", "boss", "admin", house.File("tokens")});
  CHECK(house
            .Must({"new-token", "reader", "reader", house.File("tokens"), "--models=a*",
                   "--out=" + house.File("reader.token")})
            .empty());
  for (const std::string& secret :
       {tls + "/ca.key", tls + "/server.key", tls + "/client.key", house.File("tokens"), house.File("reader.token")}) {
    INFO(secret);
    CHECK(std::filesystem::status(secret).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  }
  CHECK_FALSE(absl::StrContains(ReadFile(house.File("tokens")), token.substr(0, 64)));

  const auto server = Server::Start({.listen = "127.0.0.1:0",
                                     .tls_cert = tls + "/server.pem",
                                     .tls_key = tls + "/server.key",
                                     .tls_client_ca = tls + "/ca.pem",
                                     .token_file = house.File("tokens")});
  INFO(server.status());
  REQUIRE(server.ok());
  const auto run = [&](std::vector<std::string> words) {
    for (const std::string& flag :
         {"--server=" + (*server)->address(), "--tls_ca=" + tls + "/ca.pem", "--tls_cert=" + tls + "/client.pem",
          "--tls_key=" + tls + "/client.key", "--token_file=" + house.File("reader.token")}) {
      words.push_back(flag);
    }
    std::ostringstream out, err;
    const int exit_code = RunParamctl(words, out, err);
    return Result{exit_code, out.str(), err.str()};
  };
  CHECK(run({"list"}).exit_code == 0);
  const Result denied = run({"delete", "about"});
  CHECK(denied.exit_code == 1);
  CHECK_THAT(denied.err, Catch::Contains("token 'reader' may not call DeleteModel"));

  // Again: of the same authority.
  const std::string authority = ReadFile(tls + "/ca.pem");
  const std::string before = ReadFile(tls + "/server.pem");
  house.Must({"init-tls", tls});
  CHECK(ReadFile(tls + "/ca.pem") == authority);
  CHECK(ReadFile(tls + "/server.pem") != before);
  CHECK(run({"list"}).exit_code == 0);

  CHECK(house.Run({"init-tls", tls, "--host=no host"}).exit_code == 2);
  CHECK(house.Run({"new-token", "a", "boss", house.File("tokens")}).exit_code == 2);
  std::ofstream(house.File("text")) << "hello\n";
  const Result refused = house.Run({"new-token", "a", "admin", house.File("text")});
  CHECK(refused.exit_code == 1);
  CHECK_THAT(refused.err, Catch::Contains("nothing was added"));
  CHECK(ReadFile(house.File("text")) == "hello\n");
}

}  // namespace
}  // namespace paramd::cli
