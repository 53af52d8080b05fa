/* scenarios NAME SERVER: does one thing through the C ABI with a daemon, and ends with 0 if all of it went as it
 * should, else with 1 and the line that did not. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/c/paramd.h"

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, paramd_error_message()); \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)
#define CHECK_OK(call) CHECK((call) == PARAMD_OK)
/* The message of a failed call must name what is wrong. */
#define CHECK_FAILS(call, code, text)                      \
  do {                                                     \
    CHECK((call) == (code));                               \
    CHECK(strstr(paramd_error_message(), (text)) != NULL); \
  } while (0)

enum { kFloats = 6 };

static const char* server;

static paramd_model_spec* make_spec(const char* name) {
  const int64_t matrix[] = {2, 2}, vector[] = {1};
  paramd_model_spec* spec = paramd_model_spec_new(name);
  CHECK(spec != NULL);
  CHECK_OK(paramd_model_spec_add_tensor(spec, "w", matrix, 2));
  CHECK_OK(paramd_model_spec_add_tensor(spec, "b", vector, 1));
  CHECK_OK(paramd_model_spec_add_tensor(spec, "scale", NULL, 0));
  CHECK_OK(paramd_model_spec_set_algorithm(spec, "downpour"));
  CHECK_OK(paramd_model_spec_set_consistency(spec, "async"));
  CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "communication_window", 7));
  CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "communication_window", 2));
  return spec;
}

static paramd_worker_options* make_options(const char* worker) {
  paramd_worker_options* options = paramd_worker_options_new();
  CHECK(options != NULL);
  CHECK_OK(paramd_worker_options_set(options, "server", server));
  CHECK_OK(paramd_worker_options_set(options, "model", "m"));
  CHECK_OK(paramd_worker_options_set(options, "worker", worker));
  return options;
}

/* Of model "m", which it creates. */
static paramd_worker* join(const char* worker_name) {
  paramd_model_spec* spec = make_spec("m");
  paramd_worker_options* options = make_options(worker_name);
  paramd_worker* worker = NULL;
  CHECK_OK(paramd_worker_options_set_spec(options, spec));
  paramd_model_spec_free(spec);
  CHECK_OK(paramd_worker_join(options, &worker));
  paramd_worker_options_free(options);
  return worker;
}

static paramd_admin* connect_admin(void) {
  paramd_admin* admin = NULL;
  CHECK_OK(paramd_admin_connect(server, 30, &admin));
  return admin;
}

static paramd_model_info get_info(paramd_admin* admin) {
  paramd_model_info info;
  CHECK_OK(paramd_admin_get_model(admin, "m", &info));
  return info;
}

static void exchange(void) {
  paramd_worker* worker = join("a");
  const float initial[kFloats] = {1, 2, 3, 4, 5, 6}, update[kFloats] = {1, 1, 1, 1, 1, 1};
  float center[kFloats] = {0};
  paramd_exchanged exchanged = {-1, -1};
  CHECK(paramd_worker_parameters(worker) == kFloats);
  CHECK(paramd_worker_incarnation(worker) == 1);
  CHECK(strcmp(paramd_worker_model(worker), "m") == 0);
  CHECK(strcmp(paramd_worker_transport(worker), "shm") == 0 || strcmp(paramd_worker_transport(worker), "grpc") == 0);

  CHECK_OK(paramd_worker_initialize(worker, initial, kFloats, 30));
  CHECK_OK(paramd_worker_pull(worker, center, kFloats, 30, &exchanged));
  CHECK(memcmp(center, initial, sizeof(center)) == 0);
  CHECK(exchanged.version == 0);
  CHECK_OK(paramd_worker_commit(worker, update, kFloats, 30, &exchanged));
  CHECK(exchanged.version == 1 && exchanged.staleness == 0);
  CHECK_OK(paramd_worker_exchange(worker, update, center, kFloats, -1, &exchanged));
  CHECK(exchanged.version == 2 && exchanged.staleness == 1);
  for (int i = 0; i < kFloats; ++i) CHECK(center[i] == initial[i] + 2);

  float* own_update = paramd_worker_commit_buffer(worker);
  float* own_center = paramd_worker_center_buffer(worker);
  if (own_update != NULL && own_center != NULL) {
    for (int i = 0; i < kFloats; ++i) own_update[i] = (float)i;
    CHECK_OK(paramd_worker_exchange(worker, own_update, own_center, kFloats, 30, NULL));
    for (int i = 0; i < kFloats; ++i) CHECK(own_center[i] == initial[i] + 2 + (float)i);
  }

  CHECK_OK(paramd_worker_leave(worker, "tired", 10));
  CHECK_FAILS(paramd_worker_pull(worker, center, kFloats, 30, NULL), PARAMD_FAILED_PRECONDITION, "left");
  paramd_worker_free(worker);
}

static void* message_of_new_thread(void* unused) {
  (void)unused;
  return (void*)(intptr_t)(paramd_error_message()[0] == '\0');
}

static void errors(void) {
  paramd_worker_options* options = make_options("a");
  paramd_worker* const untouched = (paramd_worker*)options;
  paramd_worker* nobody = untouched;
  CHECK(paramd_error_message()[0] == '\0');
  CHECK_FAILS(paramd_worker_join(options, &nobody), PARAMD_NOT_FOUND, "'m'");
  CHECK(nobody == untouched);
  pthread_t thread;
  void* empty = NULL;
  CHECK(pthread_create(&thread, NULL, message_of_new_thread, NULL) == 0 && pthread_join(thread, &empty) == 0);
  CHECK(empty != NULL);

  CHECK_FAILS(paramd_worker_options_set(options, "sever", "x"), PARAMD_INVALID_ARGUMENT, "no worker option 'sever'");
  CHECK_FAILS(paramd_worker_options_set(options, "incarnation", "-1"), PARAMD_INVALID_ARGUMENT, "incarnation");
  CHECK_FAILS(paramd_worker_options_set(options, "incarnation", "9223372036854775808"), PARAMD_INVALID_ARGUMENT,
              "2^63 - 1");
  CHECK_FAILS(paramd_worker_options_set(options, "join_timeout", "soon"), PARAMD_INVALID_ARGUMENT, "seconds");
  CHECK_FAILS(paramd_worker_options_set(options, "transport", "pigeon"), PARAMD_INVALID_ARGUMENT, "auto, grpc or shm");
  CHECK_FAILS(paramd_worker_options_set(options, "wire", "f8"), PARAMD_INVALID_ARGUMENT, "f32, f16 or bf16");
  CHECK_OK(paramd_worker_options_set(options, "incarnation", "9"));
  CHECK_OK(paramd_worker_options_set(options, "join_timeout", "30.5"));
  CHECK_OK(paramd_worker_options_set(options, "rpc_timeout", "-1"));
  CHECK_OK(paramd_worker_options_set(options, "transport", "grpc"));
  CHECK_OK(paramd_worker_options_set(options, "wire", "bf16"));

  paramd_worker* worker = join("b");
  CHECK_OK(paramd_worker_join(options, &nobody));
  CHECK(paramd_worker_incarnation(nobody) == 9);
  CHECK(strcmp(paramd_worker_transport(nobody), "grpc") == 0);
  paramd_worker_free(nobody);
  CHECK_OK(paramd_worker_options_set(options, "incarnation", "3"));
  CHECK(paramd_worker_join(options, &nobody) == PARAMD_ABORTED);
  CHECK_OK(paramd_worker_options_set(options, "server", "nonsense"));
  CHECK_FAILS(paramd_worker_join(options, &nobody), PARAMD_INVALID_ARGUMENT, "HOST:PORT");

  float center[2 * kFloats] = {0};
  CHECK(paramd_worker_pull(worker, center, kFloats, 0.1, NULL) == PARAMD_DEADLINE_EXCEEDED);
  CHECK_FAILS(paramd_worker_pull(worker, center, kFloats, NAN, NULL), PARAMD_INVALID_ARGUMENT, "timeout");
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  CHECK_FAILS(paramd_worker_pull(worker, center, kFloats - 1, 30, NULL), PARAMD_INVALID_ARGUMENT, "6 parameters");
  CHECK_FAILS(paramd_worker_commit(worker, center, 0, 30, NULL), PARAMD_INVALID_ARGUMENT, "6 parameters");
  CHECK_FAILS(paramd_worker_exchange(worker, center, center + kFloats - 1, kFloats, 30, NULL), PARAMD_INVALID_ARGUMENT,
              "overlap");
  CHECK_OK(paramd_worker_exchange(worker, center, center + kFloats, kFloats, 30, NULL));
  center[2] = NAN;
  CHECK(paramd_worker_commit(worker, center, kFloats, 30, NULL) == PARAMD_INVALID_ARGUMENT);
  center[2] = 1;
  CHECK(paramd_worker_initialize(worker, center, kFloats, 30) == PARAMD_ALREADY_EXISTS);

  paramd_model_spec* other = make_spec("m");
  CHECK_OK(paramd_model_spec_set_algorithm(other, "adag"));
  paramd_admin* admin = connect_admin();
  CHECK(paramd_admin_create_model(admin, other) == PARAMD_ALREADY_EXISTS);
  CHECK(get_info(admin).rejected == 1);
  CHECK(strcmp(paramd_code_name(PARAMD_ALREADY_EXISTS), "ALREADY_EXISTS") == 0);
  paramd_admin_free(admin);
  paramd_model_spec_free(other);
  paramd_worker_options_free(options);
  paramd_worker_free(worker);
}

