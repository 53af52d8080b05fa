// What paramctl can do.
#ifndef PARAMD_CLIENT_CLI_VERBS_H_
#define PARAMD_CLIENT_CLI_VERBS_H_

#include <ostream>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/admin.h"
#include "client/cli/arguments.h"
#include "client/cli/json_view.h"
#include "proto/paramd.pb.h"

namespace paramd::cli {

// Where a verb writes.
struct Output {
  std::ostream& out;
  std::ostream& err;  // for words to people when data go to `out`
};

// Does one thing and writes what came of it. Errors: those of Admin and of files; usage errors (see
// arguments.h) for values of flags that make no sense.
using Verb = absl::Status (*)(Admin& admin, const Arguments& arguments, const Output& to);

// The same of one that speaks to no server.
using OfflineVerb = absl::Status (*)(const Arguments& arguments, const Output& to);

absl::Status InitTls(const Arguments& arguments, const Output& to);
absl::Status AddToken(const Arguments& arguments, const Output& to);
absl::Status Verify(const Arguments& arguments, const Output& to);
absl::Status Create(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status List(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Show(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Delete(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Pull(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Commit(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status ShowHistory(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status ShowStatus(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Checkpoint(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status ListCheckpoints(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Restore(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status Wait(Admin& admin, const Arguments& arguments, const Output& to);
absl::Status ListAlgorithms(Admin& admin, const Arguments& arguments, const Output& to);

// As text, or as JSON with --json.
void Print(const Arguments& arguments, const std::string& text, const OrderedJson& json, std::ostream& out);

// The verbs' and the program's flags.
const CommandSpec& ParamctlSpec();

// The verb of a spec of ParamctlSpec().
std::variant<Verb, OfflineVerb> FindVerb(const VerbSpec& spec);

// --server, else PARAMD_SERVER, else 127.0.0.1:5000.
std::string ServerAddress(const Arguments& arguments);

// --tls_ca, --tls_cert, --tls_key, --token_file and --insecure.
Security SecurityOf(const Arguments& arguments);

// --timeout. Usage error if it is no number of seconds.
absl::StatusOr<absl::Duration> CallTimeout(const Arguments& arguments);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_VERBS_H_
