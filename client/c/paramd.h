/* Start here from C and through any foreign function interface: paramd's client without C++.
 *
 *   paramd_worker_options* options = paramd_worker_options_new();
 *   paramd_worker_options_set(options, "server", "127.0.0.1:5000");
 *   paramd_worker_options_set(options, "model", "mnist");
 *   paramd_worker_options_set(options, "worker", "worker-0");
 *   paramd_worker* worker;
 *   if (paramd_worker_join(options, &worker) != PARAMD_OK) fprintf(stderr, "%s\n", paramd_error_message());
 *
 * Every function that can fail returns a paramd_code; paramd_error_message() then says what happened, the likely cause
 * and the next step. What a call gives through a pointer is untouched when it fails. Strings are UTF-8, end with NUL
 * and are copied. A null pointer where an object is needed is PARAMD_INVALID_ARGUMENT, or 0 or null from a function
 * that returns no code; every *_free takes null. Times are in seconds; a negative timeout is none. Nothing exits,
 * aborts, logs or throws. client/worker.h, train.h and admin.h of the sources tell what the calls of the same names do,
 * and which errors they give.
 *
 * The ABI grows and does not change: PARAMD_ABI_VERSION counts what was added. Structures that a caller fills begin
 * with their own size (`.struct_size = sizeof(paramd_...)`), so that they can grow too; what is zero after it is the
 * default. */
#ifndef PARAMD_CLIENT_C_PARAMD_H_
#define PARAMD_CLIENT_C_PARAMD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PARAMD_ABI_VERSION 1

#if defined(__GNUC__)
#define PARAMD_API __attribute__((visibility("default")))
#else
#define PARAMD_API
#endif

/* gRPC's status codes. */
typedef enum paramd_code {
  PARAMD_OK = 0,
  PARAMD_CANCELLED = 1,
  PARAMD_UNKNOWN = 2,
  PARAMD_INVALID_ARGUMENT = 3,
  PARAMD_DEADLINE_EXCEEDED = 4,
  PARAMD_NOT_FOUND = 5,
  PARAMD_ALREADY_EXISTS = 6,
  PARAMD_PERMISSION_DENIED = 7,
  PARAMD_RESOURCE_EXHAUSTED = 8,
  PARAMD_FAILED_PRECONDITION = 9,
  PARAMD_ABORTED = 10,
  PARAMD_OUT_OF_RANGE = 11,
  PARAMD_UNIMPLEMENTED = 12,
  PARAMD_INTERNAL = 13,
  PARAMD_UNAVAILABLE = 14,
  PARAMD_DATA_LOSS = 15,
  PARAMD_UNAUTHENTICATED = 16
} paramd_code;

/* Of the last call on this thread that failed; valid until the next one that does. Empty if none has. */
PARAMD_API const char* paramd_error_message(void);
PARAMD_API const char* paramd_code_name(paramd_code code); /* "NOT_FOUND" */

PARAMD_API int paramd_abi_version(void);
PARAMD_API const char* paramd_version(void); /* "0.4.0" */

/* Ends calls from outside: a call that is under way with it, and every later one, gives PARAMD_CANCELLED. It works in
 * joining, exchanging and training alike, at once or, where the daemon is stopped, within two seconds. Thread-safe. It
 * may be freed before the objects that were given it. */
typedef struct paramd_canceller paramd_canceller;
PARAMD_API paramd_canceller* paramd_canceller_new(void);
PARAMD_API void paramd_canceller_cancel(paramd_canceller* canceller);
PARAMD_API void paramd_canceller_free(paramd_canceller* canceller);

/* What a model is. Thread-compatible. */
typedef struct paramd_model_spec paramd_model_spec;
PARAMD_API paramd_model_spec* paramd_model_spec_new(const char* name);
PARAMD_API void paramd_model_spec_free(paramd_model_spec* spec);
/* Tensors of float32, flattened row-major in this order into the center. `rank` 0: a scalar. */
PARAMD_API paramd_code paramd_model_spec_add_tensor(paramd_model_spec* spec, const char* name, const int64_t* shape,
                                                    size_t rank);
