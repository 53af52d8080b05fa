#include "bench/table.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace paramd::bench {
namespace {

constexpr char kNone[] = "–";

std::string FormatBytes(double bytes) {
  return bytes < 100'000 ? absl::StrCat(FormatNumber(bytes * 1e-3), " kB")
                         : absl::StrCat(FormatNumber(bytes * 1e-6), " MB");
}

std::string FormatCell(const Column& column, const nlohmann::json& cell) {
  if (cell.is_null()) return kNone;
  if (cell.is_string()) return cell.get<std::string>();
  if (cell.is_boolean()) return cell.get<bool>() ? "yes" : "no";
  if (column.bytes) return FormatBytes(cell.get<double>());
  return cell.is_number_integer() ? cell.dump() : FormatNumber(cell.get<double>());
}

std::string FormatLine(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

}  // namespace

std::string FormatNumber(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : magnitude >= 1 ? 2 : 3;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string FormatMarkdown(const Table& table) {
  std::vector<std::string> headings;
  for (const Column& column : table.columns) headings.push_back(column.heading);
  std::string out = FormatLine(headings);
  absl::StrAppend(&out, "|", absl::StrJoin(std::vector<std::string>(headings.size(), "---"), "|"), "|\n");
  for (const Line& line : table.lines) {
    std::string reason = line.unavailable;
    std::vector<std::string> cells;
    for (size_t i = 0; i < line.cells.size(); ++i) {
      const bool tells = line.cells[i].is_null() && !reason.empty();
      cells.push_back(tells ? absl::StrCat("not measured: ", reason) : FormatCell(table.columns[i], line.cells[i]));
      if (tells) reason.clear();
    }
    absl::StrAppend(&out, FormatLine(cells));
  }
  return out;
}

nlohmann::json ToJson(const Table& table) {
  nlohmann::json lines = nlohmann::json::array();
  for (const Line& line : table.lines) {
    nlohmann::json object;
    for (size_t i = 0; i < line.cells.size(); ++i) object[table.columns[i].key] = line.cells[i];
    object["not_measured"] = Cell(line.unavailable);
    lines.push_back(object);
  }
  return lines;
}

}  // namespace paramd::bench
