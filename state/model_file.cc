#include "state/model_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd {
namespace {

// In the metadata.
constexpr char kModel[] = "model";
constexpr char kAlgorithm[] = "algorithm";
constexpr char kConsistency[] = "consistency";
constexpr char kVersion[] = "version";
constexpr char kRounds[] = "rounds";
constexpr char kHyperparameter[] = "hyperparameter.";
constexpr char kExtra[] = "extra";  // what the names of further tensors begin with

// Of the names of further tensors, behind the prefix.
constexpr char kState[] = "state/";
constexpr char kSum[] = "sum";
constexpr char kRecord[] = "record";

// More than any record takes that our own bounds allow.
constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 30;

std::string ExtraPrefix(const v1::ModelSpec& spec) {
  std::string prefix = "paramd:";
  const auto taken = [&](const v1::Tensor& tensor) { return absl::StartsWith(tensor.name(), prefix); };
  while (std::any_of(spec.tensors().begin(), spec.tensors().end(), taken)) prefix += ":";
  return prefix;
}

uint64_t Count(const FloatPieces& pieces) {
  uint64_t floats = 0;
  for (const absl::Span<const float> piece : pieces) floats += piece.size();
  return floats;
}

void Append(const FloatPieces& pieces, SafetensorsContent* content) {
  for (const absl::Span<const float> piece : pieces) {
    content->data.emplace_back(reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(float));
  }
}

void AppendVector(const std::string& name, const FloatPieces& pieces, SafetensorsContent* content) {
  content->header.tensors.push_back({.name = name, .dtype = "F32", .shape = {static_cast<int64_t>(Count(pieces))}});
  Append(pieces, content);
}

// `record`: its bytes, which the content refers to.
absl::StatusOr<SafetensorsContent> MakeContent(const ModelFileContent& model, std::string* record) {
  SafetensorsContent content;
  std::map<std::string, std::string>& metadata = content.header.metadata;
  metadata = {{kModel, model.spec.name()},
              {kAlgorithm, model.spec.algorithm()},
              {kConsistency, model.spec.consistency()},
              {kVersion, absl::StrCat(model.version)},
              {kRounds, absl::StrCat(model.rounds)}};
  for (const v1::Hyperparameter& h : model.spec.hyperparameters()) {
    metadata[kHyperparameter + h.name()] = absl::StrFormat("%.17g", h.value());
  }
  const std::string prefix = ExtraPrefix(model.spec);
  metadata[kExtra] = prefix;
  if (!model.center.empty()) {
    for (const v1::Tensor& tensor : model.spec.tensors()) {
      content.header.tensors.push_back(
          {.name = tensor.name(), .dtype = "F32", .shape = {tensor.shape().begin(), tensor.shape().end()}});
    }
    Append(model.center, &content);
  }
  for (size_t i = 0; i < model.state.size(); ++i) {
    AppendVector(absl::StrCat(prefix, kState, i), model.state[i], &content);
  }
  if (!model.sum.empty()) AppendVector(prefix + kSum, model.sum, &content);
  if (model.record != nullptr) {
    *record = model.record->SerializeAsString();
    if (record->size() > kMaxRecordBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the record of model '", model.spec.name(), "' takes ",
                                                       record->size(),
                                                       " bytes, more than could be read again; lower "
                                                       "--max_history_bytes"));
    }
    content.header.tensors.push_back(
        {.name = prefix + kRecord, .dtype = "U8", .shape = {static_cast<int64_t>(record->size())}});
    content.data.push_back(*record);
  }
  return content;
}

}  // namespace

absl::Status WriteModelFile(const std::string& path, const ModelFileContent& content) {
  std::string record;
  const auto made = MakeContent(content, &record);
  return made.ok() ? WriteSafetensorsContent(path, *made) : made.status();
}

absl::Status WriteModelFile(std::ostream* out, const ModelFileContent& content) {
  std::string record;
  const auto made = MakeContent(content, &record);
  return made.ok() ? WriteSafetensorsContent(out, *made) : made.status();
}

absl::StatusOr<ModelFile> ModelFile::Open(const std::string& path) {
  auto opened = SafetensorsFile::Open(path);
  if (!opened.ok()) return opened.status();
  ModelFile file(*std::move(opened));
  // What others write may have such words, too, with another meaning.
  file.whole_ = file.file_.has_checksums() && file.file_.metadata().count(kExtra) > 0;
  if (!file.whole_) {
    file.tensors_ = file.file_.tensors();
    return file;
  }
  if (auto status = file.Sort(); !status.ok()) return status;
  if (auto status = file.ReadMetadata(); !status.ok()) return status;
  return file;
}

absl::Status ModelFile::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what));
}

