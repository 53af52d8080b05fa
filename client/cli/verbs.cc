#include "client/cli/verbs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/center_file.h"
#include "client/cli/interrupt.h"
#include "client/cli/json_view.h"
#include "client/cli/model_spec.h"
#include "client/cli/outcome.h"
#include "client/cli/past.h"
#include "client/cli/table.h"
#include "client/cli/text_view.h"
#include "client/worker.h"
#include "proto/text.h"
#include "state/model_file.h"
#include "sync/clock.h"

namespace paramd::cli {
namespace {

constexpr double kDefaultTimeoutSeconds = 30;
constexpr double kDefaultWatchSeconds = 2;
constexpr int64_t kDefaultTableRecords = 20;
constexpr absl::Duration kWaitInterval = absl::Milliseconds(200);

absl::Status Annotate(const absl::Status& status, const std::string& before) {
  return absl::Status(status.code(), absl::StrCat(before, std::string(status.message())));
}

// Whether that is what our words go to, too.
bool IsStandardOutput(const std::string& path) {
  if (path == "-" || path == "/dev/stdout") return true;
  struct stat file {};
  struct stat output {};
  if (::stat(path.c_str(), &file) != 0 || ::fstat(STDOUT_FILENO, &output) != 0) return false;
  return !S_ISCHR(file.st_mode) && file.st_dev == output.st_dev && file.st_ino == output.st_ino;
}

// What is left to say of a commit that did not end well.
std::string WhatBecame(CommitState state) {
  switch (state) {
    case CommitState::kApplied:
      return "the commit is in the center, but: ";
    case CommitState::kUnknown:
      return "the commit may be in the center: ";
    case CommitState::kNone:
    case CommitState::kNotApplied:
      break;
  }
  return "";
}

absl::Status ReadSpec(const Arguments& arguments, v1::ModelSpec* spec) {
  spec->set_name(arguments.operands()[0]);
  spec->set_algorithm(arguments.Value("algorithm"));
  spec->set_consistency(arguments.Value("consistency"));
  for (const std::string& text : arguments.Values("tensor")) {
    auto tensor = ParseTensor(text);
    if (!tensor.ok()) return tensor.status();
    *spec->add_tensors() = *std::move(tensor);
  }
  std::set<std::string> names;
  for (const std::string& text : arguments.Values("set")) {
    auto hyperparameter = ParseHyperparameter(text);
    if (!hyperparameter.ok()) return hyperparameter.status();
    if (!names.insert(hyperparameter->name()).second) {
      return UsageError(absl::StrCat("--set gives ", hyperparameter->name(), " twice"));
    }
    *spec->add_hyperparameters() = *std::move(hyperparameter);
  }
  return absl::OkStatus();
}

// What a model's file says, and the command line does not.
void TakeOver(const ModelFile& file, v1::ModelSpec* spec) {
  if (!file.whole()) return;
  if (spec->consistency().empty()) spec->set_consistency(file.spec().consistency());
  // Another algorithm has other hyperparameters.
  if (!spec->algorithm().empty() && spec->algorithm() != file.spec().algorithm()) return;
  spec->set_algorithm(file.spec().algorithm());
  std::set<std::string> given;
  for (const v1::Hyperparameter& h : spec->hyperparameters()) given.insert(h.name());
  for (const v1::Hyperparameter& h : file.spec().hyperparameters()) {
    if (given.count(h.name()) == 0) *spec->add_hyperparameters() = h;
  }
}

// What a model begins with.
struct FirstCenter {
  std::string source;
  std::vector<float> floats;  // the center, then the state vectors
  size_t state_vectors = 0;
  Admin::Point at;
  state::Checkpoint past;
};

absl::StatusOr<FirstCenter> ReadFirstCenter(const ModelFile& file, const v1::ModelSpec& spec) {
  FirstCenter first{.source = file.file().path()};
  auto center = ReadCenter(file, spec.tensors());
  if (!center.ok()) return center.status();
  first.floats = *std::move(center);
  if (!file.whole()) return first;
  first.at = {.version = file.version(), .rounds = file.rounds()};
  if (file.has_record()) {
    auto past = file.ReadRecord();
    if (!past.ok()) return past.status();
    first.past = *std::move(past);
  }
  // Those of another algorithm mean nothing to this one.
  if (file.state_vectors() == 0 || spec.algorithm() != file.spec().algorithm()) return first;
  for (int i = 0; i < spec.tensors_size(); ++i) {
    if (spec.tensors(i).name() == file.spec().tensors(i).name()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        first.source, ": its state vectors are in the order of its own tensors; leave out --tensor to keep that"));
  }
  const size_t length = first.floats.size();
  first.state_vectors = file.state_vectors();
  first.floats.resize(length * (1 + first.state_vectors));
  for (size_t i = 0; i < first.state_vectors; ++i) {
    if (auto status = file.ReadState(i, {absl::MakeSpan(first.floats).subspan(length * (1 + i), length)});
        !status.ok()) {
      return status;
    }
  }
  return first;
}

// Gives a model that has just been created its past and its center; one that has its own is compared.
absl::Status Begin(Admin& admin, const v1::ModelInfo& model, const FirstCenter& first) {
  if (first.state_vectors > 0 && first.state_vectors != model.state_vectors()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has ", first.state_vectors, " state vectors, and the server's algorithm '",
                     model.spec().algorithm(), "' has ", model.state_vectors(), "; is it another version of it?"));
  }
  if (!model.initialized() && first.past.id() != 0) {
    v1::AddPastRequest request;
    request.set_model(model.spec().name());
    request.set_model_id(model.id());
    for (std::string& piece : PiecesOfPast(first.past)) {
      request.set_past(std::move(piece));
      if (auto status = admin.AddPast(request); !status.ok()) return status;
    }
  }
  return admin.InitializeAt(model.spec().name(), first.floats, first.at);
}

}  // namespace

