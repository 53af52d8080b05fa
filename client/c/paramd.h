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
 * and the next step. What a call gives through a pointer is untouched when it fails, except where it says otherwise.
 * Strings are UTF-8, end with NUL and are copied. A null pointer where an object is needed is PARAMD_INVALID_ARGUMENT,
 * or 0 or null from a function that returns no code; every *_free takes null. Nothing exits, aborts, logs or throws.
 *
 * Times are in seconds. A timeout bounds a whole call, retries and waiting for others included; 0 is one attempt that
 * waits for nobody, and a negative one is none. Where a structure has a timeout, 0 is its default.
 *
 * Errors that any call with a daemon can give:
 *   PARAMD_INVALID_ARGUMENT    an argument is wrong: a length, a name, NaN or infinity in floats. Nothing was changed
 *   PARAMD_NOT_FOUND           no such model or algorithm
 *   PARAMD_ALREADY_EXISTS      the model, or its first center, exists and differs. Nothing was changed
 *   PARAMD_ABORTED             a newer incarnation of this worker has joined, or model or daemon are others than those
 *                              it joined: stop, or join again. A commit may have been applied
 *   PARAMD_FAILED_PRECONDITION the worker has left, the model has no center or a problem, the process was forked after
 *                              the join, or a paramd_window has this worker. A commit may have been applied: one that
 *                              made the center infinite, or too large for the wire's encoding
 *   PARAMD_RESOURCE_EXHAUSTED  a limit of the daemon, or no memory there or here
 *   PARAMD_DEADLINE_EXCEEDED   no answer within the timeout. A commit may have been applied, but never will be twice
 *   PARAMD_UNAVAILABLE         the daemon can't be reached, or was silent for rpc_timeout, in spite of retries. A
 *                              commit may have been applied
 *   PARAMD_CANCELLED           a cancel. A commit may have been applied
 *   PARAMD_UNAUTHENTICATED     the daemon's certificate is not trusted, or the daemon does not know the token
 *   PARAMD_PERMISSION_DENIED   the token's role, or its models, do not allow the call
 *   PARAMD_UNIMPLEMENTED       the daemon is older than this library and lacks what the call needs
 *   PARAMD_INTERNAL            a fault of paramd's or of a callback's
 *
 * After a call that failed, paramd_worker_commit_state tells what became of its commit: ask before the same is
 * committed again. A center that was to be written holds nothing useful then.
 *
 * A process that forks joins in the child: what was joined or connected before belongs to the parent.
 *
 * The ABI grows and does not change: PARAMD_ABI_VERSION counts what was added, paramd_abi_version() what this library
 * has. Structures that a caller fills begin with their own size (`.struct_size = sizeof(paramd_...)`), so that they can
 * grow too; what is zero after it is the default. */
#ifndef PARAMD_CLIENT_C_PARAMD_H_
#define PARAMD_CLIENT_C_PARAMD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PARAMD_ABI_VERSION 4

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
PARAMD_API const char* paramd_version(void); /* "MAJOR.MINOR.PATCH" */

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
 * join_timeout and rpc_timeout (60 if not set; how long the daemon may take to come up, and later be away or silent),
 * transport (auto, grpc, shm), wire (f32, f16, bf16). And how it knows the daemon and shows who it is, where what is
 * not set comes from the environment variable: tls_ca (PARAMD_TLS_CA; with it everything goes over TLS), tls_cert and
 * tls_key (PARAMD_TLS_CERT, PARAMD_TLS_KEY): paths of PEM files, or PEM itself; token_file (PARAMD_TOKEN_FILE), or the
 * token itself; insecure (1: a token may go beyond this host without TLS; PARAMD_INSECURE). A server that is not set is
 * PARAMD_SERVER. Thread-compatible; a join copies it. */
