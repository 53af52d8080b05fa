#include "client/cli/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/text.h"

namespace paramd::cli {
namespace {

// Bytes that don't continue a UTF-8 character.
size_t Width(const std::string& cell) {
  return static_cast<size_t>(std::count_if(
      cell.begin(), cell.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_.push_back(heading.rfind('>', 0) == 0);
    if (right_.back()) heading.erase(0, 1);
  }
  AddRow(std::move(headings));
}

void Table::AddRow(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = Printable(cell);
  cells.resize(right_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Text(size_t indent) const {
  std::vector<size_t> widths(right_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right_[i] ? padding + row[i] : row[i] + padding);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string CountText(uint64_t count) {
  std::string text = absl::StrCat(count);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh %02dm", whole / 3600, whole % 3600 / 60);
  return absl::StrFormat("%dd %02dh", whole / 86400, whole % 86400 / 3600);
}

std::string FigureText(double value) { return absl::StrFormat("%.4g", value); }

std::string NumberText(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

}  // namespace paramd::cli
