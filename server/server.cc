#include "server/server.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "proto/address.h"
#include "proto/paramd.grpc.pb.h"
#include "proto/tensor_codec.h"
#include "proto/text.h"
#include "proto/version.h"
#include "server/acceptor.h"
#include "server/access.h"
#include "server/apply_pool.h"
#include "server/certificates.h"
#include "server/health.h"
#include "server/listening.h"
#include "server/models.h"
#include "server/past.h"
#include "server/pollers.h"
#include "server/reflection_call.h"
#include "server/session.h"
#include "server/state_keeper.h"
#include "server/streams.h"
#include "server/unary_call.h"
#include "shm/segment_server.h"
#include "sync/clock.h"

namespace paramd {
namespace {

// That control calls get to end in, and connections to be closed by their clients, when a drain has come to its end.
constexpr absl::Duration kLastCalls = absl::Milliseconds(100);
// That gRPC gets to end in after that, before the connections of peers that do not read are cut.
constexpr absl::Duration kLastWrites = absl::Milliseconds(200);

// Of a call, with all that gRPC sends along.
constexpr int kMaxMetadataBytes = 8 << 10;

// Of a report: they take as long as it takes to wake a thread several times over.
constexpr int kManyRecords = 256;

// A tick that comes so much too late is nobody's fault but the machine's, or of whoever stopped this process.
constexpr absl::Duration kOverslept = absl::Milliseconds(50);

// Certificates and tokens that were replaced are in use this much later.
constexpr absl::Duration kReloadInterval = absl::Seconds(1);

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int ApplyThreads(const ServerOptions& options) {
  if (options.apply_threads > 0) return options.apply_threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, INT_MAX));
}

// A task for whichever thread polls.
class PostedTask : public Event {
 public:
  static void Post(grpc::CompletionQueue* queue, LiveCalls* calls, std::function<void()> task) {
    auto* posted = new PostedTask(calls, std::move(task));
    posted->alarm_.Set(queue, gpr_now(GPR_CLOCK_MONOTONIC), static_cast<Event*>(posted));
  }

  void Fire(bool /*ok*/) override {
    task_();
    delete this;
  }

 private:
  PostedTask(LiveCalls* calls, std::function<void()> task) : live_(calls), task_(std::move(task)) {}

  const LiveCall live_;
  const std::function<void()> task_;
  grpc::Alarm alarm_;
};

// `keeper` may be null.
ModelsOptions ToModelsOptions(const ServerOptions& options, EventSink* events, StateKeeper* keeper,
                              std::function<void(std::function<void()>)> post) {
  ModelsOptions models;
  models.model.clock = options.clock;
  models.model.lease = options.lease;
  models.model.max_workers = options.max_workers;
  models.model.events = events;
  models.model.step_aside = Pollers::StepAside;
  models.model.post = post;
  models.model.apply_pool = std::make_shared<ApplyPool>(ApplyThreads(options));
  models.model.recorder = keeper;
  models.model.journal = keeper != nullptr && options.state.durability == Durability::kJournal;
  if (keeper != nullptr) models.daemon_id = keeper->daemon_id();
  models.max_models = options.max_models;
  models.max_model_bytes = options.max_model_bytes;
  models.max_history_records = options.max_history_records;
  models.max_history_bytes = options.max_history_bytes;
  models.budget = {.clock = options.clock,
                   .max_in_flight_bytes = options.max_in_flight_bytes,
                   .stall_timeout = options.stall_timeout,
                   .post = std::move(post)};
  return models;
}

v1::AlgorithmInfo Describe(const Algorithm& algorithm) {
  v1::AlgorithmInfo info;
  info.set_name(algorithm.name);
  info.set_description(Repaired(algorithm.description));
  info.set_default_consistency(algorithm.default_consistency);
  for (const HyperparameterSpec& spec : HyperparameterSpecs(algorithm)) {
    v1::AlgorithmInfo::Parameter* h = info.add_hyperparameters();
    h->set_name(spec.name);
    h->set_default_value(spec.default_value);
    h->set_min(spec.min);
    h->set_max(spec.max);
    h->set_description(Repaired(spec.description));
  }
  return info;
}

