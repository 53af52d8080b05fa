/* two_copies SERVER LIBRARY LIBRARY: loads two files of the library into this process, exchanges through both, unloads
 * both while their workers live, and lets those go. Ends with 0 if all of it went well. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/c/paramd.h"

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                \
    }                                                         \
  } while (0)

#define FIND(library, function) __typeof__(&function) function##_ = (__typeof__(&function))dlsym(library, #function)

typedef struct copy {
  void* library;
  paramd_worker* worker;
  void (*free_worker)(paramd_worker* worker);
} copy;

static copy load(const char* path, const char* server, const char* name) {
  copy loaded = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
  if (loaded.library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(loaded.library != NULL);
  FIND(loaded.library, paramd_model_spec_new);
  FIND(loaded.library, paramd_model_spec_free);
  FIND(loaded.library, paramd_model_spec_add_tensor);
  FIND(loaded.library, paramd_model_spec_set_algorithm);
  FIND(loaded.library, paramd_worker_options_new);
  FIND(loaded.library, paramd_worker_options_free);
  FIND(loaded.library, paramd_worker_options_set);
  FIND(loaded.library, paramd_worker_options_set_spec);
  FIND(loaded.library, paramd_worker_join);
  FIND(loaded.library, paramd_worker_initialize);
  FIND(loaded.library, paramd_worker_pull);
  FIND(loaded.library, paramd_worker_free);

  const int64_t shape[] = {3};
  paramd_model_spec* spec = paramd_model_spec_new_("m");
  CHECK(paramd_model_spec_add_tensor_(spec, "w", shape, 1) == PARAMD_OK);
  CHECK(paramd_model_spec_set_algorithm_(spec, "downpour") == PARAMD_OK);
  paramd_worker_options* options = paramd_worker_options_new_();
  CHECK(paramd_worker_options_set_(options, "server", server) == PARAMD_OK);
  CHECK(paramd_worker_options_set_(options, "model", "m") == PARAMD_OK);
  CHECK(paramd_worker_options_set_(options, "worker", name) == PARAMD_OK);
  CHECK(paramd_worker_options_set_spec_(options, spec) == PARAMD_OK);
  CHECK(paramd_worker_join_(options, &loaded.worker) == PARAMD_OK);
  float center[] = {1, 2, 3};
  CHECK(paramd_worker_initialize_(loaded.worker, center, 3, 30) == PARAMD_OK);
  CHECK(paramd_worker_pull_(loaded.worker, center, 3, 30, NULL) == PARAMD_OK);
  paramd_worker_options_free_(options);
  paramd_model_spec_free_(spec);
  loaded.free_worker = paramd_worker_free_;
  return loaded;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  copy copies[] = {load(argv[2], argv[1], "a"), load(argv[3], argv[1], "b")};
  CHECK(copies[0].library != copies[1].library && copies[0].free_worker != copies[1].free_worker);
  for (int i = 0; i < 2; ++i) CHECK(dlclose(copies[i].library) == 0);
  for (int i = 0; i < 2; ++i) copies[i].free_worker(copies[i].worker);
  return 0;
}
