// What a person reads when something is wrong: what happened, the likely cause, the next step. And that nothing
// changed.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/raw_stream.h"
#include "tests/integration/stub_session.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 12;

void CheckError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& texts) {
  INFO(status);
  CHECK(status.code() == code);
  for (const std::string& text : texts) CHECK_THAT(std::string(status.message()), Catch::Contains(text));
}

// One model "m" of a 3 x 4 matrix "dense" with a worker "a", whose center stays as it is.
class Fixture {
 public:
  Fixture() : server_(StartServer()), before_(kFloats) {
    for (size_t i = 0; i < kFloats; ++i) before_[i] = static_cast<float>(i) / 7;
    CreateModel(address(), MatrixSpec(), before_);
    worker_ = Join(address(), "m", "a");
    admin_ = Connect(address());
  }

  ~Fixture() {
    const auto [after, version] = ReadCenter(address(), "m");
    CHECK(version == 0);
    CHECK(after == before_);
  }

  static v1::ModelSpec MatrixSpec() {
    v1::ModelSpec spec = Spec("m", "downpour", 1);
    spec.mutable_tensors(0)->set_name("dense");
    spec.mutable_tensors(0)->clear_shape();
    spec.mutable_tensors(0)->add_shape(3);
    spec.mutable_tensors(0)->add_shape(4);
    return spec;
  }

  const std::string& address() const { return server_->address(); }
  Worker& worker() { return *worker_; }
  Admin& admin() { return *admin_; }
  const std::vector<float>& before() const { return before_; }

  // Commits of `worker`, which is the only one whose commits were refused.
  uint64_t Rejected(const std::string& worker = "a") const {
    const v1::ModelInfo info = server_->GetStatus().models(0);
    CHECK(FindWorker(info, worker).rejected() == info.rejected());
    return info.rejected();
  }

 private:
  const std::unique_ptr<Server> server_;
  std::vector<float> before_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Admin> admin_;
};

TEST_CASE_METHOD(Fixture, "a commit that is not finite") {
  uint64_t rejected = 0;
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> update(kFloats, 1);
    update[6] = bad;
    std::vector<float> pulled(kFloats);
    CheckError(worker().Exchange(update, absl::MakeSpan(pulled), kCallTimeout).status(),
               absl::StatusCode::kInvalidArgument,
               {"worker 'a'", "model 'm'", "NaN or infinite", "tensor 'dense' at [1, 2]", "it was not applied",
                "lower the learning rate or clip gradients"});
    CHECK(Rejected() == ++rejected);
  }
}

TEST_CASE_METHOD(Fixture, "a commit of the wrong length") {
  CheckError(
      worker().Commit(std::vector<float>(kFloats + 1, 1), kCallTimeout).status(), absl::StatusCode::kInvalidArgument,
      {"model 'm' has 12 parameters", "the commit has 13", "compare the network's layers with the model's tensors"});
  std::vector<float> center(3);
  CheckError(worker().Pull(absl::MakeSpan(center), kCallTimeout).status(), absl::StatusCode::kInvalidArgument,
             {"model 'm' has 12 parameters", "the center has 3"});
  // Nothing was sent. A client that sends it is told the same.
  CHECK(Rejected() == 0);
  v1::ParameterServer::Stub stub(OpenChannel(address()));
  StubSession session(&stub);
  REQUIRE(session.Send(CommitHeader(JoinByStub(&stub, "m", "b"), 1, 13), 0, std::vector<float>(13, 1)));
  const auto answer = session.Receive();
  REQUIRE(answer.has_value());
  CheckError(absl::Status(static_cast<absl::StatusCode>(answer->header.code()), answer->header.message()),
             absl::StatusCode::kInvalidArgument,
             {"worker 'b' has 13 floats where model 'm' has 12", "trains another network", "`paramctl show`"});
  CHECK(Rejected("b") == 1);
}

