#include "client/cli/center_file.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd::cli {
namespace {

absl::Status TensorError(const ModelFile& file, const std::string& tensor, const std::string& cause) {
  return absl::InvalidArgumentError(absl::StrCat(file.file().path(), ": tensor '", Quoted(tensor), "': ", cause));
}

}  // namespace

absl::StatusOr<Tensors> TensorsOf(const ModelFile& file) {
  if (file.tensors().empty())
    return absl::InvalidArgumentError(absl::StrCat(file.file().path(), ": it holds no tensor"));
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

absl::StatusOr<std::vector<float>> ReadCenter(const ModelFile& file, const Tensors& tensors) {
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
    if (auto status = file.file().Read(*entry, rest.subspan(0, size)); !status.ok()) return status;
    rest.remove_prefix(size);
  }
  return center;
}

}  // namespace paramd::cli
