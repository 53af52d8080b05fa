#include "examples/mnist/data_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paramd {

absl::Status CheckLayers(const std::vector<int64_t>& layers, const DataSet& data) {
  const auto largest = std::max_element(data.labels.begin(), data.labels.end());
  const int64_t classes = largest == data.labels.end() ? 0 : 1 + *largest;
  if (layers.front() == data.columns && layers.back() >= classes) return absl::OkStatus();
  std::vector<int64_t> fitting = layers;
  fitting.front() = data.columns;
  fitting.back() = std::max(fitting.back(), classes);
  return absl::InvalidArgumentError(
      absl::StrCat("--layers=", absl::StrJoin(layers, ","), " does not fit the data: ", data.columns,
                   " pixels must go in and ", classes, " classes come out, as row ", largest - data.labels.begin(),
                   " has the label ", classes - 1, "; --layers=", absl::StrJoin(fitting, ","), " does"));
}

}  // namespace paramd
