#include "client/cli/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/shape.h"

namespace paramd::cli {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are our copies");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr char kMetadataKey[] = "__metadata__";

// Bits of one element; 0 for a dtype that the format doesn't have.
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

absl::Status ErrnoError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status FileError(const std::string& path, const std::string& cause) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", cause));
}

absl::Status TensorError(const std::string& path, const std::string& tensor, const std::string& cause) {
  return FileError(path, absl::StrCat("tensor '", tensor, "': ", cause));
}

// Notices keys that come twice in one object, which a parsed document doesn't show any more.
class DuplicateKeys {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_objects_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects_.back().insert(key).second && first_.empty()) first_ = absl::StrCat("'", key, "'");
    }
    return true;
  }

  const std::string& first() const { return first_; }  // quoted; empty if there is none

 private:
  std::vector<std::set<std::string>> open_objects_;
  std::string first_;
};

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& path, const std::string& name, const Json& json) {
  if (!json.is_object()) return TensorError(path, name, "its entry in the header is not an object");
  SafetensorsEntry entry{.name = name};

  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return TensorError(path, name, "it has no dtype, or not as a string");
  entry.dtype = dtype->get<std::string>();
  const int bits = ElementBits(entry.dtype);
  if (bits == 0) return TensorError(path, name, absl::StrCat("unknown dtype ", dtype->dump()));

  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return TensorError(path, name, "it has no shape, or not as a list");
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return TensorError(path, name, absl::StrCat("bad size ", size.dump(), " in its shape"));
    }
    entry.shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
  }

  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return TensorError(path, name, "its data_offsets are not two unsigned integers");
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.end < entry.begin) {
    return TensorError(path, name, absl::StrCat("its data ends at ", entry.end, " before it begins at ", entry.begin));
  }

  uint64_t total_bits = 0;
  const auto elements = ElementCount(entry.shape);
  if (!elements || __builtin_mul_overflow(static_cast<uint64_t>(*elements), static_cast<uint64_t>(bits), &total_bits)) {
    return TensorError(path, name, absl::StrCat("its shape ", ShapeText(entry.shape), " overflows 64 bits"));
  }
  if (total_bits % 8 != 0 || entry.end - entry.begin != total_bits / 8) {
    return TensorError(path, name,
                       absl::StrCat("it has ", entry.end - entry.begin, " bytes of data, but ", entry.dtype,
                                    " of shape ", ShapeText(entry.shape), " takes ", (total_bits + 7) / 8));
  }
  return entry;
}

absl::Status ParseMetadata(const std::string& path, const Json& json, std::map<std::string, std::string>* metadata) {
  if (!json.is_object()) return FileError(path, absl::StrCat(kMetadataKey, " is not an object"));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return FileError(path, absl::StrCat(kMetadataKey, " holds '", key, "', which is not a string"));
    }
    metadata->emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// The tensors must fill the data exactly: one after the other, in any order of the header, without overlap or hole.
absl::Status CheckPlaces(const std::string& path, const std::vector<SafetensorsEntry>& sorted, uint64_t data_bytes) {
  uint64_t filled = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const SafetensorsEntry& entry : sorted) {
    if (entry.end > data_bytes) {
      return TensorError(path, entry.name,
                         absl::StrCat("its data ends at byte ", entry.end, ", but the file has only ", data_bytes,
                                      " bytes of data; was it cut off?"));
    }
    if (entry.begin < filled) {
      return TensorError(path, entry.name,
                         absl::StrCat("its data overlaps that of '", previous == nullptr ? "" : previous->name, "'"));
    }
    if (entry.begin > filled) {
      return TensorError(path, entry.name,
                         absl::StrCat("there is a hole of ", entry.begin - filled, " bytes before its data"));
    }
    filled = entry.end;
    previous = &entry;
  }
  if (filled != data_bytes) {
    return FileError(path, absl::StrCat(data_bytes - filled, " bytes at its end belong to no tensor"));
  }
  return absl::OkStatus();
}

// Dumped leniently and read back, anything but UTF-8 comes out shorter.
bool IsUtf8(const std::string& text) {
  const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return Json::parse(dumped, nullptr, false) == Json(text);
}

std::string Quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

absl::StatusOr<std::string> MakeHeader(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) return FileError(path, "its metadata is not UTF-8");
      pairs.push_back(absl::StrCat(Quoted(key), ":", Quoted(value)));
    }
    members.push_back(absl::StrCat(Quoted(kMetadataKey), ":{", absl::StrJoin(pairs, ","), "}"));
  }
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == kMetadataKey || !IsUtf8(tensor.name)) {
      return TensorError(path, tensor.name, "the format can't hold a tensor of this name");
    }
    if (!names.insert(tensor.name).second) return TensorError(path, tensor.name, "it comes twice");
    const auto elements = ElementCount(tensor.shape);
    if (!elements || static_cast<uint64_t>(*elements) != tensor.values.size()) {
      return TensorError(path, tensor.name,
                         absl::StrCat(tensor.values.size(), " values don't fit shape ", ShapeText(tensor.shape)));
    }
    const uint64_t end = offset + tensor.values.size() * sizeof(float);
    members.push_back(absl::StrCat(Quoted(tensor.name), ":{\"dtype\":\"F32\",\"shape\":[",
                                   absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", offset, ",", end, "]}"));
    offset = end;
  }
  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data
  if (header.size() > kMaxHeaderBytes) {
    return FileError(path, absl::StrCat("its header takes ", header.size(), " bytes, the format allows ",
                                        kMaxHeaderBytes, "; use fewer tensors or shorter names"));
  }
  return header;
}

