#include "client/request_check.h"

#include "proto/text.h"

namespace paramd {

absl::Status CheckRequest(const v1::CreateModelRequest& request) {
  const v1::ModelSpec& spec = request.spec();
  absl::Status status = CheckName("model", spec.name());
  status.Update(CheckName("algorithm", spec.algorithm()));
  status.Update(CheckName("consistency", spec.consistency()));
  for (const v1::Tensor& tensor : spec.tensors()) status.Update(CheckName("tensor", tensor.name()));
  for (const v1::Hyperparameter& h : spec.hyperparameters()) status.Update(CheckName("hyperparameter", h.name()));
  return status;
}

absl::Status CheckRequest(const v1::GetModelRequest& request) { return CheckName("model", request.model()); }

absl::Status CheckRequest(const v1::DeleteModelRequest& request) { return CheckName("model", request.model()); }

absl::Status CheckRequest(const v1::JoinRequest& request) {
  absl::Status status = CheckName("model", request.model());
  status.Update(CheckName("worker", request.worker()));
  return status;
}

absl::Status CheckRequest(const v1::GetHistoryRequest& request) {
  absl::Status status = CheckName("model", request.model());
  status.Update(CheckName("worker", request.worker()));
  status.Update(CheckName("page_token", request.page_token()));
  return status;
}

}  // namespace paramd
