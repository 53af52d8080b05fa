// Text for people: aligned columns and readable figures.
#ifndef PARAMD_CLIENT_CLI_TABLE_H_
#define PARAMD_CLIENT_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace paramd::cli {

// Columns as wide as their widest cell, two spaces apart. A heading that begins with '>' aligns its column to the
// right. Cells are made printable (proto/text.h).
class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  // As many cells as headings.
  void AddRow(std::vector<std::string> cells);

  // With `indent` spaces before every line, and no spaces after any.
  std::string Text(size_t indent = 0) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

std::string CountText(uint64_t count);     // 1,234,567
std::string BytesText(uint64_t bytes);     // 512 B, 1.5 MiB
std::string DurationText(double seconds);  // 0.25 s, 12.5 s, 3m 05s, 2h 01m, 3d 04h
std::string FigureText(double value);      // of a measurement: four significant digits
std::string NumberText(double value);      // the shortest that reads back as the same number

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_TABLE_H_
