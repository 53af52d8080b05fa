// The control plane: what paramctl and launchers do with a server.
#ifndef PARAMD_CLIENT_ADMIN_H_
#define PARAMD_CLIENT_ADMIN_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/exchanger.h"
#include "client/security.h"
#include "proto/paramd.pb.h"

namespace paramd {

// Thread-safe; calls do not wait for each other. Every one returns by `timeout`; UNAVAILABLE is retried until then.
// Errors are the server's, or DEADLINE_EXCEEDED or UNAVAILABLE with the address that did not answer, or
// FAILED_PRECONDITION in a process that was forked since.
class Admin {
 public:
  // INVALID_ARGUMENT for a malformed address (HOST:PORT or unix:PATH; empty: PARAMD_SERVER), and for what is wrong with
  // `security`. Does not connect yet.
  static absl::StatusOr<std::unique_ptr<Admin>> Connect(const std::string& server,
                                                        absl::Duration timeout = absl::Seconds(30),
                                                        const Security& security = {});
  ~Admin();

  // ALREADY_EXISTS if it exists and differs; INVALID_ARGUMENT says what is wrong with the spec.
  absl::StatusOr<v1::ModelInfo> CreateModel(const v1::ModelSpec& spec);
  absl::StatusOr<v1::ModelInfo> GetModel(const std::string& model);  // NOT_FOUND
  absl::StatusOr<v1::ListModelsReply> ListModels();
  absl::Status DeleteModel(const std::string& model);  // NOT_FOUND
  absl::StatusOr<v1::ListAlgorithmsReply> ListAlgorithms();
  absl::StatusOr<v1::GetHistoryReply> GetHistory(v1::GetHistoryRequest request);  // all pages
  absl::StatusOr<v1::ServerStatus> GetStatus();

  // Of a server that keeps its state; else FAILED_PRECONDITION. An empty name: of all models.
  absl::StatusOr<v1::CheckpointReply> Checkpoint(const std::string& model);
  absl::StatusOr<v1::CheckpointReply> ListCheckpoints(const std::string& model);
  absl::StatusOr<v1::ModelInfo> RestoreModel(const v1::RestoreModelRequest& request);
  // See the wire.
  absl::Status AddPast(const v1::AddPastRequest& request);

  // Reads a model's center, as a reader that never joined. Waits for its initialization up to the timeout.
  absl::StatusOr<Exchanged> Pull(const std::string& model, absl::Span<float> center);

  // How far a center is.
  struct Point {
    int64_t version = 0;
    int64_t rounds = 0;
  };
  // The same with all state vectors (ModelInfo::state_vectors) behind the center.
  absl::StatusOr<Point> PullWithState(const std::string& model, absl::Span<float> floats);

  // Sets a model's first center. ALREADY_EXISTS if it has another one; OK if it has this one, or had at first.
  absl::Status Initialize(const std::string& model, absl::Span<const float> center);
  // The same of one that goes on from `at`. All state vectors may come behind the center.
  absl::Status InitializeAt(const std::string& model, absl::Span<const float> floats, const Point& at);

 private:
  class Impl;
  explicit Admin(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_ADMIN_H_
