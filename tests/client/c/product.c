/* product SERVER: trains every algorithm through the C ABI, with and without overlap, over gRPC and shared memory, with
 * one worker and two, on a problem with a known answer. Ends with 0 if all got it, else with 1 and what did not.
 *
 * Whatever its parameters and batch, a step of a worker adds the same small integers, which every encoding represents
 * exactly. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/c/paramd.h"

enum { kFloats = 2500, kEpochs = 3, kBatches = 3, kWindow = 2, kMaxWorkers = 2 };
enum { kSteps = kEpochs * kBatches, kCommits = (kSteps + kWindow - 1) / kWindow };
static const double kMomentum = 0.5;

/* What is left where. */
typedef enum answer {
  kSum,        /* the center moves by all steps */
  kMeanSteps,  /* ... by one step a commit */
  kMean,       /* ... by the mean of all workers' steps */
  kConserved,  /* center and workers together move by all steps */
  kAccelerated /* ... each of which has momentum */
} answer;

typedef struct rule {
  const char* algorithm;
  const char* consistency;
  answer answer;
  int workers; /* at most */
} rule;

static const rule kRules[] = {
    {"downpour", "async", kSum, 2},
    {"downpour", "bounded:1", kSum, 2},
    {"downpour", "sync", kSum, 2},
    {"adag", "async", kMeanSteps, 2},
    {"adag", "bounded:1", kMeanSteps, 2},
    {"dynsgd", "async", kSum, 1},
    {"dynsgd", "sync", kSum, 2},
    {"adaptive_adag", "async", kMeanSteps, 1},
    {"adaptive_adag", "sync", kMeanSteps, 2},
    {"aeasgd", "async", kConserved, 2},
    {"aeasgd", "bounded:1", kConserved, 2},
    {"easgd", "sync", kConserved, 2},
    {"eamsgd", "async", kAccelerated, 2},
    {"averaging", "sync", kMean, 2},
    {"ensemble", "async", kSum, 1},
};

typedef struct way {
  const char* transport;
  const char* wire;
  double tolerance; /* of parameters, which are rounded on the wire */
} way;

static const way kWays[] = {{"grpc", "f32", 1e-3}, {"grpc", "f16", 0.25}, {"shm", "f32", 1e-3}};

static char combination[200];

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s: line %d: %s; last error: %s\n", combination, __LINE__, #condition, paramd_error_message()); \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define CHECK_OK(call) CHECK((call) == PARAMD_OK)

static float start(int i) { return (float)(i % 5); }
static float step(int worker, int i) { return (float)((i + 2 * worker) % 7 - 3); }

typedef struct worker {
  int index;
  const char* server;
  const rule* of;
  const way* by;
  int overlap;
  pthread_barrier_t* begun;
  float parameters[kFloats];
  int batches;
  int steps;
} worker;

static paramd_code train_on_batch(void* context, const paramd_batch* batch, double* results, char* message,
                                  size_t message_size) {
  worker* w = context;
  /* All begin at the first center, and rounds are of all. */
  if (w->steps++ == 0) pthread_barrier_wait(w->begun);
  (void)batch;
  (void)message;
  (void)message_size;
  for (int i = 0; i < kFloats; ++i) w->parameters[i] += step(w->index, i);
  results[0] = 1;
  return PARAMD_OK;
}

static double learning_rate(void* context) {
  (void)context;
  return 1;
}

static void set_learning_rate(void* context, double rate) {
  (void)context;
  (void)rate;
}

static paramd_code next(void* context, paramd_batch* batch, int* more, char* message, size_t message_size) {
  worker* w = context;
  (void)message;
  (void)message_size;
  batch->rows = 1;
  *more = w->batches++ < kBatches;
  return PARAMD_OK;
}

static paramd_code rewind_batches(void* context, int64_t epoch, char* message, size_t message_size) {
  worker* w = context;
  (void)epoch;
  (void)message;
  (void)message_size;
  w->batches = 0;
  return PARAMD_OK;
}

static void* run(void* argument) {
  worker* w = argument;
  const paramd_trainable trainable = {.struct_size = sizeof(trainable),
                                      .context = w,
                                      .parameters = w->parameters,
                                      .floats = kFloats,
                                      .train_on_batch = train_on_batch,
                                      .learning_rate = learning_rate,
                                      .set_learning_rate = set_learning_rate};
  const paramd_batch_source source = {
      .struct_size = sizeof(source), .context = w, .next = next, .rewind = rewind_batches};
  const paramd_train_options train_options = {
      .struct_size = sizeof(train_options), .epochs = kEpochs, .overlap = w->overlap, .exchange_timeout = 60};
  char name[2] = {(char)('0' + w->index), 0};
  paramd_worker_options* options = paramd_worker_options_new();
  CHECK_OK(paramd_worker_options_set(options, "server", w->server));
  CHECK_OK(paramd_worker_options_set(options, "model", "m"));
  CHECK_OK(paramd_worker_options_set(options, "worker", name));
  CHECK_OK(paramd_worker_options_set(options, "transport", w->by->transport));
  CHECK_OK(paramd_worker_options_set(options, "wire", w->by->wire));
  paramd_train_summary summary;
  CHECK_OK(paramd_train(options, &train_options, &trainable, &source, &summary));
  CHECK(summary.steps == kSteps);
  paramd_worker_options_free(options);
  return NULL;
}