PARAMD_API paramd_code paramd_model_spec_set_algorithm(paramd_model_spec* spec, const char* algorithm);
PARAMD_API paramd_code paramd_model_spec_set_consistency(paramd_model_spec* spec, const char* consistency);
PARAMD_API paramd_code paramd_model_spec_set_hyperparameter(paramd_model_spec* spec, const char* name, double value);

/* How a worker joins. Keys, as the flags of programs: server (HOST:PORT or unix:PATH), model, worker, incarnation,
 * join_timeout, rpc_timeout, transport (auto, grpc, shm), wire (f32, f16, bf16). Thread-compatible; a join copies it.
 */
typedef struct paramd_worker_options paramd_worker_options;
PARAMD_API paramd_worker_options* paramd_worker_options_new(void);
PARAMD_API void paramd_worker_options_free(paramd_worker_options* options);
PARAMD_API paramd_code paramd_worker_options_set(paramd_worker_options* options, const char* key, const char* value);
/* Creates the model first if it isn't there. Copies the spec. */
PARAMD_API paramd_code paramd_worker_options_set_spec(paramd_worker_options* options, const paramd_model_spec* spec);
PARAMD_API paramd_code paramd_worker_options_set_canceller(paramd_worker_options* options, paramd_canceller* canceller);
/* Told of reconnects, retries and failed heartbeats, from any thread. `message` lives as long as the call. */
PARAMD_API paramd_code paramd_worker_options_set_on_event(paramd_worker_options* options,
                                                          void (*on_event)(void* context, const char* message),
                                                          void* context);

/* One participant of a model. Thread-safe, but for free, which must be the last call. */
typedef struct paramd_worker paramd_worker;

typedef struct paramd_exchanged {
  int64_t version;
  int64_t staleness;
} paramd_exchanged;

PARAMD_API paramd_code paramd_worker_join(const paramd_worker_options* options, paramd_worker** worker);
/* Leaves if nobody did; never blocks longer than a second. */
PARAMD_API void paramd_worker_free(paramd_worker* worker);

PARAMD_API size_t paramd_worker_parameters(const paramd_worker* worker); /* floats in the center */
PARAMD_API uint64_t paramd_worker_incarnation(const paramd_worker* worker);
/* The model's name: an ensemble gives each worker its own. Lives as long as the worker. */
PARAMD_API const char* paramd_worker_model(const paramd_worker* worker);
PARAMD_API const char* paramd_worker_transport(const paramd_worker* worker); /* "grpc" or "shm", at the moment */

/* `floats` must be the length of the center; `update` and `center` must not overlap. `exchanged` may be null. */
PARAMD_API paramd_code paramd_worker_initialize(paramd_worker* worker, const float* center, size_t floats,
                                                double timeout);
PARAMD_API paramd_code paramd_worker_pull(paramd_worker* worker, float* center, size_t floats, double timeout,
                                          paramd_exchanged* exchanged);
PARAMD_API paramd_code paramd_worker_commit(paramd_worker* worker, const float* update, size_t floats, double timeout,
                                            paramd_exchanged* exchanged);
PARAMD_API paramd_code paramd_worker_exchange(paramd_worker* worker, const float* update, float* center, size_t floats,
                                              double timeout, paramd_exchanged* exchanged);
/* Memory of the worker itself, of the center's length, that spares copies where the data goes through shared memory;
 * null if it has none. It goes with the worker. */
PARAMD_API float* paramd_worker_commit_buffer(paramd_worker* worker);
PARAMD_API float* paramd_worker_center_buffer(paramd_worker* worker);