static void nulls(void) {
  paramd_worker_options* options = make_options("a");
  paramd_model_spec* spec = make_spec("n");
  paramd_worker* worker = join("a");
  paramd_admin* admin = connect_admin();
  paramd_mlp* mlp = NULL;
  const int64_t layers[] = {2, 2};
  CHECK_OK(paramd_mlp_new(layers, 2, "sgd", 0.1, 1, &mlp));
  float floats[kFloats] = {0};
  paramd_model_info info;
  size_t entries;
  paramd_history* history = NULL;
#define CHECK_NULL(call, name) CHECK_FAILS(call, PARAMD_INVALID_ARGUMENT, name " is null")
  CHECK(paramd_model_spec_new(NULL) == NULL);
  CHECK_NULL(paramd_model_spec_add_tensor(NULL, "w", NULL, 0), "spec");
  CHECK_NULL(paramd_model_spec_add_tensor(spec, NULL, NULL, 0), "name");
  CHECK_NULL(paramd_model_spec_add_tensor(spec, "w", NULL, 1), "shape");
  CHECK_NULL(paramd_model_spec_set_algorithm(NULL, "adag"), "spec");
  CHECK_NULL(paramd_model_spec_set_algorithm(spec, NULL), "algorithm");
  CHECK_NULL(paramd_model_spec_set_consistency(spec, NULL), "consistency");
  CHECK_NULL(paramd_model_spec_set_hyperparameter(spec, NULL, 1), "name");
  CHECK_NULL(paramd_worker_options_set(NULL, "server", server), "options");
  CHECK_NULL(paramd_worker_options_set(options, NULL, server), "key");
  CHECK_NULL(paramd_worker_options_set(options, "server", NULL), "value");
  CHECK_NULL(paramd_worker_options_set_spec(options, NULL), "spec");
  CHECK_NULL(paramd_worker_options_set_canceller(options, NULL), "canceller");
  CHECK_NULL(paramd_worker_options_set_on_event(NULL, NULL, NULL), "options");
  CHECK_OK(paramd_worker_options_set_on_event(options, NULL, NULL));
  CHECK_NULL(paramd_worker_join(NULL, &worker), "options");
  CHECK_NULL(paramd_worker_join(options, NULL), "worker");
  CHECK(paramd_worker_parameters(NULL) == 0 && paramd_worker_incarnation(NULL) == 0);
  CHECK(paramd_worker_model(NULL) == NULL && paramd_worker_transport(NULL) == NULL);
  CHECK(paramd_worker_algorithm(NULL) == NULL && paramd_worker_wire(NULL) == NULL);
  CHECK(paramd_worker_commit_state(NULL) == PARAMD_COMMIT_NONE);
  CHECK(paramd_worker_tensors(NULL) == 0 && paramd_worker_hyperparameters(NULL) == 0);
  CHECK(paramd_worker_commit_buffer(NULL) == NULL && paramd_worker_center_buffer(NULL) == NULL);
  CHECK_NULL(paramd_worker_initialize(worker, NULL, kFloats, 30), "center");
  CHECK_NULL(paramd_worker_pull(NULL, floats, kFloats, 30, NULL), "worker");
  CHECK_NULL(paramd_worker_pull(worker, NULL, kFloats, 30, NULL), "center");
  CHECK_NULL(paramd_worker_commit(worker, NULL, kFloats, 30, NULL), "update");
  CHECK_NULL(paramd_worker_exchange(worker, floats, NULL, kFloats, 30, NULL), "center");
  CHECK_NULL(paramd_worker_cancel(NULL), "worker");
  CHECK_NULL(paramd_worker_resume(NULL), "worker");
  CHECK_NULL(paramd_worker_leave(NULL, NULL, 1), "worker");
  paramd_window* window = NULL;
  CHECK_NULL(paramd_window_new(NULL, &(paramd_span){floats, kFloats}, 1, NULL, &window), "worker");
  CHECK_NULL(paramd_window_new(worker, NULL, 1, NULL, &window), "parameters");
  CHECK_NULL(paramd_window_new(worker, &(paramd_span){floats, kFloats}, 1, NULL, NULL), "window");
  CHECK_NULL(paramd_window_begin(NULL), "window");
  CHECK_NULL(paramd_window_after_step(NULL, 0, NULL, NULL), "window");
  CHECK_NULL(paramd_window_get_statistics(NULL, NULL), "window");
  CHECK(!paramd_window_by_epoch(NULL));
  paramd_window_free(NULL);
  CHECK_NULL(paramd_train(NULL, NULL, NULL, NULL, NULL), "options");
  CHECK_NULL(paramd_train(options, NULL, NULL, NULL, NULL), "paramd_trainable");
  CHECK_NULL(paramd_mlp_new(NULL, 2, "sgd", 0.1, 1, &mlp), "layers");
  CHECK_NULL(paramd_mlp_new(layers, 2, NULL, 0.1, 1, &mlp), "optimizer");
  CHECK_NULL(paramd_mlp_new(layers, 2, "sgd", 0.1, 1, NULL), "mlp");
  CHECK_NULL(paramd_mlp_new_with(NULL, &mlp), "options");
  CHECK_NULL(paramd_mlp_describe(mlp, NULL), "spec");
  CHECK_NULL(paramd_mlp_trainable(mlp, NULL), "trainable");
  CHECK(paramd_mlp_parameters(NULL, NULL) == NULL);
  CHECK_NULL(paramd_mlp_predict(mlp, floats, 1, NULL), "probabilities");
  CHECK_NULL(paramd_admin_connect(NULL, 1, &admin), "server");
  CHECK_NULL(paramd_admin_connect(server, 1, NULL), "admin");
  CHECK_NULL(paramd_admin_create_model(admin, NULL), "spec");
  CHECK_NULL(paramd_admin_delete_model(admin, NULL), "model");
  CHECK_NULL(paramd_admin_get_model(NULL, "m", &info), "admin");
  CHECK_NULL(paramd_admin_get_model(admin, "m", NULL), "info");
  CHECK_NULL(paramd_admin_problem(admin, "m", NULL, 1), "problem");
  CHECK_NULL(paramd_admin_staleness(admin, "m", NULL, 1, &entries), "histogram");
  CHECK_NULL(paramd_admin_pull(admin, "m", NULL, kFloats, NULL), "center");
  CHECK_NULL(paramd_admin_initialize(admin, NULL, floats, kFloats), "model");
  CHECK_NULL(paramd_admin_history(admin, "m", 0, NULL), "history");
  CHECK(paramd_history_series(history) == 0 && paramd_history_worker(history, 0) == NULL);
  CHECK(paramd_history_records(history, 0, NULL) == 0 && paramd_history_metrics(history, 0) == 0);
  CHECK(paramd_history_metric_name(history, 0, 0) == NULL && paramd_history_metric_values(history, 0) == NULL);
  paramd_canceller_cancel(NULL);
  paramd_canceller_free(NULL);
  paramd_model_spec_free(NULL);
  paramd_worker_options_free(NULL);
  paramd_worker_free(NULL);
  paramd_mlp_free(NULL);
  paramd_admin_free(NULL);
  paramd_history_free(NULL);
  paramd_mlp_free(mlp);
  paramd_admin_free(admin);
  paramd_worker_free(worker);
  paramd_model_spec_free(spec);
  paramd_worker_options_free(options);
}