absl::Status WriteBytes(int descriptor, const std::string& path, const void* bytes, uint64_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(path, "can't write");
    at += written;
    size -= static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int descriptor, const std::string& path, const std::string& header,
                      const std::vector<SafetensorsTensor>& tensors) {
  const uint64_t length = header.size();
  if (auto status = WriteBytes(descriptor, path, &length, kLengthBytes); !status.ok()) return status;
  if (auto status = WriteBytes(descriptor, path, header.data(), length); !status.ok()) return status;
  for (const SafetensorsTensor& tensor : tensors) {
    auto status = WriteBytes(descriptor, path, tensor.values.data(), tensor.values.size() * sizeof(float));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoError(path, "can't open");
  SafetensorsFile file(path, descriptor);
  if (auto status = file.ReadHeader(); !status.ok()) return status;
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_offset_(other.data_offset_),
      tensors_(std::move(other.tensors_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_offset_, other.data_offset_);
  std::swap(tensors_, other.tensors_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

absl::Status SafetensorsFile::ReadHeader() {
  struct stat status_of_file;
  if (::fstat(descriptor_, &status_of_file) != 0) return ErrnoError(path_, "can't read");
  if (!S_ISREG(status_of_file.st_mode)) return FileError(path_, "not a regular file");
  const auto file_bytes = static_cast<uint64_t>(status_of_file.st_size);
  if (file_bytes < kLengthBytes) {
    return FileError(path_, absl::StrCat("not a safetensors file: it has only ", file_bytes, " bytes"));
  }

  uint64_t length = 0;
  if (auto status = ReadBytes(0, reinterpret_cast<char*>(&length), kLengthBytes); !status.ok()) return status;
  if (length > kMaxHeaderBytes) {
    return FileError(path_, absl::StrCat("not a safetensors file: its header would take ", length, " bytes, more than ",
                                         kMaxHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes) {
    return FileError(path_, absl::StrCat("its header takes ", length, " bytes, but the file ends after ",
                                         file_bytes - kLengthBytes, "; was it cut off?"));
  }
  std::string header(length, '\0');
  if (auto status = ReadBytes(kLengthBytes, header.data(), length); !status.ok()) return status;
  if (header.empty() || header[0] != '{') {
    return FileError(path_, "not a safetensors file: its header does not begin with '{'");
  }

  // The parser would take a zero byte for the end.
  if (header.find('\0') != std::string::npos) {
    return FileError(path_, "its header is not well-formed JSON: it holds a zero byte (only spaces may pad it)");
  }
  DuplicateKeys duplicates;
  const Json json = Json::parse(header, std::ref(duplicates), /*allow_exceptions=*/false);
  if (!json.is_object()) return FileError(path_, "its header is not well-formed JSON");
  if (!duplicates.first().empty()) {
    return FileError(path_, absl::StrCat("its header has ", duplicates.first(), " twice"));
  }

  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      if (auto status = ParseMetadata(path_, value, &metadata_); !status.ok()) return status;
      continue;
    }
    auto entry = ParseEntry(path_, name, value);
    if (!entry.ok()) return entry.status();
    tensors_.push_back(*std::move(entry));
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  data_offset_ = kLengthBytes + length;
  return CheckPlaces(path_, tensors_, file_bytes - data_offset_);
}

absl::Status SafetensorsFile::ReadBytes(uint64_t offset, char* bytes, uint64_t size) const {
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(path_, "can't read");
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, ": it became shorter while it was read"));
    bytes += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::Read(const SafetensorsEntry& tensor, absl::Span<float> values) const {
  if (tensor.dtype != "F32") {
    return TensorError(path_, tensor.name,
                       absl::StrCat("its dtype is ", tensor.dtype, ", paramd takes F32 only; convert it first"));
  }
  if (values.size() * sizeof(float) != tensor.end - tensor.begin) {
    return TensorError(
        path_, tensor.name,
        absl::StrCat("it has ", (tensor.end - tensor.begin) / sizeof(float), " values, not ", values.size()));
  }
  return ReadBytes(data_offset_ + tensor.begin, reinterpret_cast<char*>(values.data()), tensor.end - tensor.begin);
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const auto header = MakeHeader(path, tensors, metadata);
  if (!header.ok()) return header.status();

  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::directory) return FileError(path, "can't write: it is a directory");
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return ErrnoError(path, "can't open");
    const auto status = WriteAll(descriptor, path, *header, tensors);
    ::close(descriptor);
    return status;
  }

  // Behind a symbolic link it is the file that is replaced, not the link.
  const auto resolved = std::filesystem::weakly_canonical(path, ignored).string();
  const std::string target = resolved.empty() ? path : resolved;
  std::string temporary = target + ".XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return ErrnoError(path, "can't create a file in its folder");
  auto status = WriteAll(descriptor, path, *header, tensors);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (status.ok() && (::fchmod(descriptor, 0666 & ~mask) != 0 || ::fsync(descriptor) != 0)) {
    status = ErrnoError(path, "can't write");
  }
  if (::close(descriptor) != 0 && status.ok()) status = ErrnoError(path, "can't write");
  if (status.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) status = ErrnoError(path, "can't rename to it");
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

}  // namespace paramd::cli
