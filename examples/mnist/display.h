// What a launcher or a worker shows its user.
#ifndef PARAMD_EXAMPLES_MNIST_DISPLAY_H_
#define PARAMD_EXAMPLES_MNIST_DISPLAY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/mnist/report.h"

namespace paramd {

// 1234567 → "1,234,567".
std::string FormatCount(int64_t count);

// One line, ASCII, without a newline: the worker's name, a bar, and the numbers.
std::string FormatProgress(std::string_view name, const WorkerProgress& progress);

// The final table, a header and a line per run.
std::string FormatTable(const std::vector<Run>& runs);

// Lines at the bottom of a terminal, redrawn in place; draws nothing if stdout is no terminal. Thread-compatible.
class ProgressLines {
 public:
  ProgressLines();

  bool enabled() const { return enabled_; }

  // Replaces the lines drawn before, which were as many or fewer. Cuts each at the terminal's width.
  void Draw(const std::vector<std::string>& lines);

 private:
  const bool enabled_;
  size_t drawn_ = 0;
};

}  // namespace paramd

#endif  // PARAMD_EXAMPLES_MNIST_DISPLAY_H_