typedef struct call {
  paramd_worker_options* options;
  paramd_worker* worker;
  atomic_int begun;
  paramd_code code;
} call;

static void* call_join(void* argument) {
  call* joining = argument;
  paramd_worker* worker = NULL;
  atomic_store(&joining->begun, 1);
  joining->code = paramd_worker_join(joining->options, &worker);
  return NULL;
}

static void* call_pull(void* argument) {
  call* pulling = argument;
  float center[kFloats];
  pulling->code = paramd_worker_pull(pulling->worker, center, kFloats, -1, NULL);
  return NULL;
}

static void pause_briefly(void) {
  const struct timespec pause = {0, 2000000};
  nanosleep(&pause, NULL);
}

static void cancel_join(void) {
  paramd_canceller* canceller = paramd_canceller_new();
  call joining = {.options = make_options("a")};
  CHECK_OK(paramd_worker_options_set(joining.options, "server", "unix:/nowhere/paramd.sock"));
  CHECK_OK(paramd_worker_options_set(joining.options, "join_timeout", "-1"));
  CHECK_OK(paramd_worker_options_set_canceller(joining.options, canceller));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, call_join, &joining) == 0);
  while (!atomic_load(&joining.begun)) pause_briefly();
  paramd_canceller_cancel(canceller);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(joining.code == PARAMD_CANCELLED);
  paramd_worker* worker = NULL;
  CHECK_FAILS(paramd_worker_join(joining.options, &worker), PARAMD_CANCELLED, "cancelled");
  paramd_canceller_free(canceller);
  paramd_worker_options_free(joining.options);
}

static void cancel_pull(void) {
  paramd_worker_free(join("creator"));
  paramd_admin* admin = connect_admin();
  paramd_canceller* canceller = paramd_canceller_new();
  for (int with_canceller = 0; with_canceller < 2; ++with_canceller) {
    call pulling = {.options = make_options("a")};
    if (with_canceller) CHECK_OK(paramd_worker_options_set_canceller(pulling.options, canceller));
    CHECK_OK(paramd_worker_join(pulling.options, &pulling.worker));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_pull, &pulling) == 0);
    while (get_info(admin).waiting == 0) pause_briefly();
    if (with_canceller) {
      paramd_canceller_cancel(canceller);
    } else {
      CHECK_OK(paramd_worker_cancel(pulling.worker));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pulling.code == PARAMD_CANCELLED);
    float center[kFloats];
    CHECK(paramd_worker_pull(pulling.worker, center, kFloats, 30, NULL) == PARAMD_CANCELLED);
    paramd_worker_free(pulling.worker);
    paramd_worker_options_free(pulling.options);
  }
  paramd_canceller_free(canceller);
  paramd_admin_free(admin);
}

/* A model of one's own: |w - target|^2 / 2, whose metric is the first parameter. */
typedef struct quadratic {
  float parameters[kFloats];
  double learning_rate;
  int64_t steps;
  int64_t fails_at;
} quadratic;

static paramd_code quadratic_train(void* context, const paramd_batch* batch, double* results, char* message,
                                   size_t message_size) {
  quadratic* model = context;
  if (++model->steps == model->fails_at) {
    snprintf(message, message_size, "out of luck at step %d", (int)model->steps);
    return PARAMD_OUT_OF_RANGE;
  }
  const float target = batch->labels[0];
  results[0] = 0;
  for (int i = 0; i < kFloats; ++i) {
    const float off = model->parameters[i] - target;
    results[0] += off * off / 2;
    model->parameters[i] -= (float)model->learning_rate * off;
  }
  results[1] = model->parameters[0];
  return PARAMD_OK;
}

static double quadratic_rate(void* context) { return ((quadratic*)context)->learning_rate; }
static void quadratic_set_rate(void* context, double rate) { ((quadratic*)context)->learning_rate = rate; }

/* 100 minibatches of 4 rows an epoch. */
typedef struct source {
  int64_t next;
  int64_t fails_at;
  atomic_int cancels;
  float features[8];
  float labels[4];
} source;

static paramd_code source_next(void* context, paramd_batch* batch, int* more, char* message, size_t message_size) {
  source* from = context;
  (void)message;
  (void)message_size;
  if (from->next == from->fails_at && from->fails_at != 0) return PARAMD_DATA_LOSS;
  *more = from->next++ < 100;
  if (!*more) return PARAMD_OK;
  for (int row = 0; row < 4; ++row) {
    const int class = (int)(from->next + row) % 2;
    from->features[2 * row] = class ? 1.0f : -1.0f;
    from->features[2 * row + 1] = (float)(from->next % 7) / 7;
    from->labels[row] = (float)class;
  }
  *batch = (paramd_batch){
      .rows = 4, .features = from->features, .feature_floats = 8, .labels = from->labels, .label_floats = 4};
  return PARAMD_OK;
}

static paramd_code source_rewind(void* context, int64_t epoch, char* message, size_t message_size) {
  (void)epoch;
  (void)message;
  (void)message_size;
  ((source*)context)->next = 0;
  return PARAMD_OK;
}

static int64_t source_batches(void* context) {
  (void)context;
  return 100;
}

static void source_cancel(void* context) { atomic_store(&((source*)context)->cancels, 1); }

static paramd_batch_source make_source(source* from) {
  return (paramd_batch_source){.struct_size = sizeof(paramd_batch_source),
                               .context = from,
                               .next = source_next,
                               .rewind = source_rewind,
                               .batches_per_epoch = source_batches,
                               .cancel = source_cancel};
}

static const char* const kQuadraticMetrics[] = {"first"};

static paramd_trainable make_trainable(quadratic* model) {
  return (paramd_trainable){.struct_size = sizeof(paramd_trainable),
                            .context = model,
                            .parameters = model->parameters,
                            .floats = kFloats,
                            .metrics = 1,
                            .metric_names = kQuadraticMetrics,
                            .train_on_batch = quadratic_train,
                            .learning_rate = quadratic_rate,
                            .set_learning_rate = quadratic_set_rate};
}

