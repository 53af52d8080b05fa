// What people type to describe a model.
#ifndef PARAMD_CLIENT_CLI_MODEL_SPEC_H_
#define PARAMD_CLIENT_CLI_MODEL_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/paramd.pb.h"

namespace paramd::cli {

// "w:784x128" is a matrix, "b:128" a vector, "s:" a scalar; the last colon counts. Usage errors say what is wrong.
absl::StatusOr<v1::Tensor> ParseTensor(const std::string& text);

// "rho=2.5". Usage errors say what is wrong.
absl::StatusOr<v1::Hyperparameter> ParseHyperparameter(const std::string& text);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_MODEL_SPEC_H_
