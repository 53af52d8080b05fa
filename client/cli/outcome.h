// What became of a model's workers.
#ifndef PARAMD_CLIENT_CLI_OUTCOME_H_
#define PARAMD_CLIENT_CLI_OUTCOME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/paramd.pb.h"

namespace paramd::cli {

struct Outcome {
  int64_t joined = 0;
  std::vector<std::string> live;
  std::vector<std::string> failures;  // "worker-2 failed: out of memory", "worker-3 expired"
};

Outcome OutcomeOf(const v1::ModelInfo& model);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_OUTCOME_H_
