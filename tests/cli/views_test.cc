#include <catch2/catch.hpp>
#include <limits>

#include "client/cli/json_view.h"
#include "client/cli/outcome.h"
#include "client/cli/table.h"
#include "client/cli/text_view.h"

namespace paramd::cli {
namespace {

v1::WorkerInfo* AddWorker(v1::ModelInfo* model, const std::string& name, v1::WorkerInfo::State state) {
  v1::WorkerInfo* const worker = model->add_workers();
  worker->set_worker(name);
  worker->set_incarnation(1);
  worker->set_state(state);
  worker->set_base_version(-1);
  return worker;
}

v1::ModelInfo Model() {
  v1::ModelInfo model;
  v1::ModelSpec* const spec = model.mutable_spec();
  spec->set_name("mnist");
  spec->set_algorithm("adag");
  spec->set_consistency("bounded:4");
  v1::Hyperparameter* const hyperparameter = spec->add_hyperparameters();
  hyperparameter->set_name("learning_rate");
  hyperparameter->set_value(0.5);
  v1::Tensor* tensor = spec->add_tensors();
  tensor->set_name("w");
  tensor->add_shape(784);
  tensor->add_shape(128);
  spec->add_tensors()->set_name("scale");
  model.set_initialized(true);
  model.set_version(int64_t{9007199254740993});
  model.set_parameters(100353);
  model.set_mean_staleness(1.25);
  model.add_staleness_histogram(3);
  model.add_staleness_histogram(0);
  model.add_staleness_histogram(1200);
  model.set_training_time_s(83.4);
  model.set_pinned_bytes(1 << 20);
  model.set_rejected(1);
  model.set_live_workers(1);
  model.set_known_workers(2);
  v1::WorkerInfo* worker = AddWorker(&model, "worker-0", v1::WorkerInfo::LIVE);
  worker->set_clock(10);
  worker->set_commits(1203);
  worker->set_pulls(11);
  worker->set_base_version(1200);
  worker->set_mean_staleness(1.25);
  worker->set_lease_remaining_s(29.5);
  worker->set_waiting(true);
  worker = AddWorker(&model, "worker-1", v1::WorkerInfo::FAILED);
  worker->set_incarnation(2);
  worker->set_rejected(1);
  worker->set_message("loss is not finite");
  return model;
}

v1::GetHistoryReply History() {
  v1::GetHistoryReply reply;
  reply.set_updates(40);
  reply.set_training_time_s(12.34);
  reply.add_staleness_histogram(40);
  v1::WorkerHistory* series = reply.add_workers();
  series->set_worker("a,b");
  series->add_metric_names("accuracy");
  series->set_dropped(7);
  for (int i = 1; i <= 3; ++i) {
    v1::HistoryRecord* const record = series->add_records();
    record->set_step(static_cast<uint64_t>(i));
    record->set_epoch(0.25 * i);
    record->set_time_s(1.1 * i);
    record->set_loss(1.0 / (1 << i));
    record->add_metrics(0.125 * i);
  }
  series = reply.add_workers();
  series->set_worker("c");
  series->add_metric_names("top \"5\"");
  v1::HistoryRecord* const record = series->add_records();
  record->set_step(1);
  record->set_loss(std::numeric_limits<double>::quiet_NaN());
  record->add_metrics(1);
  return reply;
}

TEST_CASE("A table aligns its columns, counts characters and defuses control bytes") {
  Table table({"NAME", ">COUNT", "NOTE"});
  table.AddRow({"é", "1", ""});
  table.AddRow({"long name", "1,000", "a\x1b[2Jb"});
  CHECK(table.Text(2) ==
        "  NAME       COUNT  NOTE\n"
        "  é              1\n"
        "  long name  1,000  a\\x1b[2Jb\n");
}

TEST_CASE("Figures are humane") {
  CHECK(CountText(0) == "0");
  CHECK(CountText(999) == "999");
  CHECK(CountText(1000) == "1,000");
  CHECK(CountText(~uint64_t{0}) == "18,446,744,073,709,551,615");
  CHECK(BytesText(1023) == "1023 B");
  CHECK(BytesText(1536) == "1.5 KiB");
  CHECK(BytesText((1 << 20) - 1) == "1.0 MiB");
  CHECK(BytesText(~uint64_t{0}) == "16.0 EiB");
  CHECK(DurationText(0.25) == "0.25 s");
  CHECK(DurationText(9.999) == "10.0 s");
  CHECK(DurationText(59.97) == "1m 00s");
  CHECK(DurationText(185) == "3m 05s");
  CHECK(DurationText(7265) == "2h 01m");
  CHECK(DurationText(3 * 86400 + 4 * 3600) == "3d 04h");
  CHECK(DurationText(std::numeric_limits<double>::infinity()) == "-");
  CHECK(FigureText(1234567) == "1.235e+06");
  CHECK(FigureText(0.125) == "0.125");
  CHECK(NumberText(12345) == "12345");
  CHECK(NumberText(0.1) == "0.1");
  CHECK(NumberText(1e-12) == "1e-12");
}

TEST_CASE("A model's page shows everything of it") {
  CHECK(ModelText(Model()) ==
        R"(model           mnist
algorithm       adag
consistency     bounded:4
version         9,007,199,254,740,993
parameters      100,353 (392.0 KiB)
training time   1m 23s
mean staleness  1.25
staleness       0: 3, 2+: 1,200
rejected        1
pinned          1.0 MiB

HYPERPARAMETER  VALUE
learning_rate     0.5

TENSOR  SHAPE    PARAMETERS
w       784x128     100,352
scale   scalar            1

WORKER    INCARNATION  STATE   CLOCK  COMMITS  PULLS  REJECTED  BASE VERSION  STALENESS  NOTE
worker-0            1  live       10    1,203     11         0         1,200       1.25  waits for others, lease 29.5 s
worker-1            2  failed      0        0      0         1             -          0  loss is not finite
)");
}

TEST_CASE("A list has one line a model") {
  Models models;
  *models.Add() = Model();
  models.Add()->mutable_spec()->set_name("new");
  models.Mutable(1)->mutable_spec()->set_algorithm("easgd");
  models.Mutable(1)->mutable_spec()->set_consistency("sync");
  CHECK(ModelsText(models) ==
        R"(MODEL  ALGORITHM  CONSISTENCY  PARAMETERS                VERSION  LIVE  WORKERS  STALENESS
mnist  adag       bounded:4       100,353  9,007,199,254,740,993     1        2       1.25
new    easgd      sync                  0              no center     0        0          0
)");
  CHECK(ModelsText({}) == "no models\n");
}

TEST_CASE("A model's JSON has the wire's words, and integers of 64 bits as numbers") {
  CHECK(
      JsonText(ModelJson(Model()), true) ==
      R"({"name":"mnist","algorithm":"adag","hyperparameters":{"learning_rate":0.5},"consistency":"bounded:4",)"
      R"("version":9007199254740993,"rounds":0,"initialized":true,"parameters":100353,)"
      R"("tensors":[{"name":"w","shape":[784,128]},{"name":"scale","shape":[]}],)"
      R"("mean_staleness":1.25,"staleness_histogram":[3,0,1200],"training_time_s":83.4,"rejected":1,)"
      R"("pinned_bytes":1048576,"problem":"","checkpoint_version":null,"checkpoint_age_s":null,"checkpoint_problem":"","commits":0,"live_workers":1,"known_workers":2,"waiting_workers":0,"workers":[)"
      R"({"worker":"worker-0","incarnation":1,"state":"live","message":"","clock":10,"commits":1203,"pulls":11,)"
      R"("rejected":0,"base_version":1200,"mean_staleness":1.25,"lease_remaining_s":29.5,"waiting":true},)"
      R"({"worker":"worker-1","incarnation":2,"state":"failed","message":"loss is not finite","clock":0,)"
      R"("commits":0,"pulls":0,"rejected":1,"base_version":-1,"mean_staleness":0.0,"lease_remaining_s":0.0,)"
      R"("waiting":false}]})"
      "\n");
}

TEST_CASE("A model's newest checkpoint is told with its age") {
  v1::ModelInfo model = Model();
  CHECK_THAT(ModelText(model), !Catch::Contains("checkpoint"));
  model.set_has_checkpoint(true);
  model.set_checkpoint_version(1200);
  model.set_checkpoint_age_s(3.2);
  CHECK_THAT(ModelText(model), Catch::Contains("checkpoint      version 1,200, 3.20 s old\n"));
  CHECK(ModelJson(model)["checkpoint_version"] == 1200);
  CHECK(ModelJson(model)["checkpoint_age_s"] == 3.2);
}

TEST_CASE("A model's problem is on every page that shows the model") {
  v1::ServerStatus status;
  v1::ModelInfo* const model = status.add_models();
  *model = Model();
  model->set_problem("tensor 'w' is infinite\nsince version 2");
  CHECK_THAT(ModelText(*model), Catch::Contains("problem         tensor 'w' is infinite\\nsince version 2\n"));
  const std::string line = "MODEL  PROBLEM\nmnist  tensor 'w' is infinite\\nsince version 2\n";
  CHECK_THAT(ModelsText(status.models()), Catch::Contains(line));
  CHECK_THAT(StatusText(status), Catch::Contains(line));
  CHECK(ModelJson(*model)["problem"] == model->problem());
  model->set_checkpoint_problem("no space left");
  CHECK_THAT(ModelText(*model), Catch::Contains("problem         no checkpoint: no space left\n"));
  CHECK_THAT(ModelsText(status.models()), Catch::Contains("mnist  no checkpoint: no space left\n"));
  CHECK(ModelJson(*model)["checkpoint_problem"] == "no space left");
  model->clear_problem();
  model->clear_checkpoint_problem();
  CHECK_THAT(StatusText(status), !Catch::Contains("PROBLEM"));
}

TEST_CASE("A model without anything has empty lists, not nulls") {
  const OrderedJson json = ModelJson({});
  CHECK(json["hyperparameters"].dump() == "{}");
  CHECK(json["tensors"].dump() == "[]");
  CHECK(json["workers"].dump() == "[]");
  CHECK(json["staleness_histogram"].dump() == "[]");
  CHECK(ModelsJson({}).dump() == "[]");
}

TEST_CASE("Bytes that are not UTF-8 don't stop the JSON") {
  v1::ModelInfo model;
  AddWorker(&model, "w", v1::WorkerInfo::FAILED)->set_message("caf\xe9");
  CHECK_THAT(JsonText(ModelJson(model)), Catch::Contains("caf\\ufffd"));
}

TEST_CASE("History as a table shows the last records and says what it left out") {
  CHECK(HistoryText(History(), 2) ==
        R"(40 updates in 12.3 s; staleness 0: 40

WORKER  STEP  EPOCH    TIME   LOSS  accuracy  top "5"
a,b        2   0.50  2.20 s   0.25      0.25        -
a,b        3   0.75  3.30 s  0.125     0.375        -
c          1   0.00  0.00 s    nan         -        1
a,b: 1 earlier records not shown (--last=0 shows all)
a,b: 7 older records were dropped by the server
)");
  CHECK(HistoryText({}, 20) == "0 updates in 0.00 s; staleness no commits\nno records\n");
}

TEST_CASE("History as CSV quotes what needs it and has a column for every metric") {
  CHECK(HistoryCsv(History(), 0) ==
        "worker,step,epoch,time_s,loss,accuracy,\"top \"\"5\"\"\"\n"
        "\"a,b\",1,0.25,1.1,0.5,0.125,\n"
        "\"a,b\",2,0.5,2.2,0.25,0.25,\n"
        "\"a,b\",3,0.75,3.3000000000000003,0.125,0.375,\n"
        "c,1,0,0,nan,,1\n");
}

TEST_CASE("History as JSON keeps each worker's own metrics") {
  CHECK(JsonText(HistoryJson("mnist", History(), 1), true) ==
        R"({"model":"mnist","updates":40,"training_time_s":12.34,"staleness_histogram":[40],"workers":[)"
        R"({"worker":"a,b","dropped":7,"records":[{"step":3,"epoch":0.75,"time_s":3.3000000000000003,"loss":0.125,)"
        R"("metrics":{"accuracy":0.375}}]},)"
        R"({"worker":"c","dropped":0,"records":[{"step":1,"epoch":0.0,"time_s":0.0,"loss":null,)"
        R"("metrics":{"top \"5\"":1.0}}]}]})"
        "\n");
}