static void train(void) {
  paramd_worker_free(join("creator"));
  quadratic model = {.learning_rate = 0.1};
  source from = {0};
  const paramd_trainable trainable = make_trainable(&model);
  const paramd_batch_source batches = make_source(&from);
  paramd_worker_options* options = make_options("a");
  const paramd_train_options train_options = {
      .struct_size = sizeof(train_options), .epochs = 2, .communication_window = 5, .learning_rate = 0.05};
  paramd_train_summary summary;
  CHECK_OK(paramd_train(options, &train_options, &trainable, &batches, &summary));
  CHECK(summary.steps == 200 && summary.samples == 800 && summary.exchanges == 40 && summary.epochs == 2);
  CHECK(summary.mean_staleness == 0 && !summary.reached_target_loss && summary.wall_s > 0);
  CHECK(model.learning_rate == 0.05);

  paramd_admin* admin = connect_admin();
  const paramd_model_info info = get_info(admin);
  CHECK(info.version == 40 && info.commits == 40 && info.parameters == kFloats && info.initialized);
  CHECK(info.workers == 2 && info.live_workers == 0 && info.waiting == 0 && info.rejected == 0);
  float center[kFloats];
  int64_t version = 0;
  CHECK_OK(paramd_admin_pull(admin, "m", center, kFloats, &version));
  CHECK(version == 40 && memcmp(center, model.parameters, sizeof(center)) == 0);
  uint64_t histogram[1] = {0};
  size_t entries = 0;
  CHECK_OK(paramd_admin_staleness(admin, "m", histogram, 1, &entries));
  CHECK(entries >= 1 && histogram[0] == 40);

  paramd_history* history = NULL;
  CHECK_OK(paramd_admin_history(admin, "m", 0, &history));
  CHECK(paramd_history_series(history) == 1);
  CHECK(strcmp(paramd_history_worker(history, 0), "a") == 0);
  const paramd_history_record* records = NULL;
  CHECK(paramd_history_records(history, 0, &records) == 200);
  CHECK(records[199].step == 200 && records[199].epoch == 2 && records[0].loss >= 0);
  CHECK(paramd_history_metrics(history, 0) == 1);
  CHECK(paramd_history_dropped(history, 0) == 0 && paramd_history_dropped(history, 9) == 0);
  CHECK(strcmp(paramd_history_metric_name(history, 0, 0), "first") == 0);
  CHECK(paramd_history_metric_name(history, 0, 1) == NULL && paramd_history_worker(history, 1) == NULL);
  CHECK(paramd_history_metric_values(history, 0)[199] == model.parameters[0]);
  paramd_history_free(history);
  CHECK_OK(paramd_admin_history(admin, "m", 1, &history));
  CHECK(paramd_history_series(history) == 1 && paramd_history_worker(history, 0)[0] == '\0');
  paramd_history_free(history);
  CHECK_OK(paramd_admin_delete_model(admin, "m"));
  paramd_model_info gone;
  CHECK(paramd_admin_get_model(admin, "m", &gone) == PARAMD_NOT_FOUND);
  paramd_admin_free(admin);
  paramd_worker_options_free(options);
}

static paramd_code source_rewind_nothing(void* context, int64_t epoch, char* message, size_t message_size) {
  (void)context;
  (void)epoch;
  (void)message;
  (void)message_size;
  return PARAMD_OK;
}

static void train_errors(void) {
  paramd_worker_free(join("creator"));
  quadratic model = {.learning_rate = 0.1, .fails_at = 3};
  source from = {0};
  paramd_trainable trainable = make_trainable(&model);
  paramd_batch_source batches = make_source(&from);
  paramd_train_options train_options = {.struct_size = sizeof(train_options)};
  paramd_worker_options* options = make_options("a");
  /* There is more to read when it fails. */
  train_options.max_prefetch = 1;
  train_options.communication_window = 1;
  paramd_train_summary summary = {.steps = -1};
  CHECK_FAILS(paramd_train(options, &train_options, &trainable, &batches, &summary), PARAMD_OUT_OF_RANGE,
              "out of luck at step 3");
  CHECK(summary.steps == 2 && summary.exchanges == 2 && summary.samples == 8 && summary.wall_s > 0);
  CHECK(atomic_load(&from.cancels));
  model.fails_at = 0;
  from.fails_at = 7;
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_DATA_LOSS, "next");

  trainable.struct_size = 0;
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT,
              "set it to sizeof(paramd_trainable)");
  trainable = make_trainable(&model);
  trainable.train_on_batch = NULL;
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "train_on_batch");
  trainable = make_trainable(&model);
  batches.rewind = NULL;
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "rewind");
  batches = make_source(&from);
  train_options.epochs = -1;
  CHECK_FAILS(paramd_train(options, &train_options, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "epochs");
  trainable.floats = 2;
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "2 parameters");

  /* Of a program that is newer than the library. */
  struct {
    paramd_train_options known;
    double unknown;
  } newer = {.known = {.struct_size = sizeof(newer), .epochs = 1}, .unknown = 1};
  from.fails_at = 0;
  trainable = make_trainable(&model);
  CHECK_FAILS(paramd_train(options, &newer.known, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT,
              "does not know");
  newer.unknown = 0;
  CHECK_OK(paramd_train(options, &newer.known, &trainable, &batches, NULL));
  paramd_worker_options_free(options);
}