static double expected(const rule* of, int workers, int i) {
  double steps = 0, velocity = 0, accelerated = 0;
  for (int w = 0; w < workers; ++w) steps += step(w, i);
  for (int s = 0; s < kSteps; ++s) {
    velocity = kMomentum * velocity + steps;
    accelerated += velocity;
  }
  switch (of->answer) {
    case kSum:
      return start(i) + kSteps * steps;
    case kMeanSteps:
      return start(i) + kCommits * steps;
    case kMean:
      return start(i) + kSteps * steps / workers;
    case kConserved:
      return (workers + 1) * start(i) + kSteps * steps;
    case kAccelerated:
      return (workers + 1) * start(i) + accelerated;
  }
  return NAN;
}

static void create_model(paramd_admin* admin, const rule* of) {
  const int64_t shape[] = {kFloats};
  paramd_model_spec* spec = paramd_model_spec_new("m");
  CHECK_OK(paramd_model_spec_add_tensor(spec, "w", shape, 1));
  CHECK_OK(paramd_model_spec_set_algorithm(spec, of->algorithm));
  CHECK_OK(paramd_model_spec_set_consistency(spec, of->consistency));
  CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "communication_window", kWindow));
  CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "learning_rate", 1));
  if (of->answer == kConserved || of->answer == kAccelerated) {
    CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "rho", 0.25));
  }
  if (of->answer == kAccelerated) CHECK_OK(paramd_model_spec_set_hyperparameter(spec, "momentum", kMomentum));
  CHECK_OK(paramd_admin_create_model(admin, spec));
  paramd_model_spec_free(spec);
}

static void train(const char* server, const rule* of, const way* by, int workers, int overlap) {
  snprintf(combination, sizeof(combination), "%s, %s, %s, %s, %d workers%s", of->algorithm, of->consistency,
           by->transport, by->wire, workers, overlap ? ", overlap" : "");
  paramd_admin* admin = NULL;
  CHECK_OK(paramd_admin_connect(server, 60, &admin));
  create_model(admin, of);

  static worker all[kMaxWorkers];
  pthread_t threads[kMaxWorkers];
  pthread_barrier_t begun;
  CHECK(pthread_barrier_init(&begun, NULL, (unsigned)workers) == 0);
  for (int w = 0; w < workers; ++w) {
    all[w] = (worker){.index = w, .server = server, .of = of, .by = by, .overlap = overlap, .begun = &begun};
    /* Whoever is first makes these the center. */
    for (int i = 0; i < kFloats; ++i) all[w].parameters[i] = start(i);
    CHECK(pthread_create(&threads[w], NULL, run, &all[w]) == 0);
  }
  for (int w = 0; w < workers; ++w) CHECK(pthread_join(threads[w], NULL) == 0);
  CHECK(pthread_barrier_destroy(&begun) == 0);

  static float center[kFloats];
  CHECK_OK(paramd_admin_pull(admin, strcmp(of->algorithm, "ensemble") == 0 ? "m/0" : "m", center, kFloats, NULL));
  const int elastic = of->answer == kConserved || of->answer == kAccelerated;
  for (int i = 0; i < kFloats; ++i) {
    double found = center[i];
    for (int w = 0; elastic && w < workers; ++w) found += all[w].parameters[i];
    /* NaN, too. */
    CHECK(fabs(found - expected(of, workers, i)) <= (elastic ? by->tolerance : 1e-3));
    /* With nobody else, a worker has the center in the end. */
    if (!elastic && workers == 1) CHECK(fabs(center[i] - all[0].parameters[i]) <= by->tolerance);
  }
  CHECK_OK(paramd_admin_delete_model(admin, "m"));
  paramd_admin_free(admin);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  for (size_t r = 0; r < sizeof(kRules) / sizeof(kRules[0]); ++r) {
    for (size_t w = 0; w < sizeof(kWays) / sizeof(kWays[0]); ++w) {
      for (int workers = 1; workers <= kRules[r].workers; ++workers) {
        for (int overlap = 0; overlap <= 1; ++overlap) train(argv[1], &kRules[r], &kWays[w], workers, overlap);
      }
    }
  }
  return 0;
}