// A StatusOr as a handler returns it.
template <typename Reply>
absl::Status Unpack(absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  return result.status();
}

}  // namespace

absl::Status CheckOptions(const ServerOptions& options) {
  auto address = ParseListenAddress(options.listen);
  if (!address.ok()) return address.status();
  for (const auto& [flag, value] : {std::pair{"--tls_cert", &options.tls_cert},
                                    {"--tls_key", &options.tls_key},
                                    {"--tls_client_ca", &options.tls_client_ca}}) {
    if (absl::StartsWith(*value, "-----BEGIN")) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag,
                       " is the name of a file, and was given what should be in it; what is in a flag everybody "
                       "on this host can read"));
    }
  }
  const bool tls = !options.tls_cert.empty();
  if (tls != !options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key go together: a certificate and its key; give both");
  }
  if (!tls && !options.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(
        "--tls_client_ca asks for clients' certificates, which are TLS's; give --tls_cert and --tls_key, too");
  }
  if (!address->loopback() && !options.insecure && !tls) {
    return absl::InvalidArgumentError(
        absl::StrCat("refusing to listen on ", options.listen,
                     " without TLS: whoever reaches it could read and change every model; give --tls_cert and "
                     "--tls_key (`paramctl init-tls` makes them), listen on 127.0.0.1 or a unix socket, or pass "
                     "--insecure if the network is trusted"));
  }
  if (!address->loopback() && !options.insecure && options.token_file.empty() && options.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "refusing to listen on ", options.listen,
        " for everybody: whoever reaches it could read and change every model; give --token_file (`paramctl "
        "new-token` makes tokens) or --tls_client_ca, or pass --insecure if the network is trusted"));
  }
  if (options.threads < 1 || options.threads > 1024) {
    return absl::InvalidArgumentError(absl::StrCat("threads is ", options.threads, "; use 1 to 1024"));
  }
  if (options.apply_threads < 0 || options.apply_threads > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("apply_threads is ", options.apply_threads, "; use 1 to 1024, or 0 for one a core, at most 4"));
  }
  if (options.lease < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the lease is ", absl::FormatDuration(options.lease), "; use at least 10ms"));
  }
  if (options.stall_timeout < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the stall timeout is ", absl::FormatDuration(options.stall_timeout), "; use at least 10ms"));
  }
  if (options.handshake_timeout < absl::Milliseconds(10) || options.idle_timeout < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError("handshake_timeout and idle_timeout must be at least 10ms");
  }
  if (options.max_streams_per_connection == 0 || options.max_streams_per_connection > INT_MAX) {
    return absl::InvalidArgumentError("max_streams_per_connection must be positive, and below 2147483648");
  }
  if (options.state.durability == Durability::kJournal && options.state.dir.empty()) {
    return absl::InvalidArgumentError("--durability=journal needs a folder to keep the journal in: give --state_dir");
  }
  if (options.state.every < absl::Milliseconds(10) || options.state.keep == 0) {
    return absl::InvalidArgumentError("checkpoint_every must be at least 10ms, and checkpoints_kept at least 1");
  }
  if (options.max_models == 0 || options.max_workers == 0 || options.max_model_bytes < sizeof(float)) {
    return absl::InvalidArgumentError("max_models, max_workers and max_model_bytes must be positive");
  }
  return absl::OkStatus();
}

class Server::Impl : private EventSink {
 public:
  // `keeper`: null: no state is kept.
  Impl(const ServerOptions& options, std::unique_ptr<StateKeeper> keeper)
      : options_(options),
        started_(options.clock->Now()),
        keeper_(std::move(keeper)),
        models_(ToModelsOptions(options, this, keeper_.get(),
                                [this](std::function<void()> task) { Post(std::move(task)); })) {}

  ~Impl() {
    if (keeper_ == nullptr) return;
    keeper_->Finish();
    keeper_->StopLog();
  }

  absl::Status Start();
  void Shutdown(absl::Duration grace);
  v1::ServerStatus GetStatus(bool summary);