static void train_mlp(void) {
  const int64_t layers[] = {2, 8, 2};
  paramd_mlp* mlp = NULL;
  CHECK_FAILS(paramd_mlp_new(layers, 1, "sgd", 0.1, 1, &mlp), PARAMD_INVALID_ARGUMENT, "at least two layers");
  paramd_mlp_options hinge = {sizeof(hinge), layers, 3, "sgd", 0.1, 1, "hinge", 0, 0};
  CHECK_FAILS(paramd_mlp_new_with(&hinge, &mlp), PARAMD_INVALID_ARGUMENT, "softmax, for classes");
  hinge.struct_size = 8;
  CHECK_FAILS(paramd_mlp_new_with(&hinge, &mlp), PARAMD_INVALID_ARGUMENT, "struct_size is 8");
  CHECK_FAILS(paramd_mlp_new(layers, 3, "magic", 0.1, 1, &mlp), PARAMD_INVALID_ARGUMENT, "unknown optimizer");
  CHECK_OK(paramd_mlp_new(layers, 3, "adam", 0.01, 1, &mlp));
  paramd_model_spec* spec = paramd_model_spec_new("m");
  CHECK_OK(paramd_mlp_describe(mlp, spec));
  CHECK_OK(paramd_model_spec_set_algorithm(spec, "adag"));
  paramd_worker_options* options = make_options("a");
  CHECK_OK(paramd_worker_options_set_spec(options, spec));
  paramd_trainable trainable = {0};
  CHECK_FAILS(paramd_mlp_trainable(mlp, &trainable), PARAMD_INVALID_ARGUMENT, "struct_size");
  trainable.struct_size = sizeof(trainable);
  CHECK_OK(paramd_mlp_trainable(mlp, &trainable));
  size_t floats = 0;
  CHECK(paramd_mlp_parameters(mlp, &floats) == trainable.parameters && floats == 2 * 8 + 8 + 8 * 2 + 2);
  source from = {0};
  const paramd_batch_source batches = make_source(&from);
  const paramd_train_options train_options = {.struct_size = sizeof(train_options), .epochs = 5};
  paramd_train_summary summary;
  CHECK_OK(paramd_train(options, &train_options, &trainable, &batches, &summary));
  CHECK(summary.epochs == 5 && summary.last_loss < 0.2);

  const float features[] = {-1, 0.5f, 1, 0.5f};
  float probabilities[4];
  CHECK_OK(paramd_mlp_predict(mlp, features, 2, probabilities));
  CHECK(probabilities[0] > 0.8f && probabilities[3] > 0.8f);
  CHECK(fabsf(probabilities[0] + probabilities[1] - 1) < 1e-5f);
  CHECK_FAILS(paramd_mlp_predict(mlp, features, -1, probabilities), PARAMD_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(paramd_mlp_predict(mlp, features, INT64_MAX, probabilities), PARAMD_INVALID_ARGUMENT, "rows");

  /* A loop of one's own. */
  const float label = 3;
  double results[2];
  char message[64];
  CHECK(trainable.train_on_batch(
            trainable.context,
            &(paramd_batch){.rows = 1, .features = features, .feature_floats = 2, .labels = &label, .label_floats = 1},
            results, message, sizeof(message)) == PARAMD_INVALID_ARGUMENT);
  CHECK(strstr(message, "label 3") != NULL);
  const float good_label = 1;
  trainable.set_learning_rate(trainable.context, 0.5);
  CHECK(trainable.learning_rate(trainable.context) == 0.5);
  CHECK_OK(trainable.train_on_batch(
      trainable.context,
      &(paramd_batch){.rows = 1, .features = features, .feature_floats = 2, .labels = &good_label, .label_floats = 1},
      results, message, sizeof(message)));
  CHECK(results[0] > 0 && results[1] == 0);
  paramd_worker_options_free(options);
  paramd_model_spec_free(spec);
  paramd_mlp_free(mlp);
}

/* What a program needs to follow a model's algorithm. */
static void describe(void) {
  paramd_worker* worker = join("a");
  CHECK(strcmp(paramd_worker_algorithm(worker), "downpour") == 0);
  CHECK(strcmp(paramd_worker_consistency(worker), "async") == 0);
  CHECK(strcmp(paramd_worker_wire(worker), "f32") == 0);
  CHECK(paramd_worker_tensors(worker) == 3);
  size_t rank = 9;
  CHECK(strcmp(paramd_worker_tensor_name(worker, 0), "w") == 0);
  const int64_t* shape = paramd_worker_tensor_shape(worker, 0, &rank);
  CHECK(rank == 2 && shape[0] == 2 && shape[1] == 2);
  CHECK(strcmp(paramd_worker_tensor_name(worker, 2), "scale") == 0);
  CHECK(paramd_worker_tensor_shape(worker, 2, &rank) == NULL && rank == 0);
  CHECK(paramd_worker_tensor_name(worker, 3) == NULL);
  double window = 0, rate = 0;
  for (size_t i = 0; i < paramd_worker_hyperparameters(worker); ++i) {
    const char* name = paramd_worker_hyperparameter_name(worker, i);
    if (strcmp(name, "communication_window") == 0) window = paramd_worker_hyperparameter_value(worker, i);
    if (strcmp(name, "learning_rate") == 0) rate = paramd_worker_hyperparameter_value(worker, i);
  }
  CHECK(window == 2 && rate == 0.1); /* as given, and by default */
  CHECK(paramd_worker_hyperparameter_name(worker, 99) == NULL);
  paramd_worker_free(worker);
}

static void count_windows(int overlap) {
  paramd_worker* worker = join(overlap ? "overlapped" : "waiting");
  float matrix[4] = {1, 1, 1, 1}, bias = 1, scale = 1; /* wherever the program has them */
  const paramd_span tensors[] = {{matrix, 4}, {&bias, 1}, {&scale, 1}};
  const char* names[] = {"first"};
  const paramd_window_options options = {
      .struct_size = sizeof(options), .overlap = overlap, .metrics = 1, .metric_names = names};
  paramd_window* window = NULL;
  CHECK_FAILS(paramd_window_new(worker, tensors, 2, &options, &window), PARAMD_INVALID_ARGUMENT, "5 parameters");
  CHECK_OK(paramd_window_new(worker, tensors, 3, &options, &window));
  paramd_window* second = NULL;
  CHECK_FAILS(paramd_window_new(worker, tensors, 3, NULL, &second), PARAMD_FAILED_PRECONDITION, "already");
  float center[kFloats];
  CHECK_FAILS(paramd_worker_pull(worker, center, kFloats, 1, NULL), PARAMD_FAILED_PRECONDITION, "paramd_window");
  CHECK_OK(paramd_window_begin(window));
  const float begun = matrix[0];
  CHECK(!paramd_window_by_epoch(window));
  int full = 0;
  for (int step = 1; step <= 7; ++step) {
    CHECK_OK(paramd_window_before_step(window));
    for (int i = 0; i < 4; ++i) ++matrix[i];
    ++bias;
    ++scale;
    const double results[] = {step, matrix[0]};
    CHECK_OK(paramd_window_after_step(window, step / 7.0, results, &full));
    CHECK(full == (step % 2 == 0));
    if (full) CHECK_OK(paramd_window_end(window));
  }
  CHECK_OK(paramd_window_finish(window));
  CHECK(matrix[3] == begun + 7 && bias == begun + 7 && scale == begun + 7);
  paramd_window_statistics statistics;
  CHECK_OK(paramd_window_get_statistics(window, &statistics));
  CHECK(statistics.steps == 7 && statistics.exchanges == 4 && statistics.exchanged == 7);
  paramd_window_free(window);
  CHECK_OK(paramd_worker_pull(worker, center, kFloats, 30, NULL));
  for (int i = 0; i < kFloats; ++i) CHECK(center[i] == begun + 7);
  /* Another window: its step is the worker's eighth. */
  CHECK_OK(paramd_window_new(worker, tensors, 3, &options, &window));
  CHECK_OK(paramd_window_begin(window));
  CHECK_OK(paramd_window_before_step(window));
  CHECK_OK(paramd_window_after_step(window, 2, (const double[]){8, 0}, &full));
  CHECK_OK(paramd_window_finish(window));
  paramd_window_free(window);
  CHECK_OK(paramd_worker_leave(worker, NULL, 10));
  paramd_worker_free(worker);
}

static void windows(void) {
  for (int overlap = 0; overlap < 2; ++overlap) count_windows(overlap);
  paramd_admin* admin = connect_admin();
  paramd_history* history = NULL;
  CHECK_OK(paramd_admin_history(admin, "m", 0, &history));
  CHECK(paramd_history_series(history) == 2);
  const paramd_history_record* records = NULL;
  CHECK(paramd_history_records(history, 0, &records) == 8 && records[7].step == 8 && records[7].loss == 8);
  CHECK(records[6].step == 7 && records[6].loss == 7 && records[6].epoch == 1);
  CHECK(strcmp(paramd_history_metric_name(history, 1, 0), "first") == 0);
  paramd_history_free(history);
  paramd_admin_free(admin);
}

static void abandoned_window(void) {
  paramd_worker* worker = join("a");
  float parameters[kFloats] = {0};
  const paramd_span all = {parameters, kFloats};
  const paramd_window_options options = {.struct_size = sizeof(options), .communication_window = 1, .overlap = 1};
  paramd_window* window = NULL;
  CHECK_OK(paramd_window_new(worker, &all, 1, &options, &window));
  const double loss = 1;
  int full = 0;
  CHECK_FAILS(paramd_window_before_step(window), PARAMD_FAILED_PRECONDITION, "Begin");
  paramd_window_free(window);
  CHECK_OK(paramd_window_new(worker, &all, 1, &options, &window));
  CHECK_OK(paramd_window_begin(window));
  CHECK_OK(paramd_window_before_step(window));
  CHECK_OK(paramd_window_after_step(window, 0, &loss, &full));
  CHECK_OK(paramd_window_end(window));
  CHECK_OK(paramd_window_before_step(window)); /* a step that fails */
  CHECK_OK(paramd_window_abandon(window));
  paramd_window_statistics statistics;
  CHECK_OK(paramd_window_get_statistics(window, &statistics));
  CHECK(statistics.steps == 1 && statistics.exchanged == 1);
  CHECK(paramd_window_finish(window) == PARAMD_FAILED_PRECONDITION);
  paramd_window_free(window);
  paramd_worker_free(worker);
}

/* Minibatches of integers and bytes. */
static int64_t next_tokens[3];

static paramd_code tokens_next(void* context, paramd_batch* batch, int* more, char* message, size_t message_size) {
  static const int64_t shape[] = {1, 3}, bytes_shape[] = {2};
  static uint8_t bytes[2];
  static paramd_input inputs[2];
  int64_t* const next = context;
  (void)message;
  (void)message_size;
  *more = *next < 5;
  if (!*more) return PARAMD_OK;
  for (int i = 0; i < 3; ++i) next_tokens[i] = INT64_C(1) << 60 | (*next + i);
  bytes[0] = bytes[1] = (uint8_t)(250 + *next);
  inputs[0] = (paramd_input){PARAMD_INT64, shape, 2, next_tokens, 3};
  inputs[1] = (paramd_input){PARAMD_UINT8, bytes_shape, 1, bytes, 2};
  ++*next;
  *batch = (paramd_batch){.rows = 1, .inputs = inputs, .input_count = 2};
  return PARAMD_OK;
}

static paramd_code tokens_rewind(void* context, int64_t epoch, char* message, size_t message_size) {
  (void)epoch;
  (void)message;
  (void)message_size;
  *(int64_t*)context = 0;
  return PARAMD_OK;
}

static paramd_code tokens_train(void* context, const paramd_batch* batch, double* results, char* message,
                                size_t message_size) {
  quadratic* model = context;
  const int64_t step = model->steps++;
  (void)message;
  (void)message_size;
  CHECK(batch->feature_floats == 0 && batch->input_count == 2);
  const paramd_input* tokens = &batch->inputs[0];
  CHECK(tokens->type == PARAMD_INT64 && tokens->rank == 2 && tokens->shape[1] == 3 && tokens->count == 3);
  for (int i = 0; i < 3; ++i) CHECK(((const int64_t*)tokens->values)[i] == (INT64_C(1) << 60 | (step + i)));
  const paramd_input* bytes = &batch->inputs[1];
  CHECK(bytes->type == PARAMD_UINT8 && bytes->count == 2 && ((const uint8_t*)bytes->values)[1] == 250 + step);
  results[0] = results[1] = 0;
  return PARAMD_OK;
}

static void train_inputs(void) {
  paramd_worker_free(join("creator"));
  quadratic model = {.learning_rate = 0.1};
  paramd_trainable trainable = make_trainable(&model);
  trainable.train_on_batch = tokens_train;
  int64_t next = 0;
  const paramd_batch_source batches = {
      .struct_size = sizeof(batches), .context = &next, .next = tokens_next, .rewind = tokens_rewind};
  paramd_worker_options* options = make_options("a");
  CHECK_OK(paramd_train(options, NULL, &trainable, &batches, NULL));
  CHECK(model.steps == 5);
  paramd_worker_options_free(options);
}

static paramd_code bad_next(void* context, paramd_batch* batch, int* more, char* message, size_t message_size) {
  (void)message;
  (void)message_size;
  *more = 1;
  *batch = *(const paramd_batch*)context;
  return PARAMD_OK;
}

static void train_bad_batches(void) {
  paramd_worker_free(join("creator"));
  quadratic model = {.learning_rate = 0.1};
  const paramd_trainable trainable = make_trainable(&model);
  paramd_worker_options* options = make_options("a");
  paramd_batch batch = {.rows = 0};
  const paramd_batch_source batches = {
      .struct_size = sizeof(batches), .context = &batch, .next = bad_next, .rewind = source_rewind_nothing};
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "0 rows");
  const float one = 1;
  batch = (paramd_batch){.rows = INT64_C(1) << 62, .features = &one, .feature_floats = 1};
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "1 features");
  batch = (paramd_batch){.rows = -3};
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "-3 rows");
  const paramd_input strange = {.type = (paramd_type)77};
  batch = (paramd_batch){.rows = 1, .inputs = &strange, .input_count = 1};
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "type 77");
  batch = (paramd_batch){.rows = 1, .feature_floats = 1};
  CHECK_FAILS(paramd_train(options, NULL, &trainable, &batches, NULL), PARAMD_INVALID_ARGUMENT, "null pointer");
  CHECK(model.steps == 0);
  paramd_worker_options_free(options);
}