void Print(const Arguments& arguments, const std::string& text, const OrderedJson& json, std::ostream& out) {
  out << (arguments.Has("json") ? JsonText(json) : text);
}

std::string ServerAddress(const Arguments& arguments) {
  const char* const environment = std::getenv("PARAMD_SERVER");
  return arguments.Value("server", environment == nullptr || *environment == '\0' ? "127.0.0.1:5000" : environment);
}

Security SecurityOf(const Arguments& arguments) {
  return {.tls_ca = arguments.Value("tls_ca"),
          .tls_cert = arguments.Value("tls_cert"),
          .tls_key = arguments.Value("tls_key"),
          .token_file = arguments.Value("token_file"),
          .insecure = arguments.Has("insecure")};
}

absl::StatusOr<absl::Duration> CallTimeout(const Arguments& arguments) {
  const auto seconds = arguments.Number("timeout", kDefaultTimeoutSeconds, 0.001);
  if (!seconds.ok()) return seconds.status();
  return absl::Seconds(*seconds);
}

absl::Status Create(Admin& admin, const Arguments& arguments, const Output& to) {
  v1::ModelSpec described;
  v1::ModelSpec* const spec = &described;
  if (auto status = ReadSpec(arguments, spec); !status.ok()) return status;
  const std::string path = arguments.Value("from");
  if (path.empty() && spec->tensors().empty()) {
    return UsageError("create needs tensors: --tensor=NAME:ROWSxCOLS for each, or --from=FILE");
  }

  absl::StatusOr<FirstCenter> first = FirstCenter();
  if (!path.empty()) {
    const auto file = ModelFile::Open(path);
    if (!file.ok()) return file.status();
    TakeOver(*file, spec);
    if (spec->tensors().empty()) {
      auto tensors = TensorsOf(*file);
      if (!tensors.ok()) return tensors.status();
      *spec->mutable_tensors() = *std::move(tensors);
    }
    first = ReadFirstCenter(*file, *spec);
    if (!first.ok()) return first.status();
  }

  if (spec->algorithm().empty()) {
    return UsageError("create needs --algorithm=ALGORITHM, or --from=FILE that `paramctl pull` wrote");
  }
  auto model = admin.CreateModel(*spec);
  if (!model.ok()) return model.status();
  if (!path.empty()) {
    if (const auto status = Begin(admin, *model, *first); !status.ok()) {
      return Annotate(status, absl::StrCat("model '", spec->name(), "' is there, but ", first->source,
                                           " did not become its center: "));
    }
    model = admin.GetModel(spec->name());
    if (!model.ok()) return model.status();
  }
  Print(arguments,
        absl::StrCat("created ", model->spec().name(), ": ", model->spec().algorithm(), ", ",
                     model->spec().consistency(), ", ", CountText(model->parameters()), " parameters",
                     path.empty() ? "" : ", initialized from " + first->source,
                     model->version() == 0 ? "" : absl::StrCat(", version ", model->version()), "\n"),
        ModelJson(*model), to.out);
  return absl::OkStatus();
}

absl::Status List(Admin& admin, const Arguments& arguments, const Output& to) {
  const auto reply = admin.ListModels();
  if (!reply.ok()) return reply.status();
  Print(arguments, ModelsText(reply->models()), ModelsJson(reply->models()), to.out);
  return absl::OkStatus();
}