  bool saved() const { return saved_; }
  int port() const { return port_; }
  const std::string& address() const { return address_; }

 private:
  // `name`: of the method in its service; `handle`: a handler of UnaryCall, or without `until`.
  template <typename Request, typename Reply, typename RequestMethod, typename Handle>
  void Serve(absl::string_view name, RequestMethod method, Handle handle);
  absl::Status CheckKeeper() const;
  void ServeState();
  // As Unpack, with what is known of the model's checkpoints.
  absl::Status DescribeTo(absl::StatusOr<v1::ModelInfo> model, v1::ModelInfo* reply) const;
  void AddCheckpoints(v1::ModelInfo* model) const {
    if (keeper_ != nullptr) keeper_->Describe(model->id(), model);
  }
  // The model, or all of them if the name is empty.
  absl::StatusOr<std::vector<std::shared_ptr<Model>>> ModelsOf(const std::string& name) const;
  // Lets an answer wait until what has happened to the model is on disk.
  void AwaitDurable(const std::shared_ptr<Model>& model,
                    std::function<void(std::function<void(const absl::Status&)>)>* until);
  void ServeControlPlane();
  absl::Status ShareMemory();
  std::string shared_memory_socket() const { return segments_ != nullptr ? segments_->socket_name() : ""; }
  void Tick();
  // Takes new certificates and tokens.
  void Reload();
  // `problem`: what the last reload of that could not use; OK: nothing.
  void TellReload(absl::string_view what, const absl::StatusOr<bool>& changed, absl::Status* problem);
  // Passes events on; who is gone has its shared memory given up.
  bool Wants(ModelEvent::Kind kind) const override;
  void Tell(const ModelEvent& event) override;
  void Post(std::function<void()> task) {
    // Nobody polls before Start has come so far, which may fail with models that are there already.
    if (queue_ == nullptr) return task();
    PostedTask::Post(queue_.get(), &calls_, std::move(task));
  }
  // As gRPC's, but for peers that do not read from their connections, which hold that up.
  void ShutDownTransport(absl::Time deadline);

  // Constant after Start.
  const ServerOptions options_;
  const absl::Time started_;
  std::unique_ptr<SocketFile> socket_file_;  // null: it listens on a port
  Address bound_;                            // as the system knows it
  int port_ = 0;
  std::string address_;
  std::unique_ptr<Certificates> certificates_;  // null: no TLS
  std::unique_ptr<Access> access_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  SessionEnvironment environment_;
  std::optional<Pollers> pollers_;
  std::unique_ptr<Acceptor> acceptor_;  // null before it is started
  std::thread ticker_;

  // Self-synchronized.
  LiveCalls calls_;
  const std::unique_ptr<StateKeeper> keeper_;  // null: no state is kept. Finished before models_ goes
  Models models_;
  std::unique_ptr<SegmentServer> segments_;  // set by Start; null: no shared memory. Its thread asks models_
  Streams sessions_;
  const std::shared_ptr<ChunkPool> chunks_ = ChunkPool::Create();
  Streams others_;
  Health health_;
  AsyncService service_;
  grpc::AsyncGenericService other_methods_;

  std::atomic<bool> tick_posted_{false};
  std::atomic<bool> saved_{false};

  Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time next_reload_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status certificates_problem_ ABSL_GUARDED_BY(mutex_);
  absl::Status tokens_problem_ ABSL_GUARDED_BY(mutex_);
};