/* The same mistake has the same code, whoever makes it. */
static void admin_errors(void) {
  paramd_admin* nobody = NULL;
  CHECK(paramd_admin_connect("unix:/nowhere/paramd.sock", 0.1, &nobody) != PARAMD_OK && nobody == NULL);
  paramd_worker_free(join("creator"));
  paramd_admin* admin = connect_admin();
  const float center[2 * kFloats] = {0};
  float pulled[2 * kFloats];
  CHECK_OK(paramd_admin_initialize(admin, "m", center, kFloats));
  for (size_t floats = kFloats - 1; floats <= kFloats + 1; floats += 2) {
    CHECK(paramd_admin_pull(admin, "m", pulled, floats, NULL) == PARAMD_INVALID_ARGUMENT);
    CHECK(paramd_admin_initialize(admin, "m", center, floats) == PARAMD_INVALID_ARGUMENT);
  }
  CHECK_OK(paramd_admin_pull(admin, "m", pulled, kFloats, NULL));
  paramd_admin_free(admin);
}

/* A call says what became of its commit, whatever it came to. */
static void commit_states(void) {
  paramd_worker* worker = join("a");
  float update[kFloats] = {1, 1, 1, 1, 1, 1}, center[kFloats] = {0};
  CHECK(paramd_worker_commit_state(worker) == PARAMD_COMMIT_NONE);
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  CHECK_OK(paramd_worker_pull(worker, center, kFloats, 30, NULL));
  CHECK(paramd_worker_commit_state(worker) == PARAMD_COMMIT_NONE);
  CHECK_OK(paramd_worker_commit(worker, update, kFloats, 30, NULL));
  CHECK(paramd_worker_commit_state(worker) == PARAMD_COMMIT_APPLIED);
  update[3] = INFINITY;
  CHECK(paramd_worker_commit(worker, update, kFloats, 30, NULL) == PARAMD_INVALID_ARGUMENT);
  CHECK(paramd_worker_commit_state(worker) == PARAMD_COMMIT_NOT_APPLIED);
  paramd_worker_free(worker);

  /* A center that the wire can't hold is an error of an exchange whose commit is applied. */
  paramd_worker_options* options = make_options("half");
  CHECK_OK(paramd_worker_options_set(options, "transport", "grpc"));
  CHECK_OK(paramd_worker_options_set(options, "wire", "f16"));
  CHECK_OK(paramd_worker_join(options, &worker));
  for (int i = 0; i < 2; ++i) {
    const float large[kFloats] = {60000};
    const paramd_code code = paramd_worker_exchange(worker, large, center, kFloats, 30, NULL);
    CHECK(code == (i == 0 ? PARAMD_OK : PARAMD_FAILED_PRECONDITION));
    CHECK(paramd_worker_commit_state(worker) == PARAMD_COMMIT_APPLIED);
  }
  paramd_worker_free(worker);
  paramd_worker_options_free(options);
}

/* Whoever started this kills the daemon once there is a line, and starts it again with an older center. */
static void came_back(void) {
  paramd_worker* worker = join("a");
  const float update[kFloats] = {1, 1, 1, 1, 1, 1};
  float center[kFloats] = {0};
  paramd_exchanged exchanged = {0};
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  CHECK_OK(paramd_worker_pull(worker, center, kFloats, 30, NULL));
  int64_t applied = 0;
  do {
    CHECK_OK(paramd_worker_exchange(worker, update, center, kFloats, 30, &exchanged));
    if (exchanged.staleness >= 0 && ++applied == 10) {
      puts("ten");
      fflush(stdout);
    }
    CHECK(paramd_worker_commit_state(worker) ==
          (exchanged.staleness < 0 ? PARAMD_COMMIT_NOT_APPLIED : PARAMD_COMMIT_APPLIED));
    CHECK(center[5] == (float)exchanged.version);
  } while (exchanged.staleness >= 0);
  CHECK(exchanged.staleness == -1 && exchanged.version < applied);
  CHECK_OK(paramd_worker_exchange(worker, update, center, kFloats, 30, &exchanged));
  CHECK(exchanged.staleness == 0 && center[5] == (float)exchanged.version);
  paramd_worker_free(worker);
}

