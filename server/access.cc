#include "server/access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/model_event.h"
#include "sync/clock.h"

namespace paramd {
namespace {

// A method that is not here is refused to everybody.
constexpr MethodRule kRules[] = {
    {"/paramd.v1.ParameterServer/CreateModel", Role::kWorker, true},
    {"/paramd.v1.ParameterServer/GetModel", Role::kReader, false},
    {"/paramd.v1.ParameterServer/ListModels", Role::kReader, false},
    {"/paramd.v1.ParameterServer/DeleteModel", Role::kAdmin, true},
    {"/paramd.v1.ParameterServer/ListAlgorithms", Role::kReader, false},
    {"/paramd.v1.ParameterServer/Checkpoint", Role::kAdmin, true},
    {"/paramd.v1.ParameterServer/ListCheckpoints", Role::kReader, false},
    {"/paramd.v1.ParameterServer/RestoreModel", Role::kAdmin, true},
    {"/paramd.v1.ParameterServer/AddPast", Role::kWorker, true},
    {"/paramd.v1.ParameterServer/Join", Role::kWorker, true},
    {"/paramd.v1.ParameterServer/Heartbeat", Role::kWorker, false},
    {"/paramd.v1.ParameterServer/Leave", Role::kWorker, true},
    {"/paramd.v1.ParameterServer/ReportHistory", Role::kWorker, false},
    {"/paramd.v1.ParameterServer/GetHistory", Role::kReader, false},
    {"/paramd.v1.ParameterServer/GetStatus", Role::kReader, false},
    // And each of its headers, see RoleOf.
    {"/paramd.v1.ParameterServer/Exchange", Role::kReader, false},
    {"/grpc.health.v1.Health/Check", Role::kAnybody, false},
    {"/grpc.health.v1.Health/Watch", Role::kAnybody, false},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::kReader, false},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kReader, false},
};

constexpr MethodRule kInitialize = {"/paramd.v1.ParameterServer/Exchange(initialize)", Role::kWorker, true};
constexpr MethodRule kPull = {"/paramd.v1.ParameterServer/Exchange(pull)", Role::kReader, false};
constexpr MethodRule kExchange = {"/paramd.v1.ParameterServer/Exchange(commit)", Role::kWorker, false};

constexpr absl::Duration kRefusalInterval = absl::Seconds(1);

// What a header asks for. A worker's pull counts for its lease and for what the server holds for it; so it takes a
// worker, as shared memory does.
const MethodRule& RuleOf(const v1::ExchangeHeader& header) {
  if (header.has_initialize()) return kInitialize;
  const bool reads = header.has_pull() && header.participant().worker().empty() && header.segment() == 0;
  return reads ? kPull : kExchange;
}

absl::string_view ShortName(absl::string_view method) { return method.substr(method.rfind('/') + 1); }

// The token of "Bearer TOKEN"; empty if there is none.
absl::string_view TokenOf(const grpc::ServerContextBase& call) {
  const auto found = call.client_metadata().find("authorization");
  if (found == call.client_metadata().end()) return "";
  absl::string_view token(found->second.data(), found->second.size());
  return absl::ConsumePrefix(&token, "Bearer ") ? token : "";
}

// Of the client's certificate; "-" if it has none.
std::string CertificateName(const grpc::ServerContextBase& call) {
  const auto context = call.auth_context();
  if (context == nullptr || !context->IsPeerAuthenticated()) return "-";
  const auto names = context->FindPropertyValues("x509_common_name");
  return names.empty() ? "-" : std::string(names[0].data(), names[0].size());
}

}  // namespace

const MethodRule* FindRule(absl::string_view method) {
  const auto* const found =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const MethodRule& rule) { return rule.method == method; });
  return found == std::end(kRules) ? nullptr : found;
}

bool Principal::Has(Role role, absl::string_view model) const {
  return std::any_of(grants_.begin(), grants_.end(),
                     [&](const Grant& grant) { return grant.role >= role && Covers(grant.models, model); });
}

bool Principal::Has(Role role) const {
  return std::any_of(grants_.begin(), grants_.end(), [&](const Grant& grant) { return grant.role >= role; });
}

Access::Access(AccessOptions options) : options_(std::move(options)) {
  if (!options_.token_file.empty()) file_.emplace(options_.token_file);
}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(AccessOptions options) {
  std::unique_ptr<Access> access(new Access(std::move(options)));
  if (const auto read = access->Reload(); !read.ok()) return read.status();
  return access;
}

