// What paramctl does with files of a daemon, without one.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/json_view.h"
#include "client/cli/verbs.h"
#include "proto/text.h"
#include "state/log.h"
#include "state/state_folder.h"

namespace paramd::cli {

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
      log, [](const LogRecord& /*record*/) { return absl::OkStatus(); }, [&](const std::string& what) { torn = what; });
  if (!absl::IsNotFound(read.status())) {
    tell(log,
         read.ok() ? absl::StrCat("  ", read->segments, " segments", torn.empty() ? "" : "; " + Printable(torn)) : "",
         read.status());
  }
  Print(arguments, text, {{"files", json}}, to.out);
  if (damaged.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(damaged.size(), " of ", json.size(), " are damaged, first ",
                                          Printable(damaged.front()),
                                          "; a start takes the newest good checkpoint of each model"));
}

}  // namespace paramd::cli
