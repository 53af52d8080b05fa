#include <utility>
#include <variant>
#include <vector>

#include "client/cli/verbs.h"

namespace paramd::cli {
namespace {

// Every verb with what it does.
const std::vector<std::pair<VerbSpec, std::variant<Verb, OfflineVerb>>>& VerbTable() {
  using enum FlagSpec::Kind;
  static const auto& table = *new std::vector<std::pair<VerbSpec, std::variant<Verb, OfflineVerb>>>{
      {{.name = "create",
        .operands = {"NAME"},
        .summary = "create a model, and initialize its center from a file if one is given",
        .flags =
            {{"algorithm", "ALGORITHM", kValue,
              "how commits become the new center; `paramctl algorithms` lists; default: that of a file that "
              "`pull` wrote"},
             {"tensor", "NAME:ROWSxCOLS", kRepeated, "a tensor: w:784x128, a vector b:128, a scalar s:"},
             {"set", "KEY=VALUE", kRepeated, "a hyperparameter that differs from its default"},
             {"consistency", "async|bounded:S|sync", kValue, "how far workers may run apart; default: the algorithm's"},
             {"from", "FILE", kValue,
              "safetensors file of the first center, - for standard input. One that `pull` wrote, or a checkpoint, "
              "makes that model again; flags go before what it says"}},
        .example = "paramctl create mnist --algorithm=adag --tensor=w:784x10 --tensor=b:10 --set learning_rate=0.5"},
       Create},
      {{.name = "list", .operands = {}, .summary = "list all models", .flags = {}, .example = "paramctl list"}, List},
      {{.name = "show",
        .operands = {"NAME"},
        .summary = "show a model: hyperparameters, tensors, workers",
        .flags = {},
        .example = "paramctl show mnist --json"},
       Show},
      {{.name = "delete",
        .operands = {"NAME"},
        .summary = "delete a model and its center",
        .flags = {},
        .example = "paramctl delete mnist"},
       Delete},
      {{.name = "pull",
        .operands = {"NAME", "FILE"},
        .summary = "write a model to a safetensors file, or with - to standard output",
        .flags = {},
        .example = "paramctl pull mnist center.safetensors"},
       Pull},
      {{.name = "commit",
        .operands = {"NAME", "FILE"},
        .summary = "join, pull, commit the tensors of a safetensors file (- for standard input) once, and leave",
        .flags = {{"worker", "WORKER", kRequired, "the worker to join as"}},
        .example = "paramctl commit mnist delta.safetensors --worker=by-hand"},
       Commit},
      {{.name = "history",
        .operands = {"NAME"},
        .summary = "show what the workers reported of their training",
        .flags = {{"worker", "WORKER", kValue, "of this worker only"},
                  {"averaged", "", kSwitch, "the mean over the workers, step by step"},
                  {"format", "table|csv|json", kValue, "default: table; --json is --format=json"},
                  {"last", "RECORDS", kValue, "of each worker, 0: all; default: 20 in a table, else all"}},
        .example = "paramctl history mnist --averaged --format=csv > history.csv"},
       ShowHistory},
      {{.name = "status",
        .operands = {},
        .summary = "show the server, its models and workers",
        .flags = {{"watch", "SECONDS", kOptionalValue, "again and again until interrupted; default: every 2 seconds"}},
        .example = "paramctl status --watch=5"},
       ShowStatus},
      {{.name = "checkpoint",
        .operands = {"[NAME]"},
        .summary = "write a checkpoint of a model now; the server must have a --state_dir",
        .flags = {{"all", "", kSwitch, "of all models"}},
        .example = "paramctl checkpoint mnist"},
       Checkpoint},
      {{.name = "checkpoints",
        .operands = {"[NAME]"},
        .summary = "list the checkpoints of a model, or of all, the newest first",
        .flags = {},
        .example = "paramctl checkpoints mnist"},
       ListCheckpoints},
      {{.name = "restore",
        .operands = {"NAME"},
        .summary = "bring a model back to a checkpoint; its workers pull, and go on",
        .flags = {{"version", "VERSION", kValue, "of the checkpoint; default: the newest"},
                  {"as", "NAME", kValue, "make a new model of it, and leave this one alone"}},
        .example = "paramctl restore mnist --version=4711 --as=mnist-before"},
       Restore},
      {{.name = "verify",
        .operands = {"DIR"},
        .summary = "check every file of a --state_dir, without a server",
        .flags = {},
        .example = "paramctl verify /var/lib/paramd"},
       Verify},
      {{.name = "wait",
        .operands = {"NAME"},
        .summary = "wait until the model's workers are done; exit code 1 if one expired or failed",
        .flags = {{"workers", "COUNT", kValue, "wait for at least so many to join; default: 1"}},
        .example = "paramctl wait mnist --workers=4 --timeout=600"},
       Wait},
      {{.name = "algorithms",
        .operands = {},
        .summary = "list the server's algorithms and their hyperparameters",
        .flags = {},
        .example = "paramctl algorithms"},
       ListAlgorithms},
      {{.name = "init-tls",
        .operands = {"DIR"},
        .summary = "make an authority and certificates for server and clients; again: new ones of the same authority",
        .flags = {{"host", "HOST", kRepeated,
                   "a name or address that the server is reached by, beside localhost and this host's name"},
                  {"days", "DAYS", kValue, "how long the certificates are good for; default: 365"}},
        .example = "paramctl init-tls tls --host=paramd.example.org --host=10.0.0.5"},
       InitTls},
      {{.name = "new-token",
        .operands = {"NAME", "ROLE", "FILE"},
        .summary = "print a new token, and add it with its role to the FILE that paramd's --token_file names",
        .flags = {{"models", "PATTERN", kValue, "the models that it is for, such as 'team/*'; default: all"},
                  {"out", "FILE", kValue, "write the token to this file, for its owner alone, instead"}},
        .example = "paramctl new-token trainer worker tokens --models='mnist*' --out=trainer.token"},
       AddToken},
  };
  return table;
}

}  // namespace

const CommandSpec& ParamctlSpec() {
  using enum FlagSpec::Kind;
  static const auto& spec = *[] {
    auto* const command = new CommandSpec{
        .program = "paramctl",
        .summary = "paramctl: looks after the models of a parameter server.",
        .flags = {
            {"server", "HOST:PORT", kValue, "or unix:PATH; default: $PARAMD_SERVER, else 127.0.0.1:5000"},
            {"timeout", "SECONDS", kValue, "longest for one call, default 30; for `wait` in all, default: no end"},
            {"token_file", "FILE", kValue, "holds a token that the server knows; default: $PARAMD_TOKEN_FILE"},
            {"tls_ca", "FILE", kValue,
             "speak TLS with servers whose certificate is these authorities'; default: $PARAMD_TLS_CA"},
            {"tls_cert", "FILE", kValue, "own certificate, for servers that want one; default: $PARAMD_TLS_CERT"},
            {"tls_key", "FILE", kValue, "its key; default: $PARAMD_TLS_KEY"},
            {"insecure", "", kSwitch, "a token may go beyond this host without TLS; default: $PARAMD_INSECURE is 1"},
            {"json", "", kSwitch, "print JSON, for programs"},
            {"version", "", kSwitch, "print the version and exit"}}};
    for (const auto& [verb, function] : VerbTable()) command->verbs.push_back(verb);
    return command;
  }();
  return spec;
}

std::variant<Verb, OfflineVerb> FindVerb(const VerbSpec& spec) {
  for (const auto& [verb, function] : VerbTable()) {
    if (verb.name == spec.name) return function;
  }
  return Verb{nullptr};
}

}  // namespace paramd::cli