absl::Status Show(Admin& admin, const Arguments& arguments, const Output& to) {
  const auto model = admin.GetModel(arguments.operands()[0]);
  if (!model.ok()) return model.status();
  Print(arguments, ModelText(*model), ModelJson(*model), to.out);
  return absl::OkStatus();
}

absl::Status Delete(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string& name = arguments.operands()[0];
  if (const auto status = admin.DeleteModel(name); !status.ok()) return status;
  Print(arguments, absl::StrCat("deleted ", name, "\n"), {{"deleted", name}}, to.out);
  return absl::OkStatus();
}

absl::Status Pull(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string& name = arguments.operands()[0];
  const std::string& path = arguments.operands()[1];
  auto model = admin.GetModel(name);
  if (!model.ok()) return model.status();
  const uint64_t id = model->id();
  const size_t length = model->parameters();
  std::vector<float> floats(length * (1 + model->state_vectors()));
  const auto pulled = admin.PullWithState(name, absl::MakeSpan(floats));
  if (!pulled.ok()) return pulled.status();
  // What became of it until then, and perhaps a little more.
  model = admin.GetModel(name);
  if (!model.ok()) return model.status();
  if (model->id() != id) return absl::AbortedError("the model was deleted and created again meanwhile; pull again");
  v1::GetHistoryRequest history_request;
  history_request.set_model(name);
  const auto history = admin.GetHistory(history_request);
  if (!history.ok()) return history.status();
  const bool to_output = IsStandardOutput(path);
  const state::Checkpoint past = PastOf(*model, *history, *pulled);
  ModelFileContent content{
      .spec = model->spec(), .version = pulled->version, .rounds = pulled->rounds, .record = &past};
  const auto vector = [&](size_t i) { return absl::MakeConstSpan(floats).subspan(i * length, length); };
  content.center = {vector(0)};
  for (size_t i = 1; i * length < floats.size(); ++i) content.state.push_back({vector(i)});
  const auto written = to_output ? WriteModelFile(&to.out, content) : WriteModelFile(path, content);
  if (!written.ok()) return written;
  const std::string file = to_output ? "standard output" : path;
  Print(arguments,
        absl::StrCat("pulled version ", CountText(static_cast<uint64_t>(pulled->version)), " of ", name, " (",
                     BytesText(floats.size() * sizeof(float)), ") to ", file,
                     model->problem().empty() ? "" : "; it has a problem: ", Printable(model->problem()), "\n"),
        {{"model", name},
         {"version", pulled->version},
         {"parameters", length},
         {"file", file},
         {"problem", model->problem()}},
        to_output ? to.err : to.out);
  return absl::OkStatus();
}

absl::Status Commit(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string& name = arguments.operands()[0];
  const auto timeout = CallTimeout(arguments);
  if (!timeout.ok()) return timeout.status();
  const auto file = ModelFile::Open(arguments.operands()[1]);
  if (!file.ok()) return file.status();
  const auto model = admin.GetModel(name);
  if (!model.ok()) return model.status();
  const auto update = ReadCenter(*file, model->spec().tensors());
  if (!update.ok()) return update.status();

  // A worker that is interrupted leaves, so that nobody waits for it.
  const Interrupt interrupt;
  auto worker = Worker::Join({.server = ServerAddress(arguments),
                              .model = name,
                              .worker = arguments.Value("worker"),
                              .security = SecurityOf(arguments),
                              .join_timeout = *timeout,
                              .rpc_timeout = *timeout,
                              .stop = interrupt.token()});
  const auto told = [&interrupt](const absl::Status& status) {
    const bool interrupted = absl::IsCancelled(status) && interrupt.token().stop_requested();
    return interrupted ? absl::CancelledError("interrupted") : status;
  };
  if (!worker.ok()) return told(worker.status());
  // Some algorithms merge a commit only with the center that it was made from.
  std::vector<float> center(update->size());
  absl::StatusOr<Exchanged> committed = (*worker)->Pull(absl::MakeSpan(center), *timeout);
  if (committed.ok()) committed = (*worker)->Commit(*update, *timeout);
  if (committed.ok() && !committed->applied) {
    committed = absl::AbortedError("the daemon was started again meanwhile, from an older center; commit again");
  }
  const absl::Status failure = told(committed.status());
  const CommitState state = (*worker)->last_commit();
  const auto left = (*worker)->Leave(std::string(failure.message()));
  if (!failure.ok()) return Annotate(failure, WhatBecame(state));
  if (!left.ok()) return Annotate(left, "committed, but could not leave: ");
  const uint64_t incarnation = (*worker)->incarnation();
  Print(arguments,
        absl::StrCat("committed ", file->file().path(), " to ", name, " as ", arguments.Value("worker"),
                     " (incarnation ", incarnation, "): version ", CountText(static_cast<uint64_t>(committed->version)),
                     ", staleness ", committed->staleness, "\n"),
        {{"model", name},
         {"worker", arguments.Value("worker")},
         {"incarnation", incarnation},
         {"version", committed->version},
         {"staleness", committed->staleness}},
        to.out);
  return absl::OkStatus();
}

