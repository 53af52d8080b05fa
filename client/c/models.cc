// Models as a daemon or a file describes them, and files of models.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c/call.h"
#include "client/c/handles.h"
#include "state/model_file.h"

using paramd::c::CheckGiven;
using paramd::c::Guard;

namespace {

const paramd::v1::ModelInfo* Find(const paramd_models* models, size_t model) {
  return models != nullptr && model < models->models.size() ? &models->models[model] : nullptr;
}

const paramd::v1::Hyperparameter* FindHyperparameter(const paramd_models* models, size_t model, size_t index) {
  return index < paramd_models_hyperparameters(models, model)
             ? &Find(models, model)->spec().hyperparameters(static_cast<int>(index))
             : nullptr;
}

const paramd::v1::Tensor* FindTensor(const paramd_models* models, size_t model, size_t index) {
  return index < paramd_models_tensors(models, model) ? &Find(models, model)->spec().tensors(static_cast<int>(index))
                                                      : nullptr;
}

// What `path` holds of a model.
absl::StatusOr<paramd::v1::ModelInfo> Describe(const paramd::ModelFile& file) {
  paramd::v1::ModelInfo info;
  if (file.whole()) *info.mutable_spec() = file.spec();
  info.mutable_spec()->clear_tensors();
  info.set_version(file.version());
  uint64_t floats = 0;
  for (const paramd::SafetensorsEntry& entry : file.tensors()) {
    if (entry.dtype != "F32") {
      return absl::InvalidArgumentError(absl::StrCat(file.file().path(), ": tensor '", entry.name, "' is of ",
                                                     entry.dtype, ", paramd takes F32 only; convert it first"));
    }
    paramd::v1::Tensor* const tensor = info.mutable_spec()->add_tensors();
    tensor->set_name(entry.name);
    tensor->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
    floats += (entry.end - entry.begin) / sizeof(float);
  }
  info.set_parameters(floats);
  info.set_initialized(floats > 0);
  return info;
}

}  // namespace

paramd_code paramd_admin_describe(paramd_admin* admin, const char* model, paramd_models** models) {
  return Guard([&] {
    if (auto status = CheckGiven({{admin, "admin"}, {models, "models"}}); !status.ok()) return status;
    auto made = std::make_unique<paramd_models>();
    if (model != nullptr) {
      auto found = admin->admin->GetModel(model);
      if (!found.ok()) return found.status();
      made->models.push_back(*std::move(found));
    } else {
      auto found = admin->admin->ListModels();
      if (!found.ok()) return found.status();
      made->models.assign(found->models().begin(), found->models().end());
    }
    *models = made.release();
    return absl::OkStatus();
  });
}

void paramd_models_free(paramd_models* models) { delete models; }

size_t paramd_models_count(const paramd_models* models) { return models == nullptr ? 0 : models->models.size(); }

const char* paramd_models_name(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? nullptr : found->spec().name().c_str();
}

const char* paramd_models_algorithm(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? nullptr : found->spec().algorithm().c_str();
}

const char* paramd_models_consistency(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? nullptr : found->spec().consistency().c_str();
}

const char* paramd_models_problem(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? nullptr : found->problem().c_str();
}

paramd_model_info paramd_models_info(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? paramd_model_info{} : paramd::c::Summarize(*found);
}

size_t paramd_models_hyperparameters(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? 0 : static_cast<size_t>(found->spec().hyperparameters_size());
}

const char* paramd_models_hyperparameter_name(const paramd_models* models, size_t model, size_t index) {
  const auto* const found = FindHyperparameter(models, model, index);
  return found == nullptr ? nullptr : found->name().c_str();
}

double paramd_models_hyperparameter_value(const paramd_models* models, size_t model, size_t index) {
  const auto* const found = FindHyperparameter(models, model, index);
  return found == nullptr ? 0 : found->value();
}

size_t paramd_models_tensors(const paramd_models* models, size_t model) {
  const auto* const found = Find(models, model);
  return found == nullptr ? 0 : static_cast<size_t>(found->spec().tensors_size());
}

const char* paramd_models_tensor_name(const paramd_models* models, size_t model, size_t index) {
  const auto* const found = FindTensor(models, model, index);
  return found == nullptr ? nullptr : found->name().c_str();
}

const int64_t* paramd_models_tensor_shape(const paramd_models* models, size_t model, size_t index, size_t* rank) {
  const auto* const found = FindTensor(models, model, index);
  if (rank != nullptr) *rank = found == nullptr ? 0 : static_cast<size_t>(found->shape_size());
  return found == nullptr || found->shape().empty() ? nullptr : found->shape().data();
}

paramd_code paramd_file_write(const char* path, const paramd_model_spec* spec, int64_t version, const float* center,
                              size_t floats) {
  return Guard([&] {
    if (auto status = CheckGiven({{path, "path"}, {spec, "spec"}, {center, "center"}}); !status.ok()) return status;
    return paramd::WriteModelFile(
        path, {.spec = spec->spec, .version = version, .center = {absl::MakeConstSpan(center, floats)}});
  });
}

paramd_code paramd_file_describe(const char* path, paramd_models** models) {
  return Guard([&] {
    if (auto status = CheckGiven({{path, "path"}, {models, "models"}}); !status.ok()) return status;
    const auto file = paramd::ModelFile::Open(path);
    if (!file.ok()) return file.status();
    auto info = Describe(*file);
    if (!info.ok()) return info.status();
    auto made = std::make_unique<paramd_models>();
    made->models.push_back(*std::move(info));
    *models = made.release();
    return absl::OkStatus();
  });
}

paramd_code paramd_file_read(const char* path, float* center, size_t floats) {
  return Guard([&] {
    if (auto status = CheckGiven({{path, "path"}, {center, "center"}}); !status.ok()) return status;
    const auto file = paramd::ModelFile::Open(path);
    if (!file.ok()) return file.status();
    const auto info = Describe(*file);
    if (!info.ok()) return info.status();
    if (info->parameters() != floats) {
      return absl::InvalidArgumentError(
          absl::StrCat(file->file().path(), " holds ", info->parameters(), " floats, but there is room for ", floats));
    }
    const absl::Span<float> whole = absl::MakeSpan(center, floats);
    return file->ReadCenter({&whole, 1});
  });
}
