/* main SERVER: one exchange with a daemon, as a program outside the sources does it. */
#include <paramd/paramd.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const int64_t shape[] = {4};
  float center[4] = {1, 2, 3, 4};
  paramd_worker* worker = NULL;
  paramd_model_spec* spec = paramd_model_spec_new("installed");
  paramd_worker_options* options = paramd_worker_options_new();
  if (argc != 2 || paramd_model_spec_add_tensor(spec, "w", shape, 1) != PARAMD_OK ||
      paramd_model_spec_set_algorithm(spec, "downpour") != PARAMD_OK ||
      paramd_worker_options_set(options, "server", argv[1]) != PARAMD_OK ||
      paramd_worker_options_set(options, "model", "installed") != PARAMD_OK ||
      paramd_worker_options_set(options, "worker", argv[0]) != PARAMD_OK ||
      paramd_worker_options_set_spec(options, spec) != PARAMD_OK || paramd_worker_join(options, &worker) != PARAMD_OK ||
      paramd_worker_initialize(worker, center, 4, 30) != PARAMD_OK ||
      paramd_worker_pull(worker, center, 4, 30, NULL) != PARAMD_OK || center[3] != 4) {
    fprintf(stderr, "%s\n", paramd_error_message());
    return 1;
  }
  paramd_worker_free(worker);
  paramd_worker_options_free(options);
  paramd_model_spec_free(spec);
  printf("paramd %s\n", paramd_version());
  return 0;
}
