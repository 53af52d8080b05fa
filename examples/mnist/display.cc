#include "examples/mnist/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paramd {
namespace {

constexpr int kBarWidth = 20;

std::string Window(const Run& run) { return run.window == 0 ? "-" : FormatCount(run.window); }

}  // namespace

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const int first = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, 1, ',');
  return digits;
}

std::string FormatProgress(std::string_view name, const WorkerProgress& progress) {
  const double done =
      progress.epochs > 0 ? std::clamp(progress.epoch / static_cast<double>(progress.epochs), 0., 1.) : 0;
  const int filled = static_cast<int>(done * kBarWidth);
  return absl::StrFormat("%s  [%s%s]  epoch %.1f/%d  loss %.4f  accuracy %.2f %%  %s samples/s", std::string(name),
                         std::string(filled, '#'), std::string(kBarWidth - filled, '.'), progress.epoch,
                         progress.epochs, progress.loss, 100 * progress.accuracy,
                         FormatCount(std::llround(progress.samples_per_s)));
}

std::string FormatTable(const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"algorithm", "workers", "window", "updates", "mean staleness", "wall time", "samples/s", "test accuracy"}};
  for (const Run& run : runs) {
    rows.push_back({run.algorithm, FormatCount(run.workers), Window(run), FormatCount(run.updates),
                    absl::StrFormat("%.2f", run.mean_staleness), absl::StrFormat("%.1f s", run.wall_s),
                    FormatCount(std::llround(run.samples_per_s)), absl::StrFormat("%.2f %%", 100 * run.test_accuracy)});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const auto& row : rows) {
    absl::StrAppendFormat(&table, "%-*s", static_cast<int>(widths[0]), row[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      absl::StrAppendFormat(&table, "  %*s", static_cast<int>(widths[i]), row[i]);
    }
    table += "\n";
  }
  return table;
}

ProgressLines::ProgressLines() : enabled_(isatty(STDOUT_FILENO) == 1) {}

void ProgressLines::Draw(const std::vector<std::string>& lines) {
  if (!enabled_) return;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A line that wraps would break the way back up.
  const size_t width = known ? size.ws_col - 1 : 79;
  std::string text;
  if (drawn_ > 0) absl::StrAppend(&text, "\x1b[", drawn_, "A");
  for (const std::string& line : lines) absl::StrAppend(&text, "\r\x1b[K", line.substr(0, width), "\n");
  drawn_ = lines.size();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace paramd