/* Ends this worker's exchanges with PARAMD_CANCELLED, the one under way and all later ones. */
PARAMD_API paramd_code paramd_worker_cancel(paramd_worker* worker);
/* Takes back a paramd_worker_cancel: later calls work again. Not while another call is under way. */
PARAMD_API paramd_code paramd_worker_resume(paramd_worker* worker);
/* `error`: why the worker failed; null if it did not. Not ended by a cancel. */
PARAMD_API paramd_code paramd_worker_leave(paramd_worker* worker, const char* error, double timeout);

/* One minibatch: features [rows, columns], row-major; labels as the model wants them. Filled by a source with memory of
 * its own that stays until its next call. */
typedef struct paramd_batch {
  int64_t rows;
  const float* features;
  size_t feature_floats;
  const float* labels;
  size_t label_floats;
} paramd_batch;

/* A model of one's own. Callbacks come from the thread that called paramd_train. One that fails returns a code other
 * than PARAMD_OK and may write a message of at most `message_size` bytes, NUL included, to `message`: it ends the
 * training. */
typedef struct paramd_trainable {
  size_t struct_size;
  void* context;
  float* parameters; /* in the model's tensor order, the same memory throughout */
  size_t floats;
  size_t metrics; /* how many metrics train_on_batch gives beside the loss */
  const char* const* metric_names;
  /* One optimizer step; results[0] is the loss before it, averaged over the rows, then the metrics. */
  paramd_code (*train_on_batch)(void* context, const paramd_batch* batch, double* results, char* message,
                                size_t message_size);
  double (*learning_rate)(void* context);
  void (*set_learning_rate)(void* context, double learning_rate);
} paramd_trainable;

/* Where minibatches come from; called on one thread of the library's own. `cancel` may come from any thread, and is to
 * end a `next` that blocks; it, and batches_per_epoch, may be null. */
typedef struct paramd_batch_source {
  size_t struct_size;
  void* context;
  /* Fills `batch`, or sets `*more` to 0 at the epoch's end. */
  paramd_code (*next)(void* context, paramd_batch* batch, int* more, char* message, size_t message_size);
  paramd_code (*rewind)(void* context, int64_t epoch, char* message, size_t message_size);
  int64_t (*batches_per_epoch)(void* context);
  void (*cancel)(void* context);
} paramd_batch_source;

typedef struct paramd_train_options {
  size_t struct_size;
  int64_t epochs;               /* 0: one */
  int64_t communication_window; /* 0: the model's */
  double learning_rate;         /* 0: the model's */
  int max_prefetch;             /* 0: 100 */
  int overlap;
  double target_loss; /* used if has_target_loss */
  int has_target_loss;
  double exchange_timeout; /* 0, too: none */
} paramd_train_options;

typedef struct paramd_train_summary {
  int64_t steps;
  int64_t samples;
  int64_t exchanges;
  int64_t epochs;
  double mean_staleness;
  double wall_s;
  double exchanging_s;
  double last_loss;
  int reached_target_loss;
} paramd_train_summary;

/* All that a worker process does: joins, initializes the center if it is the first, trains with the model's algorithm,
 * reports history and leaves. `summary` and `train_options` may be null. */
PARAMD_API paramd_code paramd_train(const paramd_worker_options* options, const paramd_train_options* train_options,
                                    const paramd_trainable* trainable, const paramd_batch_source* source,
                                    paramd_train_summary* summary);

/* A ready-made model: a perceptron with ReLU between its layers and softmax cross-entropy on top. Labels are class
 * numbers, one a row. Metric: accuracy. Thread-compatible. */
typedef struct paramd_mlp paramd_mlp;
/* `layers`: inputs, hidden..., classes; at least two. `optimizer`: sgd, momentum (Nesterov's, 0.9) or adam. Equal seeds
 * give equal parameters. */
PARAMD_API paramd_code paramd_mlp_new(const int64_t* layers, size_t layer_count, const char* optimizer,
                                      double learning_rate, uint64_t seed, paramd_mlp** mlp);