TEST_CASE("An averaged history names no worker") {
  v1::GetHistoryReply reply;
  reply.add_workers()->add_records()->set_step(1);
  CHECK_THAT(HistoryText(reply, 0), Catch::Contains("\nmean"));
  CHECK_FALSE(HistoryJson("m", reply, 0)["workers"][0].contains("worker"));
}

TEST_CASE("Status shows the server, then models, then workers") {
  v1::ServerStatus status;
  status.set_version("0.1.0");
  status.set_uptime_s(7265);
  status.set_draining(true);
  status.set_connections(5);
  status.set_refused_connections(1);
  status.set_sessions(2);
  status.set_in_flight_bytes(1 << 20);
  status.set_max_in_flight_bytes(64 << 20);
  status.set_segments(3);
  status.set_shared_bytes(6 << 20);
  status.set_max_shared_bytes(uint64_t{4} << 30);
  status.set_resident_bytes(200 << 20);
  status.set_base_bytes(8 << 20);
  status.set_history_bytes(1 << 20);
  status.set_max_history_bytes(256 << 20);
  CHECK(StatusText(status) ==
        "paramd 0.1.0, up 2h 01m, draining; connections 5 (1 refused), sessions 2; in flight 1.0 MiB of 64.0 MiB, 0 "
        "queued; "
        "shared 6.0 MiB of 4.0 GiB, with 3 workers; memory 200.0 MiB, of it base centers 8.0 MiB, rounds 0 B, "
        "histories 1.0 MiB of 256.0 MiB, images 0 B\n"
        "\n"
        "no models\n");
  *status.add_models() = Model();
  status.set_state_dir("/state");
  status.set_log_bytes(2 << 20);
  status.set_log_waiting(3);
  status.set_log_problem("no space left");
  const std::string text = StatusText(status);
  CHECK_THAT(text,
             Catch::Contains("state in /state, journal 2.0 MiB, 3 records waiting; it has a problem: no space left\n"));
  CHECK_THAT(text, Catch::Contains("\nmnist  adag") && Catch::Contains("\nMODEL  WORKER ") &&
                       Catch::Contains("\nmnist  worker-1"));
  const OrderedJson json = StatusJson(status);
  CHECK(json["log_problem"] == "no space left");
  CHECK(json["server_version"] == "0.1.0");
  CHECK(json["in_flight_bytes"] == 1 << 20);
  CHECK(json["shared_bytes"] == 6 << 20);
  CHECK(json["models"][0]["name"] == "mnist");
}