typedef struct paramd_worker_options paramd_worker_options;
PARAMD_API paramd_worker_options* paramd_worker_options_new(void);
PARAMD_API void paramd_worker_options_free(paramd_worker_options* options);
PARAMD_API paramd_code paramd_worker_options_set(paramd_worker_options* options, const char* key, const char* value);
/* Creates the model first if it isn't there. Copies the spec. */
PARAMD_API paramd_code paramd_worker_options_set_spec(paramd_worker_options* options, const paramd_model_spec* spec);
PARAMD_API paramd_code paramd_worker_options_set_canceller(paramd_worker_options* options, paramd_canceller* canceller);
/* Told of waiting for a daemon, reconnects, retries and failed heartbeats, from any thread. `message` lives as long as
 * the call. */
PARAMD_API paramd_code paramd_worker_options_set_on_event(paramd_worker_options* options,
                                                          void (*on_event)(void* context, const char* message),
                                                          void* context);

/* One participant of a model. Thread-safe, but for free, which must be the last call. */
typedef struct paramd_worker paramd_worker;

typedef struct paramd_exchanged {
  int64_t version;   /* of the center that was pulled, else of the one that has the commit */
  int64_t staleness; /* of the commit; 0 without one; -1 if it was not applied: see paramd_worker_exchange */
} paramd_exchanged;

/* Waits for the daemon within join_timeout. Errors: also PARAMD_DEADLINE_EXCEEDED if it did not come up, and with
 * transport=shm why there is no shared memory (PARAMD_UNAVAILABLE, _RESOURCE_EXHAUSTED, _PERMISSION_DENIED). */
PARAMD_API paramd_code paramd_worker_join(const paramd_worker_options* options, paramd_worker** worker);
/* Leaves if nobody did; never blocks longer than a second. */
PARAMD_API void paramd_worker_free(paramd_worker* worker);

/* The memory of a worker's commit and center buffer, for who uses these longer than the worker; from ABI version 4 on.
 * Thread-compatible. */
typedef struct paramd_memory paramd_memory;
/* Before paramd_worker_free, which must be all that follows: leaves if nobody did. Null if there is none. */
PARAMD_API paramd_memory* paramd_worker_take_memory(paramd_worker* worker);
/* Gives the memory back to the system; the buffers stay accessible, and are zero. */
PARAMD_API void paramd_memory_clear(paramd_memory* memory);
PARAMD_API void paramd_memory_free(paramd_memory* memory);

PARAMD_API uint64_t paramd_worker_incarnation(const paramd_worker* worker);
PARAMD_API const char* paramd_worker_transport(const paramd_worker* worker); /* "grpc" or "shm", at the moment */
PARAMD_API const char* paramd_worker_wire(const paramd_worker* worker);      /* "f32", "f16" or "bf16", at the moment */

/* The model as it was when the worker joined: all that a program needs to follow its algorithm. What is given lives as
 * long as the worker; an index out of range gives null, and 0. */
PARAMD_API const char* paramd_worker_model(const paramd_worker* worker); /* an ensemble gives each worker its own */
PARAMD_API size_t paramd_worker_parameters(const paramd_worker* worker); /* floats in the center */
PARAMD_API const char* paramd_worker_algorithm(const paramd_worker* worker);
PARAMD_API const char* paramd_worker_consistency(const paramd_worker* worker);
/* Every hyperparameter, defaults included. */
PARAMD_API size_t paramd_worker_hyperparameters(const paramd_worker* worker);
PARAMD_API const char* paramd_worker_hyperparameter_name(const paramd_worker* worker, size_t index);
PARAMD_API double paramd_worker_hyperparameter_value(const paramd_worker* worker, size_t index);
/* Tensors, in the order of the center. */
PARAMD_API size_t paramd_worker_tensors(const paramd_worker* worker);
PARAMD_API const char* paramd_worker_tensor_name(const paramd_worker* worker, size_t index);
/* Returns its dimensions, and sets `*rank` to how many there are; null for a scalar. */
PARAMD_API const int64_t* paramd_worker_tensor_shape(const paramd_worker* worker, size_t index, size_t* rank);

/* `floats` must be the length of the center; `update` and `center` must not overlap. `exchanged` may be null. One at a
 * time: another one waits for its turn, within its own timeout. */

/* Makes `center` the model's first center. PARAMD_ALREADY_EXISTS if it has another one; OK if it is the same, or was.
 */
