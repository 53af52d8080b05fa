// Text that others wrote: made fit for messages, terminals and logs.
#ifndef PARAMD_PROTO_TEXT_H_
#define PARAMD_PROTO_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace paramd {

// That a message takes it: its strings are UTF-8.
bool IsUtf8(absl::string_view text);

// INVALID_ARGUMENT, with the field's name, for a name that is not.
absl::Status CheckName(absl::string_view field, absl::string_view name);

// The same with '?' for each byte that is not UTF-8.
std::string Repaired(absl::string_view text);

// At most `max` bytes of UTF-8 text: if it is longer, its beginning and its end, where the next step stands. Never cut
// within a character.
std::string Shortened(absl::string_view text, size_t max);

// Bytes that are kept of what a worker says when it leaves.
inline constexpr size_t kMaxLastWords = 1024;

// One line that does nothing to a terminal: repaired, with control characters, and those that are invisible or turn
// the direction of writing, as escapes (\n, \x1b, \u{202e}). Printable text stays as it is.
std::string Printable(absl::string_view text);

// A peer's text as errors quote it: printable, and not long.
std::string Quoted(absl::string_view text);

}  // namespace paramd

#endif  // PARAMD_PROTO_TEXT_H_