TEST_CASE_METHOD(Fixture, "a network of another size") {
  Quadratic quadratic(kFloats + 1, 0, 0);
  EmptyBatches batches(1);
  CheckError(RunWorker({.server = address(), .model = "m", .worker = "b"}, {}, &quadratic, &batches).status(),
             absl::StatusCode::kInvalidArgument,
             {"this worker's network has 13 parameters", "model 'm' has 12", "the model's tensors"});
  // It left with the reason for all to see.
  const v1::WorkerInfo left = FindWorker(*admin().GetModel("m"), "b");
  CHECK(left.state() == v1::WorkerInfo::FAILED);
  CHECK_THAT(left.message(), Catch::Contains("13 parameters"));
}

TEST_CASE_METHOD(Fixture, "an unknown model") {
  CheckError(Worker::Join({.server = address(), .model = "mnits", .worker = "a"}).status(), absl::StatusCode::kNotFound,
             {"there is no model 'mnits' on this server", "paramctl list", "create it with `paramctl create`"});
  std::vector<float> center(1);
  CheckError(admin().Pull("mnits", absl::MakeSpan(center)).status(), absl::StatusCode::kNotFound, {"'mnits'"});
  CheckError(admin().DeleteModel("mnits"), absl::StatusCode::kNotFound, {"'mnits'"});
}