PARAMD_API paramd_code paramd_worker_initialize(paramd_worker* worker, const float* center, size_t floats,
                                                double timeout);
/* Waits for a first center. */
PARAMD_API paramd_code paramd_worker_pull(paramd_worker* worker, float* center, size_t floats, double timeout,
                                          paramd_exchanged* exchanged);
/* Both return once the commit is applied and the model's consistency lets the worker go on. Or with PARAMD_OK and a
 * staleness of -1 if the daemon came back with an older center than the commit was made from: the commit is not
 * applied, paramd_worker_commit_state tells so, too, and what was pulled is the center to go on from. After such a
 * commit alone, pull before the next one. */
PARAMD_API paramd_code paramd_worker_commit(paramd_worker* worker, const float* update, size_t floats, double timeout,
                                            paramd_exchanged* exchanged);
PARAMD_API paramd_code paramd_worker_exchange(paramd_worker* worker, const float* update, float* center, size_t floats,
                                              double timeout, paramd_exchanged* exchanged);
/* Memory of the worker itself, of the center's length, that spares copies where the data goes through shared memory;
 * null if it has none. It stays where it is, and goes with the worker. Over every transport: a call only ever reads the
 * commit buffer, and only if it is given that, so what was written there stays; the center buffer is scratch of every
 * call, so that it holds a center only after a call that was given it and until the next call of any kind, and may
 * still change after one that failed. In a forked child it can't be accessed. */
PARAMD_API float* paramd_worker_commit_buffer(paramd_worker* worker);
PARAMD_API float* paramd_worker_center_buffer(paramd_worker* worker);

/* What became of the last commit that was given to a worker. */
typedef enum paramd_commit_state {
  PARAMD_COMMIT_NONE = 0,        /* there was none */
  PARAMD_COMMIT_APPLIED = 1,     /* the center has it, or will when its round is over */
  PARAMD_COMMIT_NOT_APPLIED = 2, /* the center does not have it, and never will */
  PARAMD_COMMIT_UNKNOWN = 3      /* its answer did not arrive: the next call finds out, before anything else */
} paramd_commit_state;
PARAMD_API paramd_commit_state paramd_worker_commit_state(const paramd_worker* worker);

/* Ends this worker's exchanges with PARAMD_CANCELLED, the one under way and all later ones. */
PARAMD_API paramd_code paramd_worker_cancel(paramd_worker* worker);
/* Takes back a paramd_worker_cancel: later calls work again. Not while another call is under way. */
PARAMD_API paramd_code paramd_worker_resume(paramd_worker* worker);
/* `error`: why the worker failed; null if it did not. Not ended by a cancel. */
PARAMD_API paramd_code paramd_worker_leave(paramd_worker* worker, const char* error, double timeout);

typedef enum paramd_type {
  PARAMD_FLOAT32 = 0,
  PARAMD_FLOAT64 = 1,
  PARAMD_INT32 = 2,
  PARAMD_INT64 = 3,
  PARAMD_UINT8 = 4
} paramd_type;

/* An input of a minibatch beside its features: row-major values of one type. */
typedef struct paramd_input {
  paramd_type type;
  const int64_t* shape;
  size_t rank;
  const void* values;
  size_t count; /* of values */
} paramd_input;

/* One minibatch: features [rows, columns], row-major; labels as the model wants them; and more, or other, inputs where
 * model and source agree on some. Filled by a source with memory of its own that stays until its next call. The library
 * makes it: `inputs` and what follows are there from ABI version 2 on. */
