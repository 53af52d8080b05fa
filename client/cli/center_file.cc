#include "client/cli/center_file.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd::cli {
namespace {

absl::Status TensorError(const SafetensorsFile& file, const std::string& tensor, const std::string& cause) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor '", Quoted(tensor), "': ", cause));
}

// `to`: a path, or a stream.
template <typename To>
absl::Status Write(const To& to, const v1::ModelSpec& model, int64_t version, absl::Span<const float> center) {
  std::vector<SafetensorsTensor> tensors;
  for (const v1::Tensor& tensor : model.tensors()) {
    SafetensorsTensor& written = tensors.emplace_back();
    written.name = tensor.name();
    written.shape.assign(tensor.shape().begin(), tensor.shape().end());
    const auto size = ElementCount(written.shape);
    if (!size || static_cast<uint64_t>(*size) > center.size()) {
      return absl::InternalError(absl::StrCat("tensor '", tensor.name(), "' reaches beyond the center"));
    }
    written.values = center.subspan(0, static_cast<size_t>(*size));
    center.remove_prefix(static_cast<size_t>(*size));
  }
  return WriteSafetensors(
      to, tensors, {{"model", model.name()}, {"algorithm", model.algorithm()}, {"version", absl::StrCat(version)}});
}

}  // namespace

absl::StatusOr<Tensors> TensorsOf(const SafetensorsFile& file) {
  if (file.tensors().empty()) return absl::InvalidArgumentError(absl::StrCat(file.path(), ": it holds no tensor"));
  Tensors tensors;
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (entry.dtype != "F32") {
      return TensorError(file, entry.name,
                         absl::StrCat("its dtype is ", entry.dtype, ", paramd takes F32 only; convert it first"));
    }
    v1::Tensor* const tensor = tensors.Add();
    tensor->set_name(entry.name);
    tensor->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
  }
  return tensors;
}

absl::StatusOr<std::vector<float>> ReadCenter(const SafetensorsFile& file, const Tensors& tensors) {
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : file.tensors()) entries[entry.name] = &entry;

  uint64_t floats = 0;
  std::vector<const SafetensorsEntry*> order;
  std::set<std::string> wanted;
  for (const v1::Tensor& tensor : tensors) {
    wanted.insert(tensor.name());
    const auto found = entries.find(tensor.name());
    if (found == entries.end()) return TensorError(file, tensor.name(), "the model has it, the file does not");
    const SafetensorsEntry& entry = *found->second;
    if (!std::equal(entry.shape.begin(), entry.shape.end(), tensor.shape().begin(), tensor.shape().end())) {
      return TensorError(file, tensor.name(),
                         absl::StrCat("its shape is ", ShapeText(entry.shape), ", the model's is ",
                                      ShapeText(absl::MakeSpan(tensor.shape().data(), tensor.shape().size()))));
    }
    floats += (entry.end - entry.begin) / sizeof(float);
    order.push_back(&entry);
  }
  for (const SafetensorsEntry& entry : file.tensors()) {
    if (wanted.count(entry.name) == 0) return TensorError(file, entry.name, "the model has no such tensor");
  }

  std::vector<float> center(floats);
  absl::Span<float> rest = absl::MakeSpan(center);
  for (const SafetensorsEntry* entry : order) {
    const uint64_t size = (entry->end - entry->begin) / sizeof(float);
    if (auto status = file.Read(*entry, rest.subspan(0, size)); !status.ok()) return status;
    rest.remove_prefix(size);
  }
  return center;
}

absl::Status WriteCenter(const std::string& path, const v1::ModelSpec& model, int64_t version,
                         absl::Span<const float> center) {
  return Write(path, model, version, center);
}

absl::Status WriteCenter(std::ostream* out, const v1::ModelSpec& model, int64_t version,
                         absl::Span<const float> center) {
  return Write(out, model, version, center);
}

}  // namespace paramd::cli
