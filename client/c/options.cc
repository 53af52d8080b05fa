// Model specs, worker options and cancellers.
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/c/call.h"
#include "client/c/handles.h"
#include "client/wire_flags.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

namespace {

template <typename Flag>
absl::Status ParseFlagValue(absl::string_view key, absl::string_view value, Flag* flag) {
  std::string error;
  if (paramd::AbslParseFlag(value, flag, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, " '", value, "': ", error));
}

absl::Status ParseTimeout(absl::string_view key, absl::string_view value, absl::Duration* duration) {
  double seconds = 0;
  if (!absl::SimpleAtod(value, &seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(key, " '", value, "': use seconds, as in 2.5, or -1 for no limit"));
  }
  auto parsed = paramd::c::Timeout(seconds);
  if (!parsed.ok()) return parsed.status();
  *duration = *parsed;
  return absl::OkStatus();
}

// Null if it is no option of that kind.
std::string* FindSecurityOption(paramd::Security* security, absl::string_view key) {
  if (key == "tls_ca") return &security->tls_ca;
  if (key == "tls_cert") return &security->tls_cert;
  if (key == "tls_key") return &security->tls_key;
  if (key == "token_file") return &security->token_file;
  if (key == "token") return &security->token;
  return nullptr;
}

absl::Status SetOption(paramd::WorkerOptions* options, absl::string_view key, absl::string_view value) {
  const std::string text(value);
  if (key == "server") {
    options->server = text;
  } else if (key == "model") {
    options->model = text;
  } else if (key == "worker") {
    options->worker = text;
  } else if (key == "incarnation") {
    if (!absl::SimpleAtoi(value, &options->incarnation) ||
        options->incarnation > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("incarnation '", value, "': use a number from 0 to 2^63 - 1"));
    }
  } else if (key == "join_timeout") {
    return ParseTimeout(key, value, &options->join_timeout);
  } else if (key == "rpc_timeout") {
    return ParseTimeout(key, value, &options->rpc_timeout);
  } else if (key == "transport") {
    return ParseFlagValue(key, value, &options->transport);
  } else if (key == "wire") {
    return ParseFlagValue(key, value, &options->wire);
  } else if (key == "insecure") {
    if (!absl::SimpleAtob(value, &options->security.insecure)) {
      return absl::InvalidArgumentError(absl::StrCat("insecure '", value, "': use 1 or 0"));
    }
  } else if (std::string* const option = FindSecurityOption(&options->security, key); option != nullptr) {
    *option = text;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("no worker option '", key,
                     "'; there are server, model, worker, incarnation, join_timeout, rpc_timeout, transport, wire, "
                     "tls_ca, tls_cert, tls_key, token_file, token and insecure"));
  }
  return absl::OkStatus();
}

template <typename Handle>
Handle* New() noexcept {
  Handle* handle = nullptr;
  Guard([&] {
    handle = new Handle;
    return absl::OkStatus();
  });
  return handle;
}

}  // namespace

paramd_canceller* paramd_canceller_new() { return New<paramd_canceller>(); }

void paramd_canceller_cancel(paramd_canceller* canceller) {
  if (canceller != nullptr) canceller->source.request_stop();
}

void paramd_canceller_free(paramd_canceller* canceller) { delete canceller; }

paramd_model_spec* paramd_model_spec_new(const char* name) {
  paramd_model_spec* spec = nullptr;
  Guard([&] {
    if (auto status = CheckGiven({{name, "name"}}); !status.ok()) return status;
    auto made = std::make_unique<paramd_model_spec>();
    made->spec.set_name(name);
    spec = made.release();
    return absl::OkStatus();
  });
  return spec;
}

void paramd_model_spec_free(paramd_model_spec* spec) { delete spec; }

paramd_code paramd_model_spec_add_tensor(paramd_model_spec* spec, const char* name, const int64_t* shape, size_t rank) {
  return Guard([&]() -> absl::Status {
    if (auto status = CheckGiven({{spec, "spec"}, {name, "name"}}); !status.ok()) return status;
    if (shape == nullptr && rank > 0) return absl::InvalidArgumentError("shape is null");
    if (rank > std::numeric_limits<int>::max()) return absl::InvalidArgumentError("rank is out of range");
    paramd::v1::Tensor tensor;
    tensor.set_name(name);
    if (rank > 0) tensor.mutable_shape()->Add(shape, shape + rank);
    *spec->spec.add_tensors() = std::move(tensor);
    return absl::OkStatus();
  });
}

paramd_code paramd_model_spec_set_algorithm(paramd_model_spec* spec, const char* algorithm) {
  return Guard([&] {
    if (auto status = CheckGiven({{spec, "spec"}, {algorithm, "algorithm"}}); !status.ok()) return status;
    spec->spec.set_algorithm(algorithm);
    return absl::OkStatus();
  });
}

paramd_code paramd_model_spec_set_consistency(paramd_model_spec* spec, const char* consistency) {
  return Guard([&] {
    if (auto status = CheckGiven({{spec, "spec"}, {consistency, "consistency"}}); !status.ok()) return status;
    spec->spec.set_consistency(consistency);
    return absl::OkStatus();
  });
}

paramd_code paramd_model_spec_set_hyperparameter(paramd_model_spec* spec, const char* name, double value) {
  return Guard([&] {
    if (auto status = CheckGiven({{spec, "spec"}, {name, "name"}}); !status.ok()) return status;
    for (auto& given : *spec->spec.mutable_hyperparameters()) {
      if (given.name() != name) continue;
      given.set_value(value);
      return absl::OkStatus();
    }
    auto* added = spec->spec.add_hyperparameters();
    added->set_name(name);
    added->set_value(value);
    return absl::OkStatus();
  });
}

paramd_worker_options* paramd_worker_options_new() { return New<paramd_worker_options>(); }

void paramd_worker_options_free(paramd_worker_options* options) { delete options; }

paramd_code paramd_worker_options_set(paramd_worker_options* options, const char* key, const char* value) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {key, "key"}, {value, "value"}}); !status.ok()) return status;
    return SetOption(&options->options, key, value);
  });
}

paramd_code paramd_worker_options_set_spec(paramd_worker_options* options, const paramd_model_spec* spec) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {spec, "spec"}}); !status.ok()) return status;
    options->options.create = std::make_shared<paramd::v1::ModelSpec>(spec->spec);
    return absl::OkStatus();
  });
}

paramd_code paramd_worker_options_set_canceller(paramd_worker_options* options, paramd_canceller* canceller) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}, {canceller, "canceller"}}); !status.ok()) return status;
    options->options.stop = canceller->source.get_token();
    return absl::OkStatus();
  });
}

paramd_code paramd_worker_options_set_on_event(paramd_worker_options* options,
                                               void (*on_event)(void* context, const char* message), void* context) {
  return Guard([&] {
    if (auto status = CheckGiven({{options, "options"}}); !status.ok()) return status;
    options->options.on_event = nullptr;
    if (on_event != nullptr) {
      options->options.on_event = [on_event, context](absl::string_view message) {
        on_event(context, std::string(message).c_str());
      };
    }
    return absl::OkStatus();
  });
}
