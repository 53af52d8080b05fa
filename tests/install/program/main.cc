// main SERVER: asks a daemon for a model that it does not have.
#include <paramd/paramd.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  paramd_admin* admin = nullptr;
  if (argc != 2 || paramd_admin_connect(argv[1], 30, &admin) != PARAMD_OK) return 1;
  paramd_model_info info;
  const paramd_code code = paramd_admin_get_model(admin, "nobody's", &info);
  const std::string message = paramd_error_message();
  paramd_admin_free(admin);
  std::printf("%s: %s\n", paramd_code_name(code), message.c_str());
  return code == PARAMD_NOT_FOUND && !message.empty() ? 0 : 1;
}
