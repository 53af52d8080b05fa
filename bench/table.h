// A table of results, for people (Markdown) and for programs (JSON).
#ifndef PARAMD_BENCH_TABLE_H_
#define PARAMD_BENCH_TABLE_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace paramd::bench {

struct Column {
  std::string heading;  // in Markdown
  std::string key;      // in JSON
  bool bytes = false;   // shown as kB or MB
};

struct Line {
  std::vector<nlohmann::json> cells;  // one a column; null: nothing to say
  std::string unavailable;            // why it was not measured, if so; shown in the first empty cell
};

struct Table {
  std::string key;  // in JSON: of the array of lines
  std::vector<Column> columns;
  std::vector<Line> lines;
};

// Three digits.
std::string FormatNumber(double value);

std::string FormatMarkdown(const Table& table);

// An object a line, with the columns' keys; and "not_measured", null if it was.
nlohmann::json ToJson(const Table& table);

inline nlohmann::json Cell(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::json(*value) : nlohmann::json();
}
inline nlohmann::json Cell(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_TABLE_H_