absl::Status Server::Impl::Start() {
  if (auto status = CheckOptions(options_); !status.ok()) return status;
  const Address listen = *ParseListenAddress(options_.listen);
  bound_ = listen;
  if (listen.unix_socket) {
    if (auto status = Unpack(SocketFile::Prepare(listen.host), &socket_file_); !status.ok()) return status;
    bound_ = socket_file_->bound();
  }
  if (!options_.tls_cert.empty()) {
    if (auto status =
            Unpack(Certificates::Load(options_.tls_cert, options_.tls_key, options_.tls_client_ca), &certificates_);
        !status.ok()) {
      return status;
    }
  }
  if (auto status = Unpack(Access::Load({.token_file = options_.token_file, .log = options_.security_log}), &access_);
      !status.ok()) {
    return status;
  }
  auto listeners = listen.unix_socket ? socket_file_->Listen() : Listen(listen);
  if (!listeners.ok()) return listeners.status();
  port_ = listeners->port;
  bound_.port = port_;
  address_ = listen.unix_socket ? listen.ToString() : bound_.ToString();
  if (keeper_ != nullptr) {
    if (auto status = keeper_->Start(&models_); !status.ok()) return status;
  }
  if (auto status = ShareMemory(); !status.ok()) return status;

  grpc::ServerBuilder builder;
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          certificates_ != nullptr ? certificates_->credentials() : grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  builder.RegisterService(health_.service());
  builder.RegisterAsyncGenericService(&other_methods_);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(options_.max_streams_per_connection));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(options_.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(options_.idle_timeout));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 20);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  builder.AddChannelArgument(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, kMinReadBytes);
  // Finds peers that are gone without a word.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    queue_->Shutdown();
    queue_.reset();
    return absl::UnavailableError(absl::StrCat("gRPC can't serve on ", address_, "; --log_level=debug says why"));
  }
  environment_ = {.service = &service_,
                  .queue = queue_.get(),
                  .calls = &calls_,
                  .access = access_.get(),
                  .models = &models_,
                  .sessions = &sessions_,
                  .segments = segments_.get(),
                  .chunks = chunks_.get()};
  ServeControlPlane();
  health_.Listen(queue_.get(), &calls_, access_.get());
  ReflectionCall::Listen(&other_methods_, queue_.get(), &calls_, &others_, access_.get(), &options_.reflect);
  Session::Listen(&environment_);
  pollers_.emplace(
      [queue = queue_.get()](Event** event, bool* ok) {
        void* tag = nullptr;
        const bool more = queue->Next(&tag, ok);
        *event = static_cast<Event*>(tag);
        return more;
      },
      options_.threads);
  // From here on Shutdown ends what was begun.
  if (auto status = Unpack(Acceptor::Start(*std::move(listeners),
                                           {.max_connections = options_.max_connections,
                                            .max_connections_per_peer = options_.max_connections_per_peer,
                                            .log = options_.log},
                                           [connections](int listener, int connection) {
                                             grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters p;
                                             p.listener_fd = listener;
                                             p.fd = connection;
                                             connections->HandleNewConnection(&p);
                                           }),
                           &acceptor_);
      !status.ok()) {
    return status;
  }
  if (listen.unix_socket) {
    if (auto status = socket_file_->Publish(); !status.ok()) return status;
  }
  ticker_ = std::thread([this] { Tick(); });
  return absl::OkStatus();
}

absl::Status Server::Impl::ShareMemory() {
  if (options_.max_shared_bytes == 0) return absl::OkStatus();
  const auto largest = [this] {
    uint64_t bytes = 0;
    for (const auto& model : models_.List()) {
      bytes = std::max(bytes, LayOutSegment(model->checked_spec().floats).bytes);
    }
    return bytes;
  };
  return Unpack(
      SegmentServer::Start(
          {.max_bytes = options_.max_shared_bytes, .max_segment_bytes = largest, .unused_timeout = options_.lease}),
      &segments_);
}

template <typename Request, typename Reply, typename RequestMethod, typename Handle>
void Server::Impl::Serve(absl::string_view name, RequestMethod method, Handle handle) {
  using Until = typename UnaryCall<Request, Reply>::Until;
  UnaryCall<Request, Reply>::Listen(
      &calls_, access_.get(), absl::StrCat("/", v1::ParameterServer::service_full_name(), "/", name),
      [this, method](grpc::ServerContext* context, grpc::ByteBuffer* request,
                     grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer,
                     void* tag) { (service_.*method)(context, request, writer, queue_.get(), queue_.get(), tag); },
      [handle = std::move(handle)](const Request& request, Reply* reply, Until* until) -> absl::Status {
        if constexpr (std::is_invocable_v<Handle, const Request&, Reply*>) {
          return handle(request, reply);
        } else {
          return handle(request, reply, until);
        }
      });
}

