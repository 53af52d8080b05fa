#include "client/cli/outcome.h"

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace paramd::cli {

Outcome OutcomeOf(const v1::ModelInfo& model) {
  Outcome outcome;
  outcome.joined = model.workers_size();
  for (const v1::WorkerInfo& worker : model.workers()) {
    if (worker.state() == v1::WorkerInfo::LIVE) outcome.live.push_back(Printable(worker.worker()));
    if (worker.state() == v1::WorkerInfo::EXPIRED) outcome.failures.push_back(Printable(worker.worker()) + " expired");
    if (worker.state() == v1::WorkerInfo::FAILED) {
      outcome.failures.push_back(Printable(absl::StrCat(worker.worker(), " failed: ", worker.message())));
    }
  }
  return outcome;
}

}  // namespace paramd::cli