absl::Status ShowHistory(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string format = arguments.Value("format", arguments.Has("json") ? "json" : "table");
  if (format != "table" && format != "csv" && format != "json") {
    return UsageError(absl::StrCat("--format=", format, ": not one of table, csv, json"));
  }
  if (arguments.Has("json") && format != "json") return UsageError("--json and --format=" + format + " contradict");
  const auto last = arguments.Integer("last", format == "table" ? kDefaultTableRecords : 0, 0);
  if (!last.ok()) return last.status();

  v1::GetHistoryRequest request;
  request.set_model(arguments.operands()[0]);
  request.set_worker(arguments.Value("worker"));
  request.set_averaged(arguments.Has("averaged"));
  const auto history = admin.GetHistory(request);
  if (!history.ok()) return history.status();
  if (format == "csv") {
    to.out << HistoryCsv(*history, *last);
  } else if (format == "json") {
    to.out << JsonText(HistoryJson(request.model(), *history, *last));
  } else {
    to.out << HistoryText(*history, *last);
  }
  return absl::OkStatus();
}

absl::Status ShowStatus(Admin& admin, const Arguments& arguments, const Output& to) {
  const bool watch = arguments.Has("watch");
  const auto interval = arguments.Number("watch", kDefaultWatchSeconds, 0.1);
  if (!interval.ok()) return interval.status();
  const bool clear = watch && !arguments.Has("json") && ::isatty(STDOUT_FILENO) != 0;
  do {
    auto status = admin.GetStatus();
    if (!status.ok()) return status.status();
    for (v1::ModelInfo& model : *status->mutable_models()) {
      // With its workers, unless it is gone by now.
      if (auto whole = admin.GetModel(model.spec().name()); whole.ok()) model = *std::move(whole);
    }
    if (arguments.Has("json")) {
      to.out << JsonText(StatusJson(*status), /*one_line=*/watch);
    } else {
      to.out << (clear ? "\x1b[H\x1b[2J" : "") << StatusText(*status) << (watch && !clear ? "\n" : "");
    }
    to.out.flush();
    if (watch) absl::SleepFor(absl::Seconds(*interval));
  } while (watch && to.out.good());
  return absl::OkStatus();
}

absl::Status Wait(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string& name = arguments.operands()[0];
  const auto workers = arguments.Integer("workers", 1, 1);
  if (!workers.ok()) return workers.status();
  const auto timeout = CallTimeout(arguments);
  if (!timeout.ok()) return timeout.status();
  const absl::Time deadline = arguments.Has("timeout") ? Clock::Steady()->Now() + *timeout : absl::InfiniteFuture();

  while (true) {
    const auto model = admin.GetModel(name);
    if (!model.ok()) return model.status();
    const Outcome outcome = OutcomeOf(*model);
    if (outcome.joined >= *workers && outcome.live.empty()) {
      if (!outcome.failures.empty()) {
        return absl::AbortedError(absl::StrCat(outcome.failures.size(), " of ", outcome.joined, " workers of '", name,
                                               "' did not finish: ", absl::StrJoin(outcome.failures, "; ")));
      }
      Print(arguments,
            absl::StrCat("all ", outcome.joined, " workers of ", name, " are done; version ",
                         CountText(static_cast<uint64_t>(model->version())), "\n"),
            {{"model", name}, {"workers", outcome.joined}, {"version", model->version()}}, to.out);
      return absl::OkStatus();
    }
    if (Clock::Steady()->Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the workers of '", name, "' were not done after ", DurationText(absl::ToDoubleSeconds(*timeout)), ": ",
          outcome.joined, " joined (awaited: at least ", *workers, ")",
          outcome.live.empty() ? "" : ", still live: " + absl::StrJoin(outcome.live, ", ")));
    }
    absl::SleepFor(std::min(kWaitInterval, deadline - Clock::Steady()->Now()));
  }
}

absl::Status ListAlgorithms(Admin& admin, const Arguments& arguments, const Output& to) {
  const auto reply = admin.ListAlgorithms();
  if (!reply.ok()) return reply.status();
  Print(arguments, AlgorithmsText(*reply), AlgorithmsJson(*reply), to.out);
  return absl::OkStatus();
}

}  // namespace paramd::cli