void Server::Impl::AwaitDurable(const std::shared_ptr<Model>& model,
                                std::function<void(std::function<void(const absl::Status&)>)>* until) {
  if (keeper_ == nullptr) return;
  *until = [this, model](std::function<void(const absl::Status&)> done) {
    keeper_->AwaitDurable(model, std::move(done));
  };
}

absl::Status Server::Impl::CheckKeeper() const {
  if (keeper_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("this server keeps no state, and so no checkpoints; start it with --state_dir");
}

absl::StatusOr<std::vector<std::shared_ptr<Model>>> Server::Impl::ModelsOf(const std::string& name) const {
  if (auto status = CheckKeeper(); !status.ok()) return status;
  if (name.empty()) return models_.List();
  auto model = models_.Find(name);
  if (!model.ok()) return model.status();
  return std::vector<std::shared_ptr<Model>>{*std::move(model)};
}

absl::Status Server::Impl::DescribeTo(absl::StatusOr<v1::ModelInfo> model, v1::ModelInfo* reply) const {
  if (model.ok()) AddCheckpoints(&*model);
  return Unpack(std::move(model), reply);
}

void Server::Impl::ServeState() {
  Serve<v1::CheckpointRequest, v1::CheckpointReply>(
      "Checkpoint", &AsyncService::RequestCheckpoint, [this](const auto& r, auto* reply, auto* until) {
        auto models = ModelsOf(r.model());
        if (!models.ok()) return models.status();
        *until = [this, reply, models = *std::move(models)](std::function<void(const absl::Status&)> done) {
          keeper_->Checkpoint(models, [this, reply, models, done = std::move(done)](absl::Status status) {
            if (status.ok()) status = Unpack(keeper_->List(models, /*of_each=*/1), reply);
            done(status);
          });
        };
        return absl::OkStatus();
      });
  Serve<v1::ListCheckpointsRequest, v1::CheckpointReply>(
      "ListCheckpoints", &AsyncService::RequestListCheckpoints, [this](const auto& r, auto* reply) {
        Pollers::StepAside();
        const auto models = ModelsOf(r.model());
        return models.ok() ? Unpack(keeper_->List(*models), reply) : models.status();
      });
  Serve<v1::RestoreModelRequest, v1::ModelInfo>(
      "RestoreModel", &AsyncService::RequestRestoreModel, [this](const auto& r, auto* reply, auto* until) {
        if (auto status = CheckKeeper(); !status.ok()) return status;
        *until = [this, r, reply](std::function<void(const absl::Status&)> done) {
          keeper_->Restore(r, [this, r, reply, done = std::move(done)](absl::Status status) {
            const std::string& name = r.as().empty() ? r.model() : r.as();
            if (status.ok()) status = DescribeTo(models_.Describe(name, /*workers=*/false), reply);
            done(status);
          });
        };
        return absl::OkStatus();
      });
  Serve<v1::AddPastRequest, v1::AddPastReply>(
      "AddPast", &AsyncService::RequestAddPast, [this](const auto& r, auto*, auto* until) {
        Pollers::StepAside();
        const auto model = models_.Find(r.model());
        if (!model.ok()) return model.status();
        if ((*model)->id() != r.model_id()) {
          return absl::AbortedError(
              absl::StrCat("model '", r.model(), "' was deleted and created again since; create it again"));
        }
        state::Checkpoint record;
        if (!record.ParseFromString(r.past())) return absl::InvalidArgumentError("the past can't be read");
        const auto past = PastOf(record);
        if (!past.ok()) return past.status();
        if (auto status = (*model)->AddPast(*past); !status.ok()) return status;
        if (keeper_ != nullptr) {
          *until = [this, model = *model](std::function<void(const absl::Status&)> done) {
            keeper_->Checkpoint({model}, std::move(done));
          };
        }
        return absl::OkStatus();
      });
}

void Server::Impl::ServeControlPlane() {
  ServeState();
  Serve<v1::CreateModelRequest, v1::ModelInfo>(
      "CreateModel", &AsyncService::RequestCreateModel, [this](const auto& r, auto* reply, auto* until) {
        if (auto status = DescribeTo(models_.Create(r.spec()), reply); !status.ok()) return status;
        const auto model = models_.Find(r.spec().name());
        if (model.ok()) AwaitDurable(*model, until);
        return model.status();
      });
  Serve<v1::GetModelRequest, v1::ModelInfo>("GetModel", &AsyncService::RequestGetModel,
                                            [this](const auto& r, auto* reply) {
                                              if (!r.summary()) Pollers::StepAside();
                                              return DescribeTo(models_.Describe(r.model(), !r.summary()), reply);
                                            });
  Serve<v1::ListModelsRequest, v1::ListModelsReply>("ListModels", &AsyncService::RequestListModels,
                                                    [this](const auto& r, auto* reply) {
                                                      Pollers::StepAside();
                                                      for (v1::ModelInfo& info : models_.DescribeAll(!r.summary())) {
                                                        AddCheckpoints(&info);
                                                        *reply->add_models() = std::move(info);
                                                      }
                                                      return absl::OkStatus();
                                                    });
  Serve<v1::DeleteModelRequest, v1::DeleteModelReply>(
      "DeleteModel", &AsyncService::RequestDeleteModel, [this](const auto& r, auto*, auto* until) {
        Models::Deleted deleted;
        const absl::Status status = models_.Delete(r.model(), &deleted);
        if (status.ok() && keeper_ != nullptr) {
          *until = [this, deleted = std::move(deleted)](std::function<void(const absl::Status&)> done) {
            keeper_->Remove(deleted, std::move(done));
          };
        }
        return status;
      });
  Serve<v1::ListAlgorithmsRequest, v1::ListAlgorithmsReply>("ListAlgorithms", &AsyncService::RequestListAlgorithms,
                                                            [](const auto&, auto* reply) {
                                                              for (const Algorithm* algorithm : ListAlgorithms())
                                                                *reply->add_algorithms() = Describe(*algorithm);
                                                              return absl::OkStatus();
                                                            });
  Serve<v1::JoinRequest, v1::JoinReply>("Join", &AsyncService::RequestJoin,
                                        [this](const auto& r, auto* reply, auto* until) {
                                          if (auto status = Unpack(models_.Join(r), reply); !status.ok()) return status;
                                          reply->set_server_version(kVersion);
                                          reply->set_shared_memory_socket(shared_memory_socket());
                                          const auto model = models_.Find(reply->model().spec().name());
                                          if (model.ok()) AwaitDurable(*model, until);
                                          return model.status();
                                        });
  Serve<v1::HeartbeatRequest, v1::HeartbeatReply>(
      "Heartbeat", &AsyncService::RequestHeartbeat, [this](const auto& r, auto* reply) {
        reply->set_shared_memory_socket(shared_memory_socket());
        const v1::Participant& p = r.participant();
        auto model = models_.Find(p);
        return model.ok() ? (*model)->Heartbeat(CallerOf(p)) : model.status();
      });
  Serve<v1::LeaveRequest, v1::LeaveReply>(
      "Leave", &AsyncService::RequestLeave, [this](const auto& r, auto*, auto* until) {
        const v1::Participant& p = r.participant();
        const auto model = models_.Find(p);
        const absl::Status status = model.ok() ? (*model)->Leave(CallerOf(p), r.error()) : model.status();
        if (status.ok()) AwaitDurable(*model, until);
        return status;
      });
  Serve<v1::ReportHistoryRequest, v1::ReportHistoryReply>("ReportHistory", &AsyncService::RequestReportHistory,
                                                          [this](const auto& r, auto*) {
                                                            if (r.records_size() > kManyRecords) Pollers::StepAside();
                                                            auto model = models_.Find(r.participant());
                                                            return model.ok() ? (*model)->Report(r) : model.status();
                                                          });
  Serve<v1::GetHistoryRequest, v1::GetHistoryReply>("GetHistory", &AsyncService::RequestGetHistory,
                                                    [this](const auto& r, auto* reply) {
                                                      Pollers::StepAside();
                                                      return Unpack(models_.ReadHistory(r), reply);
                                                    });
  Serve<v1::GetStatusRequest, v1::ServerStatus>("GetStatus", &AsyncService::RequestGetStatus,
                                                [this](const auto& r, auto* reply) {
                                                  Pollers::StepAside();
                                                  *reply = GetStatus(r.summary());
                                                  return absl::OkStatus();
                                                });
}

v1::ServerStatus Server::Impl::GetStatus(bool summary) {
  v1::ServerStatus status;
  status.set_version(kVersion);
  status.set_uptime_s(absl::ToDoubleSeconds(options_.clock->Now() - started_));
  status.set_sessions(sessions_.size());
  status.set_in_flight_bytes(models_.budget()->used_bytes(BudgetKind::kInFlight));
  status.set_max_in_flight_bytes(models_.budget()->max_in_flight_bytes());
  status.set_queued_exchanges(models_.budget()->waiting());
  status.set_base_bytes(models_.budget()->used_bytes(BudgetKind::kBases));
  status.set_round_bytes(models_.budget()->used_bytes(BudgetKind::kRounds));
  status.set_history_bytes(models_.budget()->used_bytes(BudgetKind::kHistories));
  status.set_max_history_bytes(options_.max_history_bytes);
  status.set_connections(acceptor_->connections());
  status.set_refused_connections(acceptor_->refused());
  status.set_resident_bytes(ResidentBytes());
  if (segments_ != nullptr) {
    status.set_segments(segments_->segments());
    status.set_shared_bytes(segments_->bytes());
    status.set_max_shared_bytes(options_.max_shared_bytes);
  }
  status.set_daemon_id(models_.daemon_id());
  for (v1::ModelInfo& info : models_.DescribeAll(!summary)) {
    AddCheckpoints(&info);
    *status.add_models() = std::move(info);
  }
  status.set_image_bytes(models_.budget()->used_bytes(BudgetKind::kImages));
  if (keeper_ != nullptr) keeper_->DescribeLog(&status);
  status.set_state_dir(Repaired(options_.state.dir));
  {
    MutexLock lock(&mutex_);
    status.set_draining(stopping_);
  }
  return status;
}

bool Server::Impl::Wants(ModelEvent::Kind kind) const {
  switch (kind) {
    case ModelEvent::Kind::kLeft:
    case ModelEvent::Kind::kExpired:
    case ModelEvent::Kind::kFenced:
    case ModelEvent::Kind::kDeleted:
      return true;
    default:
      return options_.events != nullptr && options_.events->Wants(kind);
  }
}

void Server::Impl::Tell(const ModelEvent& event) {
  switch (event.kind) {
    case ModelEvent::Kind::kLeft:
    case ModelEvent::Kind::kExpired:
    case ModelEvent::Kind::kFenced:
    case ModelEvent::Kind::kDeleted:
      if (segments_ == nullptr) break;
      segments_->Release({.model_id = event.model_id, .worker = event.worker, .incarnation = event.incarnation});
      break;
    default:
      break;
  }
  if (options_.events != nullptr && options_.events->Wants(event.kind)) options_.events->Tell(event);
}

void Server::Impl::Reload() {
  // A file system may take its time.
  if (certificates_ != nullptr || !options_.token_file.empty()) Pollers::StepAside();
  if (certificates_ != nullptr) TellReload("certificates", certificates_->Reload(), &certificates_problem_);
  TellReload("tokens", access_->Reload(), &tokens_problem_);
  MutexLock lock(&mutex_);
  next_reload_ = Clock::Steady()->Now() + kReloadInterval;
}

void Server::Impl::TellReload(absl::string_view what, const absl::StatusOr<bool>& changed, absl::Status* problem) {
  bool news = changed.ok() && *changed;
  {
    MutexLock lock(&mutex_);
    news = news || (!changed.ok() && changed.status() != *problem);
    *problem = changed.status();
  }
  if (!news || options_.security_log == nullptr) return;
  options_.security_log(changed.ok() ? absl::StrCat("event=reloaded what=", what)
                                     : absl::StrCat("event=not_reloaded what=", what,
                                                    " reason=", LogValue(std::string(changed.status().message()))));
}

// Leases and waits end at most this much too late.
void Server::Impl::Tick() {
  const absl::Duration interval = std::clamp(options_.lease / 10, absl::Milliseconds(5), absl::Milliseconds(50));
  while (true) {
    const absl::Time due = Clock::Steady()->Now() + interval;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && Clock::Steady()->Now() < due) Clock::Steady()->Wait(&stopping_changed_, &mutex_, due);
      if (stopping_) return;
    }
    // Whose wait ends now may have much to do, as a poller can and this thread must not. One at a time is enough.
    if (tick_posted_.exchange(true)) continue;
    Post([this, due, interval] {
      tick_posted_ = false;
      const absl::Time now = Clock::Steady()->Now();
      absl::Duration late;
      bool reload = false;
      {
        MutexLock lock(&mutex_);
        reload = now >= next_reload_;
        if (reload) next_reload_ = absl::InfiniteFuture();
        late = now - std::max(due, last_tick_ + interval);
        last_tick_ = now;
      }
      models_.Tick(late > kOverslept ? late : absl::ZeroDuration());
      if (reload) Reload();
    });
  }
}

