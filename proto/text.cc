#include "proto/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/common.h"

namespace paramd {
namespace {

constexpr size_t kMaxQuoted = 100;
constexpr absl::string_view kGap = " ... ";

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

std::string Escaped(unsigned char control) {
  switch (control) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrCat("\\x", absl::Hex(control, absl::kZeroPad2));
  }
}

// The character of three bytes at `i`.
unsigned ThreeBytes(const std::string& text, size_t i) {
  const auto bits = [&](size_t at) { return static_cast<unsigned char>(text[at]) & 0x3fu; };
  return (static_cast<unsigned char>(text[i]) & 0xfu) << 12 | bits(i + 1) << 6 | bits(i + 2);
}

// Of a character of three bytes: whether it shows nothing, or turns the direction of what follows.
bool IsInvisible(unsigned character) {
  return (character >= 0x200b && character <= 0x200f) || (character >= 0x2028 && character <= 0x202e) ||
         (character >= 0x2060 && character <= 0x2069) || character == 0xfeff;
}

}  // namespace

// By protobuf's own measure, as it is what refuses messages.
bool IsUtf8(absl::string_view text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (IsUtf8(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " '", Quoted(name), "' is not UTF-8; names must be"));
}

std::string Repaired(absl::string_view text) {
  std::string repaired(text);
  if (IsUtf8(text)) return repaired;
  const char* const whole =
      google::protobuf::internal::UTF8CoerceToStructurallyValid({text.data(), text.size()}, repaired.data(), '?');
  if (whole != repaired.data()) repaired.assign(whole, text.size());
  return repaired;
}

std::string Shortened(absl::string_view text, size_t max) {
  if (text.size() <= max) return std::string(text);
  const size_t room = max - std::min(max, kGap.size());
  size_t head = room - room / 3;
  size_t tail = text.size() - room / 3;
  while (head > 0 && Continues(text[head])) --head;
  while (tail < text.size() && Continues(text[tail])) ++tail;
  return absl::StrCat(text.substr(0, head), kGap, text.substr(tail));
}

std::string Printable(absl::string_view text) {
  std::string printable;
  const std::string repaired = Repaired(text);
  for (size_t i = 0; i < repaired.size(); ++i) {
    const auto byte = static_cast<unsigned char>(repaired[i]);
    const auto next = i + 1 < repaired.size() ? static_cast<unsigned char>(repaired[i + 1]) : 0;
    if (byte < 0x20 || byte == 0x7f) {
      printable += Escaped(byte);
    } else if (byte == 0xc2 && next < 0xa0) {
      // Unicode's second set of control characters.
      printable += Escaped(next);
      ++i;
    } else if (const unsigned character = (byte & 0xf0) == 0xe0 ? ThreeBytes(repaired, i) : 0; IsInvisible(character)) {
      absl::StrAppend(&printable, "\\u{", absl::Hex(character), "}");
      i += 2;
    } else {
      printable += repaired[i];
    }
  }
  return printable;
}

std::string Quoted(absl::string_view text) { return Shortened(Printable(Shortened(text, 4 * kMaxQuoted)), kMaxQuoted); }

}  // namespace paramd