absl::StatusOr<bool> Access::Reload() {
  if (!file_.has_value()) return false;
  const auto wrong = [this](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--token_file=", options_.token_file, ": ", what));
  };
  const auto text = file_->ReadIfChanged();
  if (!text.ok()) return wrong(text.status().message());
  const std::optional<std::string> before = std::exchange(doubtful_, std::nullopt);
  const bool stays = !text->has_value() && before.has_value();
  if (!text->has_value() && !stays) return false;
  auto tokens = Tokens::Parse(stays ? *before : **text);
  if (tokens.ok()) {
    Take(*std::move(tokens));
    return true;
  }
  if (!stays) {
    doubtful_ = **text;
    return wrong(tokens.status().message());
  }
  Take(Tokens::Salvage(*before));
  return wrong(absl::StrCat(tokens.status().message(), " (it stays so: from now on only its other lines count)"));
}

void Access::Take(Tokens tokens) {
  MutexLock lock(&mutex_);
  tokens_ = std::make_shared<const Tokens>(std::move(tokens));
  ++generation_;
}

absl::Status Access::Identify(const grpc::ServerContextBase& call, Principal* principal) const {
  *principal = Principal();
  std::shared_ptr<const Tokens> tokens;
  {
    MutexLock lock(&mutex_);
    tokens = tokens_;
    principal->generation_ = generation_;
  }
  if (tokens == nullptr) {
    principal->name_ = CertificateName(call);
    principal->grants_ = {{.token = "", .role = Role::kAdmin, .models = "*"}};
    return absl::OkStatus();
  }
  const absl::string_view token = TokenOf(call);
  if (token.empty()) {
    return absl::UnauthenticatedError(
        "this server wants a token, and none came with the call; give --token_file or PARAMD_TOKEN_FILE");
  }
  principal->grants_ = tokens->Find(token);
  if (principal->grants_.empty()) {
    return absl::UnauthenticatedError(
        "this server does not know the token that came with the call; was it revoked, or is it another server's?");
  }
  principal->name_ = principal->grants_.front().token;
  return absl::OkStatus();
}

absl::Status Access::Admit(const grpc::ServerContextBase& call, const MethodRule* rule, Principal* principal) const {
  if (rule == nullptr)
    return absl::PermissionDeniedError("nobody may call this method: this server has no rule for it");
  if (rule->role == Role::kAnybody) return absl::OkStatus();
  if (auto status = Identify(call, principal); !status.ok()) return status;
  if (principal->Has(rule->role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("token '", principal->name(), "' may not call ",
                                                  ShortName(rule->method), ", which takes the role of ",
                                                  RoleName(rule->role)));
}

absl::Status Access::Authorize(const Principal& principal, const MethodRule& rule, const std::string& model) const {
  if (rule.role == Role::kAnybody || principal.Has(rule.role, model)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("token '", principal.name(), "' may not call ",
                                                  ShortName(rule.method), " for ",
                                                  model.empty() ? "all models" : absl::StrCat("model '", model, "'"),
                                                  ", which takes the role of ", RoleName(rule.role)));
}

absl::Status Access::AuthorizeHeader(const grpc::ServerContextBase& call, const v1::ExchangeHeader& header,
                                     Principal* principal) {
  bool changed = false;
  {
    MutexLock lock(&mutex_);
    changed = principal->generation_ != generation_;
  }
  if (changed) {
    if (auto status = Identify(call, principal); !status.ok()) return status;
  }
  const MethodRule& rule = RuleOf(header);
  const v1::Participant& participant = header.participant();
  absl::Status status = Authorize(*principal, rule, participant.model());
  if (!status.ok() || rule.changes) Tell(call, &rule, *principal, participant.model(), participant.worker(), status);
  return status;
}

void Access::Tell(const grpc::ServerContextBase& call, const MethodRule* rule, const Principal& principal,
                  const std::string& model, const std::string& worker, const absl::Status& outcome) {
  if (options_.log == nullptr) return;
  const bool refused = absl::IsUnauthenticated(outcome) || absl::IsPermissionDenied(outcome);
  if (!refused && (rule == nullptr || !rule->changes)) return;
  uint64_t untold = 0;
  if (refused) {
    MutexLock lock(&mutex_);
    const absl::Time now = Clock::Steady()->Now();
    if (now < next_refusal_) {
      ++untold_refusals_;
      return;
    }
    next_refusal_ = now + kRefusalInterval;
    untold = std::exchange(untold_refusals_, 0);
  }
  std::string line = absl::StrCat("event=", refused ? "refused" : "audit",
                                  " call=", rule == nullptr ? "unknown" : ShortName(rule->method),
                                  " token=", LogValue(principal.name()), " peer=", LogValue(call.peer()));
  if (!model.empty()) absl::StrAppend(&line, " model=", LogValue(model));
  if (!worker.empty()) absl::StrAppend(&line, " worker=", LogValue(worker));
  absl::StrAppend(&line, " outcome=", absl::StatusCodeToString(outcome.code()));
  if (untold > 0) absl::StrAppend(&line, " refused_before=", untold);
  options_.log(line);
}

}  // namespace paramd
