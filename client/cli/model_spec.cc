#include "client/cli/model_spec.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/arguments.h"
#include "state/shape.h"

namespace paramd::cli {

absl::StatusOr<v1::Tensor> ParseTensor(const std::string& text) {
  const auto error = [&text](const std::string& cause) {
    return UsageError(absl::StrCat("tensor '", text, "': ", cause));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return error("it has no shape; write NAME:ROWSxCOLS, NAME:SIZE, or NAME: for a scalar");
  if (colon == 0) return error("it has no name; write NAME:ROWSxCOLS");
  v1::Tensor tensor;
  tensor.set_name(text.substr(0, colon));
  std::vector<int64_t> shape;
  const std::string sizes = text.substr(colon + 1);
  if (!sizes.empty()) {
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(sizes, 'x'))) {
      int64_t size = 0;
      if (word.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(word[0])) || !absl::SimpleAtoi(word, &size) ||
          size < 1) {
        return error(absl::StrCat("'", word, "' is no size; sizes are whole numbers from 1, as in 784x128"));
      }
      shape.push_back(size);
    }
  }
  if (!ElementCount(shape)) return error("it is too large");
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  return tensor;
}

absl::StatusOr<v1::Hyperparameter> ParseHyperparameter(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return UsageError(absl::StrCat("--set '", text, "': write KEY=VALUE, as in learning_rate=0.1"));
  }
  double value = 0;
  if (!absl::SimpleAtod(text.substr(equals + 1), &value) || !std::isfinite(value)) {
    return UsageError(absl::StrCat("--set '", text, "': '", text.substr(equals + 1), "' is not a finite number"));
  }
  v1::Hyperparameter hyperparameter;
  hyperparameter.set_name(text.substr(0, equals));
  hyperparameter.set_value(value);
  return hyperparameter;
}

}  // namespace paramd::cli
