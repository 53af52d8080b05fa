#include "security/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "security/openssl.h"

namespace paramd {
namespace {

constexpr absl::string_view kAlgorithm = "sha256:";
constexpr size_t kMaxName = 64;
constexpr size_t kMaxPattern = 1024;

std::optional<Role> ParseRole(absl::string_view text) {
  for (const Role role : {Role::kReader, Role::kWorker, Role::kAdmin}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxName && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' || c == '@';
  });
}

// Takes the first word off.
absl::string_view TakeWord(absl::string_view* text) {
  const size_t end = std::min(text->find_first_of(" \t"), text->size());
  const absl::string_view word = text->substr(0, end);
  *text = absl::StripLeadingAsciiWhitespace(text->substr(end));
  return word;
}

bool Fits(absl::string_view pattern, absl::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = absl::string_view::npos;
  size_t after_star = 0;  // where the text goes on after what the last star has taken
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The name of the ensemble that a model of this name may be a member of; the name itself if of none.
absl::string_view WholeOf(absl::string_view model) {
  const size_t slash = model.rfind('/');
  if (slash == absl::string_view::npos || slash + 1 == model.size()) return model;
  const absl::string_view number = model.substr(slash + 1);
  const bool member = std::all_of(number.begin(), number.end(),
                                  [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  return member ? model.substr(0, slash) : model;
}

std::array<uint8_t, 32> HashOf(absl::string_view token) {
  PrepareOpenssl();
  std::array<uint8_t, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

absl::string_view Bytes(const std::array<uint8_t, 32>& bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kAnybody:
      return "anybody";
    case Role::kReader:
      return "reader";
    case Role::kWorker:
      return "worker";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

bool Covers(absl::string_view pattern, absl::string_view model) {
  return Fits(pattern, model) || Fits(pattern, WholeOf(model));
}

absl::StatusOr<Tokens::Line> Tokens::ParseLine(absl::string_view line) {
  Line parsed;
  const absl::string_view name = TakeWord(&line);
  if (!IsName(name)) return absl::InvalidArgumentError("a token's name is 1 to 64 letters, digits and .-_@");
  parsed.grant.token = std::string(name);
  const std::optional<Role> role = ParseRole(TakeWord(&line));
  if (!role.has_value()) {
    return absl::InvalidArgumentError("after the name comes the role: reader, worker or admin");
  }
  parsed.grant.role = *role;
  absl::string_view hash = TakeWord(&line);
  const bool digits =
      absl::ConsumePrefix(&hash, kAlgorithm) && hash.size() == 2 * parsed.hash.size() &&
      std::all_of(hash.begin(), hash.end(), [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
  if (!digits) {
    return absl::InvalidArgumentError(
        "after the role comes sha256: and the hash of the token, 64 hexadecimal digits; `paramctl new-token` makes "
        "both");
  }
  const std::string bytes = absl::HexStringToBytes(hash);
  std::copy(bytes.begin(), bytes.end(), parsed.hash.begin());
  if (!line.empty()) parsed.grant.models = std::string(line);
  if (line.size() > kMaxPattern) return absl::InvalidArgumentError("a pattern of models has at most 1,024 bytes");
  return parsed;
}

void Tokens::Add(absl::string_view text, absl::Status* problem) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    auto parsed = ParseLine(line);
    if (parsed.ok()) {
      lines_.push_back(*std::move(parsed));
    } else if (problem->ok()) {
      *problem = absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", parsed.status().message()));
    }
  }
}

absl::StatusOr<Tokens> Tokens::Parse(absl::string_view text) {
  Tokens tokens;
  absl::Status problem;
  tokens.Add(text, &problem);
  if (!problem.ok()) return problem;
  if (tokens.lines_.empty()) {
    return absl::InvalidArgumentError(
        "there is no token in it, and nobody would be let in; `paramctl new-token` makes one");
  }
  return tokens;
}

Tokens Tokens::Salvage(absl::string_view text) {
  Tokens tokens;
  absl::Status ignored;
  tokens.Add(text, &ignored);
  return tokens;
}

std::vector<Grant> Tokens::Find(absl::string_view token) const {
  const std::array<uint8_t, 32> hash = HashOf(token);
  std::vector<Grant> grants;
  for (const Line& line : lines_) {
    if (CRYPTO_memcmp(hash.data(), line.hash.data(), hash.size()) == 0) grants.push_back(line.grant);
  }
  return grants;
}

absl::StatusOr<NewToken> MakeToken(const std::string& name, const std::string& role, const std::string& models) {
  PrepareOpenssl();
  std::array<uint8_t, 32> random;
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
    return absl::InternalError("OpenSSL has no random numbers");
  }
  NewToken made;
  made.token = absl::BytesToHexString(Bytes(random));
  made.line = absl::StrCat(name, " ", role, " ", kAlgorithm, absl::BytesToHexString(Bytes(HashOf(made.token))),
                           models.empty() ? "" : " ", models);
  if (absl::StrContains(made.line, '\n')) return absl::InvalidArgumentError("a name, a role or a pattern is one line");
  const auto parsed = Tokens::Parse(made.line);
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat("such a token can't be: ", parsed.status().message()));
  made.line += "\n";
  return made;
}

}  // namespace paramd
