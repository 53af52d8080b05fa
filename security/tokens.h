// Who may do what, by tokens.
#ifndef PARAMD_SECURITY_TOKENS_H_
#define PARAMD_SECURITY_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paramd {

// Each may do what those before it may.
enum class Role { kAnybody, kReader, kWorker, kAdmin };

const char* RoleName(Role role);  // "reader"

// A role, for the models whose name fits a pattern.
struct Grant {
  std::string token;  // its name
  Role role = Role::kAnybody;
  std::string models = "*";
};

// Whether a pattern is for a model. `*` stands for any text, also none; anything else for itself. What is for NAME is
// for the members of an ensemble of that name, NAME/0 and so on.
bool Covers(absl::string_view pattern, absl::string_view model);

// The tokens of one file, of which it has no more than hashes. Immutable.
//
//   # NAME   ROLE (reader, worker, admin)   SHA-256 OF THE TOKEN   [MODELS]
//   alice    admin    sha256:9f86...
//   trainer  worker   sha256:60303...   mnist*
//
// A token on several lines has what each of them gives.
class Tokens {
 public:
  // INVALID_ARGUMENT says what is wrong in which line; also if there is no token at all.
  static absl::StatusOr<Tokens> Parse(absl::string_view text);

  // Those of its lines that make sense. Maybe none, and nobody is let in.
  static Tokens Salvage(absl::string_view text);

  // What the token gives; nothing if it is none of these. How long that takes says nothing of how near it was.
  std::vector<Grant> Find(absl::string_view token) const;

 private:
  struct Line {
    std::array<uint8_t, 32> hash;
    Grant grant;
  };

  // Adds what is in the text; `problem`: of its first line that makes no sense, which is left out.
  void Add(absl::string_view text, absl::Status* problem);
  static absl::StatusOr<Line> ParseLine(absl::string_view line);

  std::vector<Line> lines_;
};

struct NewToken {
  std::string token;  // 256 random bits
  std::string line;   // for the file
};
// INVALID_ARGUMENT if such a line can't be.
absl::StatusOr<NewToken> MakeToken(const std::string& name, const std::string& role, const std::string& models);

}  // namespace paramd

#endif  // PARAMD_SECURITY_TOKENS_H_
