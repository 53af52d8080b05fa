#include "server/model_event.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace paramd {
namespace {

// Of what a peer wrote, so that nobody fills the log with one line.
constexpr size_t kMaxText = 300;

bool IsPlain(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '\\' && c != '=';
  });
}

}  // namespace

std::string LogValue(const std::string& text) {
  if (text.size() <= kMaxText && IsPlain(text)) return text;
  return absl::StrCat("\"", Printable(absl::Utf8SafeCEscape(Repaired(Shortened(text, kMaxText)))), "\"");
}

const char* KindName(ModelEvent::Kind kind) {
  switch (kind) {
    case ModelEvent::Kind::kCreated:
      return "created";
    case ModelEvent::Kind::kInitialized:
      return "initialized";
    case ModelEvent::Kind::kRestored:
      return "restored";
    case ModelEvent::Kind::kJoined:
      return "joined";
    case ModelEvent::Kind::kReturned:
      return "returned";
    case ModelEvent::Kind::kLeft:
      return "left";
    case ModelEvent::Kind::kExpired:
      return "expired";
    case ModelEvent::Kind::kFenced:
      return "fenced";
    case ModelEvent::Kind::kCommitted:
      return "committed";
    case ModelEvent::Kind::kRejected:
      return "rejected";
    case ModelEvent::Kind::kDiverged:
      return "diverged";
    case ModelEvent::Kind::kStalled:
      return "stalled";
    case ModelEvent::Kind::kDeleted:
      return "deleted";
  }
  return "unknown";
}

std::string FormatEvent(const ModelEvent& event) {
  std::string line = absl::StrCat("event=", KindName(event.kind), " model=", LogValue(event.model));
  if (!event.worker.empty()) {
    absl::StrAppend(&line, " worker=", LogValue(event.worker), " incarnation=", event.incarnation);
  }
  absl::StrAppend(&line, " version=", event.version);
  if (!event.reason.empty()) absl::StrAppend(&line, " reason=", LogValue(event.reason));
  return line;
}

}  // namespace paramd