TEST_CASE("Algorithms come with their hyperparameters") {
  v1::ListAlgorithmsReply reply;
  v1::AlgorithmInfo* const algorithm = reply.add_algorithms();
  algorithm->set_name("aeasgd");
  algorithm->set_description("elastic averaging");
  algorithm->set_default_consistency("async");
  v1::AlgorithmInfo::Parameter* const rho = algorithm->add_hyperparameters();
  rho->set_name("rho");
  rho->set_default_value(5);
  rho->set_max(1e6);
  rho->set_description("strength of the spring");
  CHECK(AlgorithmsText(reply) ==
        "aeasgd (async): elastic averaging\n"
        "  HYPERPARAMETER  DEFAULT  MIN    MAX  MEANING\n"
        "  rho                   5    0  1e+06  strength of the spring\n");
  CHECK(AlgorithmsJson(reply).dump() ==
        R"([{"name":"aeasgd","description":"elastic averaging","default_consistency":"async","hyperparameters":)"
        R"([{"name":"rho","default":5.0,"min":0.0,"max":1000000.0,"description":"strength of the spring"}]}])");
}

TEST_CASE("An outcome names those that live and those that did not finish") {
  v1::ModelInfo model;
  CHECK(OutcomeOf(model).joined == 0);
  AddWorker(&model, "a", v1::WorkerInfo::LEFT);
  CHECK(OutcomeOf(model).live.empty());
  CHECK(OutcomeOf(model).failures.empty());
  AddWorker(&model, "b", v1::WorkerInfo::LIVE);
  AddWorker(&model, "c", v1::WorkerInfo::EXPIRED);
  AddWorker(&model, "d", v1::WorkerInfo::FAILED)->set_message("out of memory");
  const Outcome outcome = OutcomeOf(model);
  CHECK(outcome.joined == 4);
  CHECK(outcome.live == std::vector<std::string>{"b"});
  CHECK(outcome.failures == std::vector<std::string>{"c expired", "d failed: out of memory"});
}

}  // namespace
}  // namespace paramd::cli