typedef struct paramd_batch {
  int64_t rows; /* at least 1 */
  const float* features;
  size_t feature_floats;
  const float* labels;
  size_t label_floats;
  const paramd_input* inputs;
  size_t input_count;
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
  double learning_rate;         /* 0: the model's; at most 1e6 */
  int max_prefetch;             /* 0: 100 */
  int overlap;
  double target_loss; /* used if has_target_loss; finite */
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
 * reports history and leaves. `summary` and `train_options` may be null; `summary` tells how far it came also if it
 * failed or was cancelled. Errors: those of a join and an exchange, and what callbacks return; PARAMD_INVALID_ARGUMENT
 * for options, batches and a loss that can't be. The window in which it failed is not committed. */
PARAMD_API paramd_code paramd_train(const paramd_worker_options* options, const paramd_train_options* train_options,
                                    const paramd_trainable* trainable, const paramd_batch_source* source,
                                    paramd_train_summary* summary);

/* Windows of minibatches and the exchanges between them, as the model's algorithm wants them, for a training loop of
 * one's own:
 *
 *   paramd_window_new(worker, tensors, 2, NULL, &window);
 *   paramd_window_begin(window);                         the center is in the tensors now
 *   for each minibatch {
 *     paramd_window_before_step(window);
 *     ... one optimizer step, in place; its loss is in results[0] ...
 *     paramd_window_after_step(window, epoch, results, &full);
 *     if (full) paramd_window_end(window);
 *   }
 *   paramd_window_finish(window);
 *
 * While it lives the worker's pull, commit and exchange are PARAMD_FAILED_PRECONDITION. An error of a call ends the
 * window: later ones return it again, and all but _abandon change nothing more. A worker that has ended (its model was
 * deleted, its name taken, the daemon restarted) is an error of the next step. Not thread-safe. */
typedef struct paramd_window paramd_window;

typedef struct paramd_span {
  float* floats;
  size_t count;
} paramd_span;

typedef struct paramd_window_options {
  size_t struct_size;
  int64_t communication_window; /* 0: the model's */
  int overlap;                  /* exchange on a second thread while the next window trains */
  double exchange_timeout;      /* 0, too: none */
  size_t metrics;               /* how many metrics after_step gets beside the loss */
  const char* const* metric_names;
} paramd_window_options;

typedef struct paramd_window_statistics {
  int64_t steps;     /* taken */
  int64_t exchanges; /* that were answered */
  int64_t exchanged; /* steps whose commits were applied */
  double mean_staleness;
  double exchanging_s; /* that training stood still for exchanges */
} paramd_window_statistics;

/* `parameters`: all of the model's, in its tensor order, in as many spans as the program has tensors. Their memory must
 * outlive the window, as must the worker; it is read and written in calls of the window only. If the model has no
 * center they are made that. `options` may be null. */
PARAMD_API paramd_code paramd_window_new(paramd_worker* worker, const paramd_span* parameters, size_t spans,
                                         const paramd_window_options* options, paramd_window** window);
/* Waits for an exchange under way; paramd_worker_cancel ends that. */
PARAMD_API void paramd_window_free(paramd_window* window);
PARAMD_API paramd_code paramd_window_begin(paramd_window* window);
PARAMD_API paramd_code paramd_window_before_step(paramd_window* window);
/* `results`: the loss, then the metrics, for the worker's history, where the steps of one window count on from those of
 * the worker's window before; `epoch`: the position in the data, for it, too.
 * `*full`: whether it is time for paramd_window_end. It is never, where paramd_window_by_epoch: end each epoch then. */
PARAMD_API paramd_code paramd_window_after_step(paramd_window* window, double epoch, const double* results, int* full);
PARAMD_API int paramd_window_by_epoch(const paramd_window* window);
/* Exchanges the window, full or not, or with `overlap` begins to. */
PARAMD_API paramd_code paramd_window_end(paramd_window* window);
/* Exchanges what is left; nothing is under way any more. */
PARAMD_API paramd_code paramd_window_finish(paramd_window* window);
/* After a step that failed, in place of finish: what is under way is waited for and goes to the history; nothing more
 * is committed. Returns what became of the last exchange, also if another call has returned that error before. */
PARAMD_API paramd_code paramd_window_abandon(paramd_window* window);
PARAMD_API paramd_code paramd_window_get_statistics(const paramd_window* window, paramd_window_statistics* statistics);

/* A ready-made model: a perceptron with ReLU between its layers. On top is softmax cross-entropy, whose labels are
 * class numbers, one a row, with the metric accuracy; or half the squared error, of as many labels a row as there are
 * outputs. Behind a batch's labels there may be a weight for each row. Thread-compatible. */
typedef struct paramd_mlp paramd_mlp;
/* `layers`: inputs, hidden..., classes; at least two. `optimizer`: sgd, momentum (Nesterov's, 0.9) or adam. Equal seeds
 * give equal parameters. */
PARAMD_API paramd_code paramd_mlp_new(const int64_t* layers, size_t layer_count, const char* optimizer,
                                      double learning_rate, uint64_t seed, paramd_mlp** mlp);
typedef struct paramd_mlp_options {
  size_t struct_size; /* sizeof(paramd_mlp_options) */
  const int64_t* layers;
  size_t layer_count;
  const char* optimizer;
  double learning_rate;
  uint64_t seed;
  const char* loss;         /* softmax or squared; null: softmax */
  double l2;                /* the gradient is that of the loss + l2/2 times the kernels' sum of squares */
  double max_gradient_norm; /* a step's gradient is scaled down to this norm at most; 0: never */
} paramd_mlp_options;
/* The same with more to choose; from ABI version 3 on. */
PARAMD_API paramd_code paramd_mlp_new_with(const paramd_mlp_options* options, paramd_mlp** mlp);
PARAMD_API void paramd_mlp_free(paramd_mlp* mlp);
/* Adds its tensors to the spec: dense0/kernel [inputs, outputs], dense0/bias [outputs], dense1/kernel, ... */
PARAMD_API paramd_code paramd_mlp_describe(const paramd_mlp* mlp, paramd_model_spec* spec);
/* For paramd_train, which then runs without a callback, or for a loop of one's own. It refers to the mlp, which trains
 * one batch at a time. Set trainable->struct_size first. */
PARAMD_API paramd_code paramd_mlp_trainable(paramd_mlp* mlp, paramd_trainable* trainable);
PARAMD_API float* paramd_mlp_parameters(paramd_mlp* mlp, size_t* floats);
/* Probabilities, or outputs, [rows, classes] of features [rows, inputs]. */
PARAMD_API paramd_code paramd_mlp_predict(paramd_mlp* mlp, const float* features, int64_t rows, float* probabilities);

/* The control plane. Thread-safe, but for free. */
typedef struct paramd_admin paramd_admin;

typedef struct paramd_model_info {
  int64_t version; /* updates applied */
  uint64_t parameters;
  int initialized;
  uint64_t workers; /* that ever joined and are remembered */
  uint64_t live_workers;
  uint64_t commits; /* applied, over all workers */
  uint64_t rejected;
  double mean_staleness;
  double training_time_s;
  uint64_t waiting; /* workers whose exchange waits for others, or for the first center */
} paramd_model_info;

/* Connects within `timeout`, which then bounds each call, too: PARAMD_DEADLINE_EXCEEDED or PARAMD_UNAVAILABLE if no
 * daemon answers. */
PARAMD_API paramd_code paramd_admin_connect(const char* server, double timeout, paramd_admin** admin);
/* The same with the server, certificates and token of these options; from ABI version 3 on. */
PARAMD_API paramd_code paramd_admin_connect_with(const paramd_worker_options* options, double timeout,
                                                 paramd_admin** admin);
PARAMD_API void paramd_admin_free(paramd_admin* admin);
PARAMD_API paramd_code paramd_admin_create_model(paramd_admin* admin, const paramd_model_spec* spec);
PARAMD_API paramd_code paramd_admin_delete_model(paramd_admin* admin, const char* model);
PARAMD_API paramd_code paramd_admin_get_model(paramd_admin* admin, const char* model, paramd_model_info* info);
/* Why the model can't be trained any further (its center is not finite, its algorithm failed); empty if it can. Writes
 * at most `size` bytes to `problem`, NUL included. */
PARAMD_API paramd_code paramd_admin_problem(paramd_admin* admin, const char* model, char* problem, size_t size);
/* Entry i: commits with staleness i; the last one holds all larger ones too. Sets `*entries` to how many there are, and
 * writes at most `capacity` of them. */
PARAMD_API paramd_code paramd_admin_staleness(paramd_admin* admin, const char* model, uint64_t* histogram,
                                              size_t capacity, size_t* entries);
/* Waits for a first center, and gives it also of a model with a problem. `floats` must be its length. */
PARAMD_API paramd_code paramd_admin_pull(paramd_admin* admin, const char* model, float* center, size_t floats,
                                         int64_t* version);
/* As paramd_worker_initialize. */
PARAMD_API paramd_code paramd_admin_initialize(paramd_admin* admin, const char* model, const float* center,
                                               size_t floats);

/* Models as a daemon, or a file, describes them, one or several. Immutable; from ABI version 4 on. */
typedef struct paramd_models paramd_models;
/* `model`: null for all. */
PARAMD_API paramd_code paramd_admin_describe(paramd_admin* admin, const char* model, paramd_models** models);
PARAMD_API void paramd_models_free(paramd_models* models);
PARAMD_API size_t paramd_models_count(const paramd_models* models);
/* What is given lives as long as the models; an index out of range gives null, and 0. */
PARAMD_API const char* paramd_models_name(const paramd_models* models, size_t model);
PARAMD_API const char* paramd_models_algorithm(const paramd_models* models, size_t model);
PARAMD_API const char* paramd_models_consistency(const paramd_models* models, size_t model);
PARAMD_API const char* paramd_models_problem(const paramd_models* models, size_t model); /* as paramd_admin_problem */
/* Of a file: version and parameters. All zero for an index out of range. */
PARAMD_API paramd_model_info paramd_models_info(const paramd_models* models, size_t model);
/* As a worker's, above. */
PARAMD_API size_t paramd_models_hyperparameters(const paramd_models* models, size_t model);
PARAMD_API const char* paramd_models_hyperparameter_name(const paramd_models* models, size_t model, size_t index);
PARAMD_API double paramd_models_hyperparameter_value(const paramd_models* models, size_t model, size_t index);
PARAMD_API size_t paramd_models_tensors(const paramd_models* models, size_t model);
PARAMD_API const char* paramd_models_tensor_name(const paramd_models* models, size_t model, size_t index);
PARAMD_API const int64_t* paramd_models_tensor_shape(const paramd_models* models, size_t model, size_t index,
                                                     size_t* rank);

/* A model as a file in the safetensors format, which paramctl reads and writes, too; from ABI version 4 on. */
/* Replaces a file of that name once it is written whole. `center` has the floats of the spec's tensors. */
PARAMD_API paramd_code paramd_file_write(const char* path, const paramd_model_spec* spec, int64_t version,
                                         const float* center, size_t floats);
/* One model. It has no name and no algorithm (empty) if another program wrote the file: then its tensors are all, in
 * the order of their data. PARAMD_INVALID_ARGUMENT if it is no such file, or a tensor's type is not F32;
 * PARAMD_DATA_LOSS if it has changed since it was written. */
PARAMD_API paramd_code paramd_file_describe(const char* path, paramd_models** models);
/* The tensors, flattened in the order that paramd_file_describe gives. `floats` must be their length. */
PARAMD_API paramd_code paramd_file_read(const char* path, float* center, size_t floats);

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
/* Older records that the daemon dropped to bound its memory. */
PARAMD_API uint64_t paramd_history_dropped(const paramd_history* history, size_t series);
/* [records, metrics], row-major. */
PARAMD_API const double* paramd_history_metric_values(const paramd_history* history, size_t series);

/* What one job's daemon and workers need to trust each other, made anew; from ABI version 3 on. Immutable. */
typedef struct paramd_secrets paramd_secrets;
/* `hosts`: names and addresses that workers reach the daemon by. */
PARAMD_API paramd_code paramd_secrets_new(const char* const* hosts, size_t host_count, paramd_secrets** secrets);
PARAMD_API void paramd_secrets_free(paramd_secrets* secrets);
/* "tls_cert", "tls_key" and "token_file": what the files hold that paramd's flags of these names want. "tls_ca" and
 * "token": what workers set; the token's role is worker, for all models. Null for anything else. */
PARAMD_API const char* paramd_secrets_get(const paramd_secrets* secrets, const char* key);

#ifdef __cplusplus
}
#endif

#endif /* PARAMD_CLIENT_C_PARAMD_H_ */
