#include "state/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd {
namespace {

using Json = nlohmann::json;

// Of a tensor; more than any has.
constexpr size_t kMaxDimensions = 64;

// The parser's error for a number that no double can hold.
constexpr int kNumberOverflow = 406;

// Takes what the parser finds, in order, and stops it at the first thing that is wrong.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  absl::StatusOr<SafetensorsHeader> Take() {
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    std::vector<SafetensorsEntry>& tensors = header_.tensors;
    const auto by_name = [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; };
    std::sort(tensors.begin(), tensors.end(), by_name);
    const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat("its header has '", Quoted(twice->name), "' twice"));
    }
    std::stable_sort(tensors.begin(), tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    return std::move(header_);
  }

  bool null() override { return Scalar("null"); }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Scalar(absl::StrCat(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return Scalar(Quoted(text)); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool number_unsigned(number_unsigned_t value) override {
    const std::string text = absl::StrCat(value);
    if (skipped_ > 0 || depth_ != kList) return Scalar(text);
    if (field_ == "shape" && entry_.shape.size() == kMaxDimensions) {
      return TensorError(absl::StrCat("it has more than ", kMaxDimensions, " dimensions"));
    }
    if (field_ == "shape" && value <= static_cast<uint64_t>(INT64_MAX)) {
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (field_ == "data_offsets" && offsets_ < 2) {
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return Scalar(text);
  }

  bool string(string_t& value) override {
    if (skipped_ == 0 && depth_ == kEntry && metadata_) {
      header_.metadata.emplace(field_, std::move(value));
      return true;
    }
    if (skipped_ == 0 && depth_ == kEntry && field_ == "dtype") {
      if (ElementBits(value) == 0) return TensorError(absl::StrCat("unknown dtype \"", Quoted(value), "\""));
      entry_.dtype = std::move(value);
      return true;
    }
    return Scalar(absl::StrCat("\"", Quoted(value), "\""));
  }

  bool key(string_t& name) override {
    if (skipped_ > 0) return true;
    if (depth_ == kTop) {
      metadata_ = name == kSafetensorsMetadata;
      if (metadata_ && std::exchange(had_metadata_, true)) return Twice(name);
      entry_ = {.name = std::move(name)};
      fields_.clear();
      offsets_ = 0;
      return true;
    }
    field_ = std::move(name);
    const bool known = metadata_ || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
    return !known || fields_.insert(field_).second || Twice(field_);
  }

  bool start_object(size_t /*elements*/) override {
    if (skipped_ == 0 && depth_ <= kTop) {
      ++depth_;
      return true;
    }
    return Skip("{");
  }
  bool end_object() override {
    if (skipped_ > 0) return --skipped_, true;
    return depth_-- != kEntry || metadata_ || FinishEntry();
  }

  bool start_array(size_t /*elements*/) override {
    if (skipped_ == 0 && depth_ == kEntry && !metadata_ && (field_ == "shape" || field_ == "data_offsets")) {
      depth_ = kList;
      return true;
    }
    return Skip("[");
  }
  bool end_array() override {
    skipped_ > 0 ? --skipped_ : --depth_;
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& error) override {
    if (error.id == kNumberOverflow) return Error("its header has a number that is too large");
    return Error("its header is not well-formed JSON");
  }

 private:
  // How deep it is in what it knows: in nothing, the header, a tensor's entry (or the metadata), a list of that.
  enum Depth { kNowhere, kTop, kEntry, kList };

  bool Error(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }
  bool TensorError(absl::string_view problem) {
    return Error(absl::StrCat("tensor '", Quoted(entry_.name), "': ", problem));
  }
  bool Twice(const std::string& key) { return Error(absl::StrCat("its header has '", Quoted(key), "' twice")); }

  // A value that is an object or a list where none is known is passed over, if anything may stand there.
  bool Skip(absl::string_view begin) {
    if (skipped_ == 0 && !Scalar(begin)) return false;
    ++skipped_;
    return true;
  }

  // A value of no known field.
  bool Scalar(absl::string_view text) {
    if (skipped_ > 0) return true;
    switch (depth_) {
      case kNowhere:
        return Error("its header is no JSON object");
      case kTop:
        return metadata_ ? Error(absl::StrCat(kSafetensorsMetadata, " is not an object"))
                         : TensorError("its entry in the header is not an object");
      case kEntry:
        if (metadata_) {
          return Error(absl::StrCat(kSafetensorsMetadata, " holds '", Quoted(field_), "', which is not a string"));
        }
        if (field_ == "dtype") return TensorError("it has no dtype, or not as a string");
        if (field_ == "shape") return TensorError("it has no shape, or not as a list");
        return field_ != "data_offsets" || TensorError(kBadOffsets);
      case kList:
        return TensorError(field_ == "shape" ? absl::StrCat("bad size ", text, " in its shape") : kBadOffsets);
    }
    return false;
  }

  bool FinishEntry() {
    if (fields_.count("dtype") == 0) return TensorError("it has no dtype, or not as a string");
    if (fields_.count("shape") == 0) return TensorError("it has no shape, or not as a list");
    if (offsets_ != 2) return TensorError(kBadOffsets);
    const uint64_t bytes = entry_.end - entry_.begin;
    if (entry_.end < entry_.begin) {
      return TensorError(absl::StrCat("its data ends at ", entry_.end, " before it begins at ", entry_.begin));
    }
    uint64_t bits = 0;
    const auto elements = ElementCount(entry_.shape);
    if (!elements || __builtin_mul_overflow(static_cast<uint64_t>(*elements),
                                            static_cast<uint64_t>(ElementBits(entry_.dtype)), &bits)) {
      return TensorError(absl::StrCat("its shape ", ShapeText(entry_.shape), " overflows 64 bits"));
    }
    if (bits % 8 != 0 || bytes != bits / 8) {
      return TensorError(absl::StrCat("it has ", bytes, " bytes of data, but ", entry_.dtype, " of shape ",
                                      ShapeText(entry_.shape), " takes ", bits / 8 + (bits % 8 != 0 ? 1 : 0)));
    }
    header_.tensors.push_back(std::move(entry_));
    return true;
  }

  static constexpr char kBadOffsets[] = "its data_offsets are not two unsigned integers";

  SafetensorsHeader header_;
  std::string error_;
  int depth_ = kNowhere;
  size_t skipped_ = 0;  // objects and lists that it is in, beyond what it knows
  bool metadata_ = false;
  bool had_metadata_ = false;
  SafetensorsEntry entry_;
  std::string field_;
  std::set<std::string> fields_;  // of the entry, so far
  int offsets_ = 0;
};

}  // namespace

int ElementBits(const std::string& dtype) {
  static const auto& bits = *new std::map<std::string, int>{
      {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"BF16", 16},   {"I32", 32}, {"U32", 32}, {"F32", 32},
      {"C64", 64},        {"I64", 64},        {"U64", 64},    {"F64", 64},
  };
  const auto found = bits.find(dtype);
  return found == bits.end() ? 0 : found->second;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json) {
  if (json.empty() || json[0] != '{') {
    return absl::InvalidArgumentError("not a safetensors file: its header does not begin with '{'");
  }
  // The parser would take a zero byte for the end.
  if (json.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "its header is not well-formed JSON: it holds a zero byte (only spaces may pad it)");
  }
  HeaderReader reader;
  Json::sax_parse(json.begin(), json.end(), &reader);
  return reader.Take();
}

}  // namespace paramd
