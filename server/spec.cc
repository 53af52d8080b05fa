#include "server/spec.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace paramd {
namespace {

constexpr size_t kMaxNameLength = 256;
constexpr int kMaxTensors = 65536;
constexpr int kMaxRank = 16;

absl::Status CheckModelName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxNameLength && Printable(name) == name) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model name '", Quoted(name), "': use 1 to ", kMaxNameLength,
                                                 " bytes of UTF-8, without control and invisible characters"));
}

absl::StatusOr<uint64_t> CheckTensor(const v1::Tensor& tensor) {
  if (tensor.name().empty() || tensor.name().size() > kMaxNameLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor's name has ", tensor.name().size(), " bytes; use 1 to ", kMaxNameLength));
  }
  if (tensor.name() == "__metadata__") {
    return absl::InvalidArgumentError(
        "a tensor can't be named __metadata__: safetensors files keep other things under it");
  }
  if (tensor.shape_size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name(), "' has ", tensor.shape_size(),
                                                   " dimensions; at most ", kMaxRank, " are allowed"));
  }
  uint64_t floats = 1;
  for (const int64_t dimension : tensor.shape()) {
    if (dimension <= 0 || __builtin_mul_overflow(floats, static_cast<uint64_t>(dimension), &floats)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", DescribeTensor(tensor),
                                                     ": every dimension must be positive, and their product a 64-bit "
                                                     "number"));
    }
  }
  return floats;
}

std::string FormatConsistency(const Consistency& consistency) {
  switch (consistency.mode) {
    case Consistency::kAsync:
      return "async";
    case Consistency::kSync:
      return "sync";
    case Consistency::kBounded:
      break;
  }
  return absl::StrCat("bounded:", consistency.bound);
}

}  // namespace

absl::StatusOr<Consistency> ParseConsistency(const std::string& text) {
  if (text == "async") return Consistency{Consistency::kAsync, 0};
  if (text == "sync") return Consistency{Consistency::kSync, 0};
  absl::string_view bound = text;
  uint64_t s = 0;
  if (absl::ConsumePrefix(&bound, "bounded:") && absl::SimpleAtoi(bound, &s))
    return Consistency{Consistency::kBounded, s};
  return absl::InvalidArgumentError(
      absl::StrCat("consistency '", Quoted(text), "': use async, sync, or bounded:S with a whole number S >= 0"));
}

absl::StatusOr<CheckedSpec> CheckSpec(const v1::ModelSpec& given, uint64_t max_bytes) {
  if (auto status = CheckModelName(given.name()); !status.ok()) return status;
  CheckedSpec checked;
  auto algorithm = FindAlgorithm(given.algorithm());
  if (!algorithm.ok()) return algorithm.status();
  checked.algorithm = *algorithm;
  if (checked.algorithm->make_server == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm '", checked.algorithm->name,
                                                   "' trains without a server; choose another one for a model"));
  }
  Hyperparameters hyperparameters;
  for (const v1::Hyperparameter& h : given.hyperparameters()) {
    if (!hyperparameters.emplace(h.name(), h.value()).second) {
      return absl::InvalidArgumentError(absl::StrCat("hyperparameter '", Quoted(h.name()), "' is given twice"));
    }
  }
  auto complete = CompleteHyperparameters(*checked.algorithm, hyperparameters);
  if (!complete.ok()) return complete.status();
  checked.hyperparameters = *std::move(complete);

  auto parsed =
      ParseConsistency(given.consistency().empty() ? checked.algorithm->default_consistency : given.consistency());
  if (!parsed.ok()) return parsed.status();
  checked.consistency = *parsed;

  if (given.tensors_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", given.name(), "' has no tensors; name at least one, with its shape"));
  }
  if (given.tensors_size() > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("model '", given.name(), "' has ", given.tensors_size(),
                                                   " tensors; at most ", kMaxTensors, " are allowed"));
  }
  std::set<std::string> names;
  uint64_t floats = 0;
  for (const v1::Tensor& tensor : given.tensors()) {
    auto n = CheckTensor(tensor);
    if (!n.ok()) return n.status();
    if (!names.insert(tensor.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("model '", given.name(), "' has two tensors named '", tensor.name(), "'"));
    }
    if (__builtin_add_overflow(floats, *n, &floats) || floats > max_bytes / sizeof(float)) {
      return absl::InvalidArgumentError(absl::StrCat("model '", given.name(), "' is larger than the ", max_bytes,
                                                     " bytes that this server allows; raise --max_model_bytes or check "
                                                     "the tensors' shapes"));
    }
  }
  checked.floats = floats;
  checked.spec.set_name(given.name());
  *checked.spec.mutable_tensors() = given.tensors();
  checked.spec.set_algorithm(checked.algorithm->name);
  checked.spec.set_consistency(FormatConsistency(checked.consistency));
  for (const auto& [name, value] : checked.hyperparameters) {
    v1::Hyperparameter* h = checked.spec.add_hyperparameters();
    h->set_name(name);
    h->set_value(value);
  }
  return checked;
}

std::string DescribeTensor(const v1::Tensor& tensor) {
  return absl::StrCat(tensor.name(), " [", absl::StrJoin(tensor.shape(), ", "), "]");
}

std::string DescribeDifference(const v1::ModelSpec& existing, const v1::ModelSpec& requested) {
  const auto differ = [](absl::string_view what, const auto& there, const auto& here) {
    return absl::StrCat(what, " is ", there, " there and ", here, " in the request");
  };
  if (existing.algorithm() != requested.algorithm()) {
    return differ("the algorithm", existing.algorithm(), requested.algorithm());
  }
  if (existing.consistency() != requested.consistency()) {
    return differ("the consistency", existing.consistency(), requested.consistency());
  }
  for (int i = 0; i < existing.hyperparameters_size() && i < requested.hyperparameters_size(); ++i) {
    const v1::Hyperparameter& a = existing.hyperparameters(i);
    const v1::Hyperparameter& b = requested.hyperparameters(i);
    if (a.value() != b.value()) return differ(absl::StrCat("hyperparameter ", a.name()), a.value(), b.value());
  }
  if (existing.tensors_size() != requested.tensors_size()) {
    return differ("the number of tensors", existing.tensors_size(), requested.tensors_size());
  }
  for (int i = 0; i < existing.tensors_size(); ++i) {
    const std::string a = DescribeTensor(existing.tensors(i));
    const std::string b = DescribeTensor(requested.tensors(i));
    if (a != b) return differ(absl::StrCat("tensor ", i), a, b);
  }
  return "";
}

uint64_t TensorFloats(const v1::Tensor& tensor) {
  uint64_t floats = 1;
  for (const int64_t dimension : tensor.shape()) floats *= static_cast<uint64_t>(dimension);
  return floats;
}

std::string DescribePosition(const v1::ModelSpec& spec, uint64_t index) {
  for (const v1::Tensor& tensor : spec.tensors()) {
    const uint64_t floats = TensorFloats(tensor);
    if (index >= floats) {
      index -= floats;
      continue;
    }
    std::vector<uint64_t> position(tensor.shape_size());
    for (int d = tensor.shape_size() - 1; d >= 0; --d) {
      position[d] = index % static_cast<uint64_t>(tensor.shape(d));
      index /= static_cast<uint64_t>(tensor.shape(d));
    }
    return absl::StrCat("tensor '", tensor.name(), "' at [", absl::StrJoin(position, ", "), "]");
  }
  return absl::StrCat("float ", index);
}

}  // namespace paramd