/* A timeout of 0 is one attempt: it does what needs no waiting, and waits for nobody. */
static void zero_timeouts(void) {
  paramd_worker* worker = join("a");
  float center[kFloats] = {0};
  CHECK(paramd_worker_pull(worker, center, kFloats, 0, NULL) == PARAMD_DEADLINE_EXCEEDED);
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 0));
  CHECK_OK(paramd_worker_pull(worker, center, kFloats, 0, NULL));
  float other[kFloats];
  CHECK_OK(paramd_worker_exchange(worker, center, other, kFloats, 0, NULL));
  CHECK_OK(paramd_worker_leave(worker, NULL, 0));
  paramd_worker_free(worker);
  paramd_admin* admin = NULL;
  CHECK_OK(paramd_admin_connect(server, 0, &admin));
  paramd_admin_free(admin);
}

static void count_event(void* context, const char* message) {
  atomic_int* const events = context;
  if (message[0] != '\0') atomic_fetch_add(events, 1);
}

static void end_thread(void* context, const char* message) {
  atomic_int* const called = context;
  (void)message;
  atomic_store(called, 1);
  pthread_exit(NULL);
}

static void* join_nowhere(void* options) {
  paramd_worker* worker = NULL;
  paramd_worker_join(options, &worker);
  return options;
}

/* A callback may end its thread, as interpreters do when they end. */
static void ending_threads(void) {
  atomic_int called = 0;
  paramd_worker_options* options = make_options("a");
  CHECK_OK(paramd_worker_options_set(options, "server", "unix:/nowhere/paramd.sock"));
  CHECK_OK(paramd_worker_options_set(options, "join_timeout", "1"));
  CHECK_OK(paramd_worker_options_set_on_event(options, end_thread, &called));
  pthread_t thread;
  void* result = options;
  CHECK(pthread_create(&thread, NULL, join_nowhere, options) == 0 && pthread_join(thread, &result) == 0);
  CHECK(atomic_load(&called) && result == NULL);
  paramd_worker_options_free(options);
}

/* Whoever waits for a daemon is told that it does. */
static void waiting_events(void) {
  atomic_int events = 0;
  paramd_worker_options* options = make_options("a");
  CHECK_OK(paramd_worker_options_set(options, "server", "unix:/nowhere/paramd.sock"));
  CHECK_OK(paramd_worker_options_set(options, "join_timeout", "1"));
  CHECK_OK(paramd_worker_options_set_on_event(options, count_event, &events));
  paramd_worker* worker = NULL;
  CHECK(paramd_worker_join(options, &worker) != PARAMD_OK);
  CHECK(atomic_load(&events) > 0);
  paramd_worker_options_free(options);
}

/* What a forked child has of its parent is refused, at once. */
static void forked(void) {
  paramd_worker* worker = join("a");
  float center[kFloats] = {0};
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  float parameters[kFloats] = {0};
  paramd_worker* training = join("trains");
  const paramd_span all = {parameters, kFloats};
  const paramd_window_options options = {.struct_size = sizeof(options), .communication_window = 1, .overlap = 1};
  paramd_window* window = NULL;
  const double loss = 1;
  int full = 0;
  CHECK_OK(paramd_window_new(training, &all, 1, &options, &window));
  CHECK_OK(paramd_window_begin(window));
  CHECK_OK(paramd_window_before_step(window));
  CHECK_OK(paramd_window_after_step(window, 0, &loss, &full));
  CHECK_OK(paramd_window_end(window));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK_FAILS(paramd_worker_commit(worker, center, kFloats, 30, NULL), PARAMD_FAILED_PRECONDITION, "fork");
    paramd_worker* other = NULL;
    CHECK_FAILS(paramd_worker_join(make_options("b"), &other), PARAMD_FAILED_PRECONDITION, "fork");
    paramd_admin* admin = NULL;
    CHECK_FAILS(paramd_admin_connect(server, 30, &admin), PARAMD_FAILED_PRECONDITION, "fork");
    CHECK_FAILS(paramd_window_before_step(window), PARAMD_FAILED_PRECONDITION, "fork");
    CHECK_FAILS(paramd_window_after_step(window, 0, &loss, &full), PARAMD_FAILED_PRECONDITION, "fork");
    CHECK_FAILS(paramd_window_end(window), PARAMD_FAILED_PRECONDITION, "fork");
    CHECK_FAILS(paramd_window_finish(window), PARAMD_FAILED_PRECONDITION, "fork");
    CHECK_FAILS(paramd_window_abandon(window), PARAMD_FAILED_PRECONDITION, "fork");
    paramd_window_free(window);
    paramd_worker_free(training);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(paramd_worker_commit(worker, center, kFloats, 30, NULL));
  CHECK_OK(paramd_window_finish(window));
  paramd_window_free(window);
  paramd_worker_free(training);
  paramd_worker_free(worker);
}

/* A center that became infinite is a problem, which the control plane tells. */
static void problems(void) {
  paramd_worker* worker = join("a");
  paramd_admin* admin = connect_admin();
  float update[kFloats] = {3e38f};
  const float center[kFloats] = {0};
  char problem[400] = "?";
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  CHECK_OK(paramd_admin_problem(admin, "m", problem, sizeof(problem)));
  CHECK(problem[0] == '\0');
  for (int i = 0; i < 2; ++i) paramd_worker_commit(worker, update, kFloats, 30, NULL);
  CHECK(paramd_worker_commit(worker, update, kFloats, 30, NULL) == PARAMD_FAILED_PRECONDITION);
  CHECK_OK(paramd_admin_problem(admin, "m", problem, sizeof(problem)));
  CHECK(strstr(problem, "'w'") != NULL);
  char cut[5] = "";
  CHECK_OK(paramd_admin_problem(admin, "m", cut, sizeof(cut)));
  CHECK(strncmp(cut, problem, 4) == 0 && strlen(cut) == 4);
  CHECK(paramd_admin_problem(admin, "m", cut, 0) == PARAMD_INVALID_ARGUMENT);
  paramd_admin_free(admin);
  paramd_worker_free(worker);
}

static const char* const kSecrets[] = {"tls_ca", "tls_cert", "tls_key", "token", "token_file"};

/* Writes those of a job to the folder that is given in the place of a server. */
static void make_secrets(void) {
  const char* const hosts[] = {"127.0.0.1", "localhost"};
  const char* const bad[] = {"no host"};
  paramd_secrets* secrets = NULL;
  CHECK_FAILS(paramd_secrets_new(bad, 1, &secrets), PARAMD_INVALID_ARGUMENT, "no host");
  CHECK_FAILS(paramd_secrets_new(hosts, 0, &secrets), PARAMD_INVALID_ARGUMENT, "no host is given");
  CHECK_FAILS(paramd_secrets_new(NULL, 1, &secrets), PARAMD_INVALID_ARGUMENT, "hosts");
  CHECK_OK(paramd_secrets_new(hosts, 2, &secrets));
  CHECK(paramd_secrets_get(secrets, "nothing") == NULL && paramd_secrets_get(NULL, "token") == NULL);
  for (size_t i = 0; i < sizeof(kSecrets) / sizeof(kSecrets[0]); ++i) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", server, kSecrets[i]);
    FILE* file = fopen(path, "w");
    CHECK(file != NULL && fputs(paramd_secrets_get(secrets, kSecrets[i]), file) >= 0 && fclose(file) == 0);
  }
  paramd_secrets_free(secrets);
}

