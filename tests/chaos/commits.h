// Commits that tell from the center alone which of them are in it, and how often.
#ifndef PARAMD_TESTS_CHAOS_COMMITS_H_
#define PARAMD_TESTS_CHAOS_COMMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace paramd::chaos {

// What a model's algorithm makes of commits.
enum class Kind {
  kSums,     // adds them as they are
  kMarks,    // adds something of each to its cell
  kElastic,  // the same, and what was there before gets less; an exchange answers with the center before it
};

// A model's floats: a cell for each commit that it may ever get, then the body.
struct Layout {
  Kind kind = Kind::kSums;
  size_t cells = 0;
  size_t body = 0;

  size_t floats() const { return cells + body; }
};

// What a commit adds to each float of the body, beside 1 to its own cell: -3 to 3 and not 0.
float BodyValue(size_t commit);

// What is wrong with a center of that version, to which only whole commits were added, each once at most; empty if
// nothing is. Rounded: the center came in half the bytes.
std::string Check(const Layout& layout, absl::Span<const float> center, int64_t version, bool rounded);

// Of a worker's diary, a line each: "NANOSECONDS KIND NUMBER TEXT", by the clock that all processes share.
enum class Entry : char {
  kJoined = 'J',      // the incarnation
  kSending = 'S',     // the commit; what follows is its end, if it got to know that
  kApplied = 'A',     // the commit; the version of the center with it, or 0
  kNotApplied = 'N',  // the commit
  kCall = 'C',        // when it began; its timeout in ns, its name and its status
  kWrong = 'W',       // what should not be, in words
};

int64_t NowNanoseconds();

}  // namespace paramd::chaos

#endif  // PARAMD_TESTS_CHAOS_COMMITS_H_