void Server::Impl::ShutDownTransport(absl::Time deadline) {
  Mutex mutex;
  CondVar ended_changed;
  bool ended = false;
  std::thread cutter([&] {
    MutexLock lock(&mutex);
    absl::Time next = deadline + kLastWrites;
    while (!ended) {
      ended_changed.WaitWithTimeout(&mutex, next - Clock::Steady()->Now());
      if (ended || Clock::Steady()->Now() < next) continue;
      CutConnections(bound_);
      next = Clock::Steady()->Now() + kLastWrites;
    }
  });
  const absl::Duration left = std::max(deadline - Clock::Steady()->Now(), absl::ZeroDuration());
  server_->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(absl::ToInt64Milliseconds(left), GPR_TIMESPAN)));
  {
    MutexLock lock(&mutex);
    ended = true;
  }
  ended_changed.SignalAll();
  cutter.join();
}

void Server::Impl::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      while (!stopped_) stopping_changed_.Wait(&mutex_);
      return;
    }
    stopping_ = true;
  }
  stopping_changed_.SignalAll();
  health_.Drain();
  models_.Drain();
  sessions_.Drain();
  others_.Drain();
  // A connection lasts until its client closes it, and a worker that is busy with its model has nobody who would: once
  // no exchange is under way, they are cut.
  absl::Time end = Clock::Steady()->Now() + grace;
  if (sessions_.AwaitNone(end) && others_.AwaitNone(end)) {
    end = std::min(end, Clock::Steady()->Now() + kLastCalls);
  } else {
    sessions_.Abandon();
  }
  saved_ = keeper_ == nullptr || keeper_->Finish();
  models_.Close();
  if (keeper_ != nullptr) keeper_->StopLog();
  if (acceptor_ != nullptr) acceptor_->Stop();
  ShutDownTransport(end);
  if (ticker_.joinable()) ticker_.join();
  calls_.AwaitNone();
  queue_->Shutdown();
  pollers_.reset();
  MutexLock lock(&mutex_);
  stopped_ = true;
  // Under the lock: whoever waits may destroy this as soon as it is released.
  stopping_changed_.SignalAll();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  // Before gRPC, which aborts without files.
  if (auto status = Acceptor::CheckLimit(0); !status.ok()) return status;
  std::unique_ptr<StateKeeper> keeper;
  if (auto status = CheckOptions(options); !status.ok()) return status;
  if (!options.state.dir.empty()) {
    if (auto status = Unpack(StateKeeper::Open(options.state), &keeper); !status.ok()) return status;
  }
  auto impl = std::make_unique<Impl>(options, std::move(keeper));
  if (auto status = impl->Start(); !status.ok()) {
    impl->Shutdown(absl::ZeroDuration());
    return status;
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->port(); }
const std::string& Server::address() const { return impl_->address(); }
v1::ServerStatus Server::GetStatus() const { return impl_->GetStatus(/*summary=*/false); }
void Server::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }
bool Server::saved() const { return impl_->saved(); }

}  // namespace paramd