/* With a daemon that has them; they are in the folder SECRETS of the environment. */
static void secure(void) {
  char path[4096];
  paramd_admin* admin = NULL;
  paramd_worker* worker = NULL;
  paramd_worker_options* options = make_options("a");
  paramd_model_spec* spec = make_spec("m");
  const float initial[kFloats] = {1, 2, 3, 4, 5, 6};
  CHECK_OK(paramd_worker_options_set_spec(options, spec));
  snprintf(path, sizeof(path), "%s/tls_ca", getenv("SECRETS"));
  CHECK_OK(paramd_worker_options_set(options, "tls_ca", path));
  CHECK(paramd_admin_connect(server, 1, &admin) != PARAMD_OK);
  CHECK_FAILS(paramd_admin_connect_with(options, 30, &admin), PARAMD_UNAUTHENTICATED, "wants a token");
  CHECK_FAILS(paramd_worker_join(options, &worker), PARAMD_UNAUTHENTICATED, "wants a token");
  snprintf(path, sizeof(path), "%s/token", getenv("SECRETS"));
  CHECK_OK(paramd_worker_options_set(options, "token_file", path));
  CHECK_OK(paramd_admin_connect_with(options, 30, &admin));
  CHECK_OK(paramd_worker_join(options, &worker));
  CHECK_OK(paramd_worker_initialize(worker, initial, kFloats, 30));
  CHECK_FAILS(paramd_admin_delete_model(admin, "m"), PARAMD_PERMISSION_DENIED, "may not call DeleteModel");
  CHECK_FAILS(paramd_worker_options_set(options, "insecure", "perhaps"), PARAMD_INVALID_ARGUMENT, "insecure");
  CHECK_OK(paramd_worker_options_set(options, "insecure", "1"));
  paramd_worker_free(worker);
  paramd_admin_free(admin);
  paramd_worker_options_free(options);
  paramd_model_spec_free(spec);
}

static void check_description(const paramd_models* models, const char* name) {
  size_t rank = 9;
  CHECK(strcmp(paramd_models_name(models, 0), name) == 0);
  CHECK(strcmp(paramd_models_algorithm(models, 0), "downpour") == 0);
  CHECK(strcmp(paramd_models_consistency(models, 0), "async") == 0);
  CHECK(strcmp(paramd_models_problem(models, 0), "") == 0);
  CHECK(paramd_models_info(models, 0).parameters == kFloats);
  CHECK(paramd_models_hyperparameters(models, 0) == 2);
  for (size_t i = 0; i < 2; ++i) {
    if (strcmp(paramd_models_hyperparameter_name(models, 0, i), "communication_window") == 0) {
      CHECK(paramd_models_hyperparameter_value(models, 0, i) == 2);
    }
  }
  CHECK(paramd_models_tensors(models, 0) == 3);
  CHECK(strcmp(paramd_models_tensor_name(models, 0, 0), "w") == 0);
  const int64_t* const shape = paramd_models_tensor_shape(models, 0, 0, &rank);
  CHECK(rank == 2 && shape[0] == 2 && shape[1] == 2);
  CHECK(paramd_models_tensor_shape(models, 0, 2, &rank) == NULL && rank == 0);
  CHECK(paramd_models_tensor_name(models, 0, 3) == NULL && paramd_models_name(models, 7) == NULL);
  CHECK(paramd_models_hyperparameter_name(models, 0, 2) == NULL && paramd_models_info(models, 7).parameters == 0);
}

static void models_and_files(void) {
  const float center[kFloats] = {1, 2, 3, 4, 5, 6};
  float read[kFloats] = {0};
  paramd_models* models = NULL;
  char path[] = "/tmp/paramd-scenario-XXXXXX";
  const int descriptor = mkstemp(path);
  CHECK(descriptor >= 0 && close(descriptor) == 0);
  paramd_admin* admin = connect_admin();
  CHECK_OK(paramd_admin_describe(admin, NULL, &models));
  CHECK(paramd_models_count(models) == 0);
  paramd_models_free(models);
  paramd_worker* worker = join("a");
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  for (int all = 0; all < 2; ++all) {
    CHECK_OK(paramd_admin_describe(admin, all ? NULL : "m", &models));
    CHECK(paramd_models_count(models) == 1);
    check_description(models, "m");
    CHECK(paramd_models_info(models, 0).initialized && paramd_models_info(models, 0).live_workers == 1);
    paramd_models_free(models);
  }
  models = NULL;
  CHECK_FAILS(paramd_admin_describe(admin, "none", &models), PARAMD_NOT_FOUND, "none");
  CHECK(models == NULL && paramd_models_count(NULL) == 0 && paramd_models_name(NULL, 0) == NULL);

  paramd_model_spec* spec = make_spec("saved");
  CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "learning_rate", 0.5));
  CHECK_FAILS(paramd_file_write(path, spec, 7, center, kFloats - 1), PARAMD_INVALID_ARGUMENT, "20 bytes");
  CHECK_OK(paramd_file_write(path, spec, 7, center, kFloats));
  CHECK_OK(paramd_file_describe(path, &models));
  check_description(models, "saved");
  CHECK(paramd_models_info(models, 0).version == 7);
  paramd_models_free(models);
  CHECK_FAILS(paramd_file_read(path, read, kFloats - 1), PARAMD_INVALID_ARGUMENT, "holds 6 floats");
  CHECK_OK(paramd_file_read(path, read, kFloats));
  CHECK(memcmp(read, center, sizeof(center)) == 0);
  CHECK(remove(path) == 0);
  CHECK_FAILS(paramd_file_describe(path, &models), PARAMD_NOT_FOUND, path);
  paramd_model_spec_free(spec);
  paramd_admin_free(admin);
  paramd_worker_free(worker);
}

static void kept_buffers(void) {
  float center[kFloats] = {1, 2, 3, 4, 5, 6};
  paramd_worker* worker = join("a");
  float* const kept = paramd_worker_center_buffer(worker);
  CHECK(kept != NULL);
  CHECK_OK(paramd_worker_initialize(worker, center, kFloats, 30));
  CHECK_OK(paramd_worker_pull(worker, kept, kFloats, 30, NULL));
  paramd_memory* memory = paramd_worker_take_memory(worker);
  CHECK(memory != NULL);
  paramd_worker_free(worker);
  CHECK(memcmp(kept, center, sizeof(center)) == 0);
  paramd_memory_clear(memory);
  CHECK(kept[0] == 0 && kept[5] == 0);
  kept[0] = 1;
  paramd_memory_free(memory);
  paramd_memory_clear(NULL);
  paramd_memory_free(NULL);
  CHECK(paramd_worker_take_memory(NULL) == NULL);
  paramd_admin* admin = connect_admin();
  paramd_model_info info;
  CHECK_OK(paramd_admin_get_model(admin, "m", &info));
  CHECK(info.live_workers == 0);
  paramd_admin_free(admin);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } scenarios[] = {{"exchange", exchange},
                   {"errors", errors},
                   {"nulls", nulls},
                   {"cancel_join", cancel_join},
                   {"cancel_pull", cancel_pull},
                   {"train", train},
                   {"train_errors", train_errors},
                   {"train_mlp", train_mlp},
                   {"describe", describe},
                   {"windows", windows},
                   {"abandoned_window", abandoned_window},
                   {"train_inputs", train_inputs},
                   {"train_bad_batches", train_bad_batches},
                   {"admin_errors", admin_errors},
                   {"commit_states", commit_states},
                   {"came_back", came_back},
                   {"zero_timeouts", zero_timeouts},
                   {"waiting_events", waiting_events},
                   {"ending_threads", ending_threads},
                   {"forked", forked},
                   {"problems", problems},
                   {"models_and_files", models_and_files},
                   {"kept_buffers", kept_buffers},
                   {"make_secrets", make_secrets},
                   {"secure", secure}};
  if (argc != 3) return 2;
  server = argv[2];
  CHECK(paramd_abi_version() == PARAMD_ABI_VERSION && paramd_version()[0] != '\0');
  for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); ++i) {
    if (strcmp(argv[1], scenarios[i].name) != 0) continue;
    scenarios[i].run();
    return 0;
  }
  return 2;
}