PARAMD_API void paramd_mlp_free(paramd_mlp* mlp);
/* Adds its tensors to the spec: dense0/kernel [inputs, outputs], dense0/bias [outputs], dense1/kernel, ... */
PARAMD_API paramd_code paramd_mlp_describe(const paramd_mlp* mlp, paramd_model_spec* spec);
/* For paramd_train, which then runs without a callback, or for a loop of one's own. It refers to the mlp, which trains
 * one batch at a time. Set trainable->struct_size first. */
PARAMD_API paramd_code paramd_mlp_trainable(paramd_mlp* mlp, paramd_trainable* trainable);
PARAMD_API float* paramd_mlp_parameters(paramd_mlp* mlp, size_t* floats);
/* Probabilities [rows, classes] of features [rows, inputs]. */
PARAMD_API paramd_code paramd_mlp_predict(paramd_mlp* mlp, const float* features, int64_t rows, float* probabilities);

/* The control plane. Thread-safe, but for free. */
typedef struct paramd_admin paramd_admin;

typedef struct paramd_model_info {
  int64_t version; /* updates applied */
  uint64_t parameters;
  int initialized;
  uint64_t workers; /* that ever joined */
  uint64_t live_workers;
  uint64_t commits; /* applied, over all workers */
  uint64_t rejected;
  double mean_staleness;
  double training_time_s;
  uint64_t waiting; /* workers whose exchange waits for others, or for the first center */
} paramd_model_info;

PARAMD_API paramd_code paramd_admin_connect(const char* server, double timeout, paramd_admin** admin);
PARAMD_API void paramd_admin_free(paramd_admin* admin);
PARAMD_API paramd_code paramd_admin_create_model(paramd_admin* admin, const paramd_model_spec* spec);
PARAMD_API paramd_code paramd_admin_delete_model(paramd_admin* admin, const char* model);
PARAMD_API paramd_code paramd_admin_get_model(paramd_admin* admin, const char* model, paramd_model_info* info);
/* Entry i: commits with staleness i; the last one holds all larger ones too. Sets `*entries` to how many there are, and
 * writes at most `capacity` of them. */
PARAMD_API paramd_code paramd_admin_staleness(paramd_admin* admin, const char* model, uint64_t* histogram,
                                              size_t capacity, size_t* entries);
PARAMD_API paramd_code paramd_admin_pull(paramd_admin* admin, const char* model, float* center, size_t floats,
                                         int64_t* version);
PARAMD_API paramd_code paramd_admin_initialize(paramd_admin* admin, const char* model, const float* center,
                                               size_t floats);

/* What workers reported: one series a worker, or one averaged over all of them, step by step. Immutable. */
typedef struct paramd_history paramd_history;

typedef struct paramd_history_record {
  uint64_t step;
  double epoch;
  double time_s;
  double loss;
} paramd_history_record;

PARAMD_API paramd_code paramd_admin_history(paramd_admin* admin, const char* model, int averaged,
                                            paramd_history** history);
PARAMD_API void paramd_history_free(paramd_history* history);
PARAMD_API size_t paramd_history_series(const paramd_history* history);
/* What is given lives as long as the history; an index out of range gives null, and 0. */
PARAMD_API const char* paramd_history_worker(const paramd_history* history, size_t series);
PARAMD_API size_t paramd_history_records(const paramd_history* history, size_t series,
                                         const paramd_history_record** records);
PARAMD_API size_t paramd_history_metrics(const paramd_history* history, size_t series);
PARAMD_API const char* paramd_history_metric_name(const paramd_history* history, size_t series, size_t metric);
/* [records, metrics], row-major. */
PARAMD_API const double* paramd_history_metric_values(const paramd_history* history, size_t series);

#ifdef __cplusplus
}
#endif

#endif /* PARAMD_CLIENT_C_PARAMD_H_ */
