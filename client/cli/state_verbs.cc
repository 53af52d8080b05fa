// What paramctl does with models on disk: checkpoints of a daemon, and its files without one.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/json_view.h"
#include "client/cli/table.h"
#include "client/cli/verbs.h"
#include "proto/text.h"
#include "state/log.h"
#include "state/state.pb.h"
#include "state/state_folder.h"

namespace paramd::cli {
namespace {

void PrintCheckpoints(const Arguments& arguments, const v1::CheckpointReply& reply, const Output& to) {
  OrderedJson json = OrderedJson::array();
  Table table({"MODEL", ">VERSION", ">SIZE", ">AGE", "FILE"});
  for (const v1::CheckpointInfo& checkpoint : reply.checkpoints()) {
    table.AddRow({checkpoint.model(), CountText(static_cast<uint64_t>(checkpoint.version())),
                  BytesText(checkpoint.bytes()), DurationText(checkpoint.age_s()), checkpoint.file()});
    json.push_back({{"model", checkpoint.model()},
                    {"number", checkpoint.number()},
                    {"version", checkpoint.version()},
                    {"size_bytes", checkpoint.bytes()},
                    {"age_s", checkpoint.age_s()},
                    {"file", checkpoint.file()}});
  }
  Print(arguments, reply.checkpoints().empty() ? "no checkpoints\n" : table.Text(), json, to.out);
}

// The operand that may be left out.
std::string ModelOf(const Arguments& arguments) {
  return arguments.operands().empty() ? "" : arguments.operands().front();
}

}  // namespace

absl::Status Checkpoint(Admin& admin, const Arguments& arguments, const Output& to) {
  const std::string model = ModelOf(arguments);
  if (model.empty() != arguments.Has("all")) return UsageError("checkpoint needs a NAME, or --all");
  const auto reply = admin.Checkpoint(model);
  if (!reply.ok()) return reply.status();
  PrintCheckpoints(arguments, *reply, to);
  return absl::OkStatus();
}

absl::Status ListCheckpoints(Admin& admin, const Arguments& arguments, const Output& to) {
  const auto reply = admin.ListCheckpoints(ModelOf(arguments));
  if (!reply.ok()) return reply.status();
  PrintCheckpoints(arguments, *reply, to);
  return absl::OkStatus();
}

absl::Status Restore(Admin& admin, const Arguments& arguments, const Output& to) {
  v1::RestoreModelRequest request;
  request.set_model(arguments.operands()[0]);
  request.set_as(arguments.Value("as"));
  if (arguments.Has("version")) {
    const auto version = arguments.Integer("version", 0, 0);
    if (!version.ok()) return version.status();
    request.set_version(*version);
  }
  const auto model = admin.RestoreModel(request);
  if (!model.ok()) return model.status();
  const std::string version = CountText(static_cast<uint64_t>(model->version()));
  Print(arguments,
        request.as().empty() ? absl::StrCat("restored ", Printable(request.model()), " to version ", version,
                                            "; its workers pull again\n")
                             : absl::StrCat("restored version ", version, " of ", Printable(request.model()), " as ",
                                            Printable(request.as()), "\n"),
        ModelJson(*model), to.out);
  return absl::OkStatus();
}

absl::Status Verify(const Arguments& arguments, const Output& to) {
  const std::string& folder = arguments.operands()[0];
  const auto models = ListStoredModels(folder);
  if (!models.ok()) return models.status();
  std::vector<std::string> damaged;
  OrderedJson json = OrderedJson::array();
  std::string text;
  const auto tell = [&](const std::string& path, const std::string& what, const absl::Status& status) {
    absl::StrAppend(&text, status.ok() ? "good     " : "DAMAGED  ", Printable(path), status.ok() ? what : "", "\n");
    if (!status.ok()) absl::StrAppend(&text, "         ", Printable(status.message()), "\n");
    json.push_back({{"path", path}, {"good", status.ok()}, {"problem", std::string(status.message())}});
    if (!status.ok()) damaged.push_back(path);
  };
  const auto identity = ReadDaemonId(folder);
  tell(folder + "/daemon", "", identity.status());
  for (const StoredModel& model : *models) {
    for (const StoredCheckpoint& checkpoint : model.checkpoints) {
      const auto file = ModelFile::Open(checkpoint.path);
      absl::Status status = file.status();
      if (status.ok() && !file->has_record()) {
        status = absl::DataLossError(absl::StrCat(checkpoint.path, ": it is no checkpoint"));
      }
      if (status.ok()) status = file->Verify();
      tell(checkpoint.path,
           status.ok() ? absl::StrCat("  ", Printable(file->spec().name()), " version ", file->version()) : "", status);
    }
  }
  const std::string log = folder + "/log";
  std::string torn;
  const auto read = Log::Read(
      log,
      [](const LogRecord& next) {
        state::Record record;
        return record.ParseFromArray(next.head.data(), static_cast<int>(next.head.size()))
                   ? absl::OkStatus()
                   : absl::DataLossError("the record can't be read; was it written by a newer paramd?");
      },
      [&](const std::string& what) { torn = what; });
  absl::Status log_status = read.status();
  if (absl::IsNotFound(log_status)) {
    log_status = absl::DataLossError(
        absl::StrCat(log, ": there is no journal; what it had is lost, and a start goes on from the checkpoints"));
  }
  tell(log,
       read.ok() ? absl::StrCat("  ", read->segments, " segments", torn.empty() ? "" : "; " + Printable(torn)) : "",
       log_status);
  Print(arguments, text, {{"files", json}}, to.out);
  if (damaged.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(damaged.size(), " of ", json.size(), " are damaged, first ",
                                          Printable(damaged.front()),
                                          "; a start takes the newest good checkpoint of each model"));
}

}  // namespace paramd::cli