TEST_CASE_METHOD(Fixture, "a name of any length keeps the reason and the next step, and is answered at once") {
  const absl::Time begin = absl::Now();
  for (const size_t size : {9'000, 20'000, 1'000'000}) {
    const std::string name(size, 'x');
    CheckError(admin().GetModel(name).status(), absl::StatusCode::kNotFound,
               {"there is no model 'xxx", "create it with `paramctl create`"});
    CheckError(admin().CreateModel(Spec(name, "downpour", 1)).status(), absl::StatusCode::kInvalidArgument,
               {"model name 'xxx", "use 1 to 256"});
    CheckError(admin().CreateModel(Spec("n", name, 1)).status(), absl::StatusCode::kNotFound, {"xxx"});
    CheckError(admin().CreateModel(Spec("n", "downpour", 1, name)).status(), absl::StatusCode::kInvalidArgument,
               {"consistency 'xxx", "use async, sync, or bounded:S"});
    CheckError(admin().CreateModel(Spec("n", "downpour", 1, "", {{name, 1}})).status(),
               absl::StatusCode::kInvalidArgument, {"xxx"});
    std::vector<float> center(kFloats);
    CheckError(admin().Pull(name, absl::MakeSpan(center)).status(), absl::StatusCode::kNotFound, {"no model 'xxx"});
  }
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back(absl::StrCat(i, std::string(250, 'm')));
  v1::ParameterServer::Stub stub(OpenChannel(address()));
  v1::ReportHistoryRequest report;
  *report.mutable_participant() = JoinByStub(&stub, "m", "a");
  report.add_records()->set_step(1);
  const auto send = [&] {
    grpc::ClientContext context;
    v1::ReportHistoryReply reply;
    return stub.ReportHistory(&context, report, &reply);
  };
  for (const std::string& name : names) {
    report.add_metric_names(name);
    report.mutable_records(0)->add_metrics(0);
  }
  REQUIRE(send().ok());
  report.set_metric_names(0, "another");
  const grpc::Status changed = send();
  CHECK(changed.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(changed.error_message(), Catch::Contains("keep them for the model's life"));
  CHECK(absl::Now() - begin < absl::Seconds(20));
}

TEST_CASE_METHOD(Fixture, "names that are not UTF-8 are refused by the field's name, before they are sent") {
  const std::string bad = "caf\xe9";
  const auto refused = [](const absl::Status& status, const std::string& field) {
    CheckError(status, absl::StatusCode::kInvalidArgument, {field + " 'caf?' is not UTF-8"});
  };
  v1::ModelSpec spec = Spec("n", "downpour", 1);
  spec.mutable_tensors(0)->set_name(bad);
  refused(admin().CreateModel(spec).status(), "tensor");
  refused(admin().CreateModel(Spec(bad, "downpour", 1)).status(), "model");
  refused(admin().CreateModel(Spec("n", bad, 1)).status(), "algorithm");
  refused(admin().CreateModel(Spec("n", "downpour", 1, "", {{bad, 1}})).status(), "hyperparameter");
  refused(admin().GetModel(bad).status(), "model");
  refused(admin().DeleteModel(bad), "model");
  v1::GetHistoryRequest history;
  history.set_model("m");
  history.set_worker(bad);
  refused(admin().GetHistory(history).status(), "worker");
  std::vector<float> center(kFloats);
  refused(admin().Pull(bad, absl::MakeSpan(center)).status(), "model");
  refused(Worker::Join({.server = address(), .model = "m", .worker = bad}).status(), "worker");
  refused(worker().Report({bad}, {StepResult{.step = 1, .metrics = {1}}}), "metric");
}

TEST_CASE_METHOD(Fixture, "words of a worker that fails arrive, whatever is in them") {
  REQUIRE(worker().Leave("can't open /caf\xe9: \x1b[2J" + std::string(10'000, 'x') + " no such file").ok());
  const auto info = admin().GetModel("m");
  REQUIRE(info.ok());
  const v1::WorkerInfo left = FindWorker(*info, "a");
  CHECK(left.state() == v1::WorkerInfo::FAILED);
  CHECK_THAT(left.message(), Catch::StartsWith("can't open /caf?: ") && Catch::EndsWith(" no such file"));
  CHECK(left.message().size() <= 1024);
}

TEST_CASE_METHOD(Fixture, "a request that can't be read is told so") {
  // Of LeaveRequest: error, which is not UTF-8; and no message at all.
  for (const std::string& bytes : {std::string("\x12\x01\xe9"), std::string("\xff\xff\xff")}) {
    RawStream stream(OpenChannel(address()), "/paramd.v1.ParameterServer/Leave");
    stream.Write(bytes);
    const grpc::Status status = stream.Finish();
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(status.error_message(), Catch::Contains("malformed, or one of its texts is not UTF-8"));
  }
}

TEST_CASE_METHOD(Fixture, "specifications that make no sense") {
  struct Bad {
    std::function<void(v1::ModelSpec*)> change;
    absl::StatusCode code;
    std::vector<std::string> texts;
  };
  const auto set = [](const std::string& name, double value) {
    return [=](v1::ModelSpec* spec) {
      v1::Hyperparameter* h = spec->add_hyperparameters();
      h->set_name(name);
      h->set_value(value);
    };
  };
  const Bad bad[] = {
      {[](v1::ModelSpec* spec) { spec->set_algorithm("downpoor"); },
       absl::StatusCode::kNotFound,
       {"no algorithm \"downpoor\"", "there are", "adag (agn)", "downpour", "--plugin"}},
      {set("momentum", 0.9),
       absl::StatusCode::kInvalidArgument,
       {"downpour has no hyperparameter \"momentum\"", "it has communication_window, learning_rate"}},
      {set("learning_rate", -1), absl::StatusCode::kInvalidArgument, {"learning_rate = -1 is out of range"}},
      {set("learning_rate", std::nan("")), absl::StatusCode::kInvalidArgument, {"learning_rate = nan is out of range"}},
      {set("communication_window", 2.5), absl::StatusCode::kInvalidArgument, {"2.5 is not a whole number"}},
      {[&](v1::ModelSpec* spec) {
         spec->set_algorithm("aeasgd");
         set("rho", 10)(spec);
         set("learning_rate", 0.1)(spec);
       },
       absl::StatusCode::kInvalidArgument,
       {"rho = 10 times learning_rate = 0.1 is 1", "lower one of the two"}},
      {[](v1::ModelSpec* spec) { spec->set_consistency("eventual"); },
       absl::StatusCode::kInvalidArgument,
       {"consistency 'eventual'", "use async, sync, or bounded:S"}},
      {[](v1::ModelSpec* spec) { spec->set_consistency("bounded:-1"); },
       absl::StatusCode::kInvalidArgument,
       {"consistency 'bounded:-1'"}},
      {[](v1::ModelSpec* spec) { spec->clear_tensors(); }, absl::StatusCode::kInvalidArgument, {"has no tensors"}},
      {[](v1::ModelSpec* spec) { spec->mutable_tensors(0)->set_shape(1, 0); },
       absl::StatusCode::kInvalidArgument,
       {"dense [3, 0]", "every dimension must be positive"}},
      {[](v1::ModelSpec* spec) { *spec->add_tensors() = spec->tensors(0); },
       absl::StatusCode::kInvalidArgument,
       {"two tensors named 'dense'"}},
      {[](v1::ModelSpec* spec) { spec->mutable_tensors(0)->set_shape(0, int64_t{1} << 50); },
       absl::StatusCode::kInvalidArgument,
       {"is larger than the", "--max_model_bytes"}},
      {[](v1::ModelSpec* spec) { spec->set_name("a\nb"); },
       absl::StatusCode::kInvalidArgument,
       {"model name 'a\\nb'", "without control"}},
  };
  for (const Bad& b : bad) {
    v1::ModelSpec spec = MatrixSpec();
    spec.set_name("other");
    b.change(&spec);
    CheckError(admin().CreateModel(spec).status(), b.code, b.texts);
  }
  CHECK(admin().ListModels()->models_size() == 1);
}

TEST_CASE_METHOD(Fixture, "a model that exists with another specification") {
  CHECK(admin().CreateModel(MatrixSpec()).ok());
  struct Different {
    std::function<void(v1::ModelSpec*)> change;
    std::string text;
  };
  const Different differents[] = {
      {[](v1::ModelSpec* spec) { spec->set_algorithm("adag"); },
       "the algorithm is downpour there and adag in the request"},
      {[](v1::ModelSpec* spec) { spec->set_consistency("sync"); },
       "the consistency is async there and sync in the request"},
      {[](v1::ModelSpec* spec) { spec->mutable_tensors(0)->set_shape(1, 5); },
       "tensor 0 is dense [3, 4] there and dense [3, 5] in the request"},
      {[](v1::ModelSpec* spec) {
         v1::Hyperparameter* h = spec->add_hyperparameters();
         h->set_name("communication_window");
         h->set_value(3);
       },
       "hyperparameter communication_window is"},
  };
  for (const Different& different : differents) {
    v1::ModelSpec spec = MatrixSpec();
    different.change(&spec);
    CheckError(admin().CreateModel(spec).status(), absl::StatusCode::kAlreadyExists,
               {"model 'm' exists with another specification", different.text, "use another name, or delete it first"});
    CheckError(
        Worker::Join(
            {.server = address(), .model = "m", .worker = "b", .create = std::make_shared<const v1::ModelSpec>(spec)})
            .status(),
        absl::StatusCode::kAlreadyExists, {different.text});
  }
}

TEST_CASE_METHOD(Fixture, "an initialization that comes second") {
  CHECK(admin().Initialize("m", before()).ok());
  CHECK(worker().Initialize(before(), kCallTimeout).ok());
  std::vector<float> other = before();
  other[3] = 17;
  for (const absl::Status& status : {admin().Initialize("m", other), worker().Initialize(other, kCallTimeout)}) {
    CheckError(
        status, absl::StatusCode::kAlreadyExists,
        {"model 'm' was initialized before with other values", "'dense'", "pull the center", "delete the model"});
  }
}

TEST_CASE_METHOD(Fixture, "an initial center that is no center") {
  v1::ModelSpec spec = MatrixSpec();
  spec.set_name("fresh");
  REQUIRE(admin().CreateModel(spec).ok());
  std::vector<float> bad(kFloats, 1);
  bad[11] = std::nanf("");
  CheckError(admin().Initialize("fresh", bad), absl::StatusCode::kInvalidArgument,
             {"the initial center of model 'fresh'", "NaN or infinite", "tensor 'dense' at [2, 3]", "check the file"});
  CheckError(admin().Initialize("fresh", std::vector<float>(5, 1)), absl::StatusCode::kInvalidArgument,
             {"has 5 floats where the model has 12", "`paramctl show`"});
  CHECK_FALSE(admin().GetModel("fresh")->initialized());
  const auto early = Join(address(), "fresh", "a");
  CheckError(early->Commit(std::vector<float>(kFloats, 1), kCallTimeout).status(),
             absl::StatusCode::kFailedPrecondition,
             {"model 'fresh' has no center yet", "initialize it with a worker or `paramctl create --from`"});
  CHECK(admin().Initialize("fresh", before()).ok());
}

TEST_CASE_METHOD(Fixture, "a window or a training that is refused makes no center") {
  v1::ModelSpec spec = MatrixSpec();
  spec.set_name("fresh");
  REQUIRE(admin().CreateModel(spec).ok());
  const auto early = Join(address(), "fresh", "a");
  std::vector<float> network = before();
  const absl::Span<float> all = absl::MakeSpan(network);
  const auto half = all.subspan(0, kFloats / 2);
  CheckError(MakeWindow(early.get(), {half, half}, {}).status(), absl::StatusCode::kInvalidArgument,
             {"the spans of the parameters overlap"});
  CheckError(MakeWindow(early.get(), {all}, {.communication_window = -1}).status(), absl::StatusCode::kInvalidArgument,
             {"communication_window is -1"});
  CheckError(MakeWindow(early.get(), {all}, {.exchange_timeout = -absl::Seconds(1)}).status(),
             absl::StatusCode::kInvalidArgument, {"exchange_timeout is -1s"});

  const WorkerOptions other{.server = address(), .model = "fresh", .worker = "b"};
  Quadratic quadratic(kFloats, 0, 0);
  EmptyBatches batches(1);
  for (const auto& [options, message] : std::vector<std::pair<TrainOptions, std::string>>{
           {{.epochs = 0}, "epochs is 0"},
           {{.communication_window = -1}, "communication_window is -1"},
           {{.learning_rate = -1}, "learning_rate is -1"},
           {{.learning_rate = 1e9}, "learning_rate is 1e+09"},
           {{.target_loss = std::nan("")}, "target_loss is nan"},
           {{.max_prefetch = 0}, "max_prefetch is 0"},
           {{.exchange_timeout = absl::ZeroDuration()}, "exchange_timeout is 0"}}) {
    CheckError(RunWorker(other, options, &quadratic, &batches).status(), absl::StatusCode::kInvalidArgument, {message});
    WorkerOptions creating = other;
    creating.model = "unborn";
    creating.create = std::make_shared<const v1::ModelSpec>(MatrixSpec());
    CheckError(RunWorker(creating, options, &quadratic, &batches).status(), absl::StatusCode::kInvalidArgument,
               {message});
  }
  CHECK(absl::IsNotFound(admin().GetModel("unborn").status()));
  CHECK(FindWorker(*admin().GetModel("fresh"), "b").worker().empty());
  class Unsuitable : public Quadratic {
   public:
    Unsuitable() : Quadratic(kFloats, 0, 0) {}
    void set_learning_rate(double /*learning_rate*/) override { throw std::runtime_error("no such rate"); }
  } unsuitable;
  CheckError(RunWorker(other, {}, &unsuitable, &batches).status(), absl::StatusCode::kInternal, {"no such rate"});
  CHECK_FALSE(admin().GetModel("fresh")->initialized());

  REQUIRE(MakeWindow(early.get(), {all}, {}).ok());
  CHECK(ReadCenter(address(), "fresh").first == before());
}

TEST_CASE_METHOD(Fixture, "a worker that has left") {
  CHECK(worker().Leave().ok());
  CHECK(worker().Leave().ok());
  CheckError(worker().Commit(std::vector<float>(kFloats, 1), kCallTimeout).status(),
             absl::StatusCode::kFailedPrecondition, {"has left its model", "join again"});
}

TEST_CASE_METHOD(Fixture, "a model that is deleted under its workers") {
  v1::ModelSpec spec = MatrixSpec();
  spec.set_name("doomed");
  CreateModel(address(), spec, before());
  const auto orphan = Join(address(), "doomed", "a");
  REQUIRE(admin().DeleteModel("doomed").ok());
  CheckError(orphan->Commit(std::vector<float>(kFloats, 1), kCallTimeout).status(), absl::StatusCode::kNotFound,
             {"there is no model 'doomed'"});
}

TEST_CASE("a server that can't be reached") {
  const std::string nobody = "unix:" + TemporaryPath("nobody");
  const auto admin = Admin::Connect(nobody, absl::Milliseconds(200));
  REQUIRE(admin.ok());
  CheckError((*admin)->GetStatus().status(), absl::StatusCode::kDeadlineExceeded,
             {"can't reach paramd at " + nobody, "is the daemon running, and is the address right?"});
  CheckError(
      Worker::Join({.server = nobody, .model = "m", .worker = "a", .join_timeout = absl::Milliseconds(200)}).status(),
      absl::StatusCode::kDeadlineExceeded, {"can't reach paramd at " + nobody});
  CheckError(
      Worker::Join(
          {.server = "no-such-host.invalid:5000", .model = "m", .worker = "a", .join_timeout = absl::Milliseconds(200)})
          .status(),
      absl::StatusCode::kDeadlineExceeded, {"no-such-host.invalid:5000"});
}

TEST_CASE("an address that is none") {
  for (const std::string address : {"", "localhost", "localhost:", ":5000", "unix:"}) {
    INFO(address);
    CheckError(Admin::Connect(address).status(), absl::StatusCode::kInvalidArgument,
               {"the server's address '" + address + "': the ", "use HOST:PORT, [IPV6]:PORT or unix:PATH"});
    CheckError(Worker::Join({.server = address, .model = "m", .worker = "a"}).status(),
               absl::StatusCode::kInvalidArgument, {"use HOST:PORT, [IPV6]:PORT or unix:PATH"});
  }
  for (const std::string address : {"nowhere", "127.0.0.1:65536", "127.0.0.1:-1", "::1:5000", "unix:"}) {
    INFO(address);
    CheckError(Server::Start({.listen = address}).status(), absl::StatusCode::kInvalidArgument,
               {"address '" + address + "'", "use HOST:PORT, [IPV6]:PORT or unix:PATH"});
  }
}

TEST_CASE("options of a worker that are missing") {
  CheckError(Worker::Join({.server = "127.0.0.1:1", .worker = "a"}).status(), absl::StatusCode::kInvalidArgument,
             {"the model's name is empty"});
  CheckError(Worker::Join({.server = "127.0.0.1:1", .model = "m"}).status(), absl::StatusCode::kInvalidArgument,
             {"the worker's name is empty"});
  v1::ModelSpec other;
  other.set_name("n");
  CheckError(Worker::Join({.server = "127.0.0.1:1",
                           .model = "m",
                           .worker = "a",
                           .create = std::make_shared<const v1::ModelSpec>(other)})
                 .status(),
             absl::StatusCode::kInvalidArgument, {"join is 'm'", "is of 'n'", "one name"});
  CheckError(Worker::Join({.server = "127.0.0.1:1", .model = "m", .worker = "a", .rpc_timeout = absl::ZeroDuration()})
                 .status(),
             absl::StatusCode::kInvalidArgument, {"rpc_timeout must be positive"});
}

}  // namespace
}  // namespace paramd