absl::Status ModelFile::Sort() {
  const std::string& prefix = file_.metadata().at(kExtra);
  if (prefix.empty()) return Error("its further tensors have no prefix");
  std::map<uint64_t, SafetensorsEntry> state;
  for (const SafetensorsEntry& tensor : file_.tensors()) {
    absl::string_view name = tensor.name;
    if (!absl::ConsumePrefix(&name, prefix)) {
      tensors_.push_back(tensor);
      continue;
    }
    uint64_t index = 0;
    if (name == kSum) {
      sum_ = tensor;
    } else if (name == kRecord) {
      record_ = tensor;
    } else if (absl::ConsumePrefix(&name, kState) && absl::SimpleAtoi(name, &index)) {
      state.emplace(index, tensor);
    } else {
      return Error(absl::StrCat("unknown tensor '", Quoted(tensor.name), "'; was it written by a newer paramd?"));
    }
  }
  for (auto& [index, tensor] : state) {
    if (index != state_.size()) return Error(absl::StrCat("it lacks state vector ", state_.size()));
    state_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ModelFile::ReadMetadata() {
  const auto& metadata = file_.metadata();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  spec_.set_name(text(kModel));
  spec_.set_algorithm(text(kAlgorithm));
  spec_.set_consistency(text(kConsistency));
  if (!absl::SimpleAtoi(text(kVersion), &version_) || !absl::SimpleAtoi(text(kRounds), &rounds_) || version_ < 0 ||
      rounds_ < 0) {
    return Error("its version and rounds are no counts");
  }
  for (auto it = metadata.lower_bound(kHyperparameter);
       it != metadata.end() && absl::StartsWith(it->first, kHyperparameter); ++it) {
    double value = 0;
    if (!absl::SimpleAtod(it->second, &value)) return Error(absl::StrCat(Quoted(it->first), " is no number"));
    v1::Hyperparameter* const h = spec_.add_hyperparameters();
    h->set_name(it->first.substr(sizeof(kHyperparameter) - 1));
    h->set_value(value);
  }
  for (const SafetensorsEntry& entry : tensors_) {
    v1::Tensor* const tensor = spec_.add_tensors();
    tensor->set_name(entry.name);
    tensor->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
  }
  return absl::OkStatus();
}

absl::Status ModelFile::Read(absl::Span<const SafetensorsEntry> tensors,
                             absl::Span<const absl::Span<float>> pieces) const {
  auto piece = pieces.begin();
  absl::Span<char> rest;
  for (const SafetensorsEntry& tensor : tensors) {
    if (tensor.dtype != "F32") {
      return Error(absl::StrCat("tensor '", Quoted(tensor.name), "': its dtype is ", tensor.dtype, ", not F32"));
    }
    std::vector<absl::Span<char>> parts;
    for (uint64_t left = tensor.end - tensor.begin; left > 0; left -= parts.back().size()) {
      if (rest.empty()) {
        if (piece == pieces.end()) return Error("it has more values than the model");
        rest = absl::MakeSpan(reinterpret_cast<char*>(piece->data()), piece->size() * sizeof(float));
        ++piece;
      }
      parts.push_back(rest.subspan(0, left));
      rest.remove_prefix(parts.back().size());
    }
    if (auto status = file_.Read(tensor, parts); !status.ok()) return status;
  }
  if (!rest.empty() || piece != pieces.end()) return Error("it has fewer values than the model");
  return absl::OkStatus();
}

absl::Status ModelFile::ReadCenter(absl::Span<const absl::Span<float>> pieces) const { return Read(tensors_, pieces); }

absl::Status ModelFile::ReadState(size_t vector, absl::Span<const absl::Span<float>> pieces) const {
  return Read({&state_[vector], 1}, pieces);
}

absl::Status ModelFile::ReadSum(absl::Span<const absl::Span<float>> pieces) const { return Read({&*sum_, 1}, pieces); }

absl::StatusOr<state::Checkpoint> ModelFile::ReadRecord() const {
  if (!record_.has_value()) return Error("it is no checkpoint: it has no record of the model");
  const uint64_t size = record_->end - record_->begin;
  if (size > kMaxRecordBytes) return Error(absl::StrCat("its record takes ", size, " bytes"));
  std::string bytes(size, '\0');
  if (auto status = file_.Read(*record_, {absl::MakeSpan(bytes.data(), bytes.size())}); !status.ok()) return status;
  state::Checkpoint record;
  if (!record.ParseFromString(bytes) || record.id() == 0) return Error("its record can't be read");
  if (record.version() != version_ || record.rounds() != rounds_ || record.initialized() == tensors_.empty()) {
    return Error("its record contradicts its metadata");
  }
  return record;
}

absl::Status ModelFile::Verify() const {
  std::vector<char> buffer;
  for (const SafetensorsEntry& tensor : file_.tensors()) {
    // In pieces that lie in the same memory.
    buffer.resize(std::max<uint64_t>(buffer.size(), std::min<uint64_t>(tensor.end - tensor.begin, 1 << 20)));
    std::vector<absl::Span<char>> pieces;
    for (uint64_t left = tensor.end - tensor.begin; left > 0; left -= pieces.back().size()) {
      pieces.push_back(absl::MakeSpan(buffer.data(), std::min<uint64_t>(left, buffer.size())));
    }
    if (auto status = file_.Read(tensor, pieces); !status.ok()) return status;
  }
  return has_record() ? ReadRecord().status() : absl::OkStatus();
}

}  // namespace paramd
