#include "client/cli/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/shape.h"
#include "files/whole_file.h"
#include "process/system_call.h"
#include "proto/text.h"

namespace paramd::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are our copies");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kNoEnd = UINT64_MAX;
// Of a pipe, at a time.
constexpr uint64_t kCopyBytes = uint64_t{1} << 20;
absl::Status ErrnoError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status FileError(const std::string& path, const std::string& cause) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", cause));
}

absl::Status TensorError(const std::string& path, const std::string& tensor, const std::string& cause) {
  return FileError(path, absl::StrCat("tensor '", Quoted(tensor), "': ", cause));
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
      return TensorError(
          path, entry.name,
          absl::StrCat("its data overlaps that of '", previous == nullptr ? "" : Quoted(previous->name), "'"));
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

std::string JsonString(const std::string& text) { return nlohmann::json(text).dump(); }

absl::StatusOr<std::string> MakeHeader(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) return FileError(path, "its metadata is not UTF-8");
      pairs.push_back(absl::StrCat(JsonString(key), ":", JsonString(value)));
    }
    members.push_back(absl::StrCat(JsonString(kSafetensorsMetadata), ":{", absl::StrJoin(pairs, ","), "}"));
  }
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == kSafetensorsMetadata || !IsUtf8(tensor.name)) {
      return TensorError(path, tensor.name, "the format can't hold a tensor of this name");
    }
    if (!names.insert(tensor.name).second) return TensorError(path, tensor.name, "it comes twice");
    const auto elements = ElementCount(tensor.shape);
    if (!elements || static_cast<uint64_t>(*elements) != tensor.values.size()) {
      return TensorError(path, tensor.name,
                         absl::StrCat(tensor.values.size(), " values don't fit shape ", ShapeText(tensor.shape)));
    }
    const uint64_t end = offset + tensor.values.size() * sizeof(float);
    members.push_back(absl::StrCat(JsonString(tensor.name), ":{\"dtype\":\"F32\",\"shape\":[",
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

// `write` takes a string_view.
template <typename Write>
absl::Status WriteAll(const std::string& header, const std::vector<SafetensorsTensor>& tensors, const Write& write) {
  const uint64_t length = header.size();
  if (auto status = write({reinterpret_cast<const char*>(&length), kLengthBytes}); !status.ok()) return status;
  if (auto status = write(header); !status.ok()) return status;
  for (const SafetensorsTensor& tensor : tensors) {
    auto status = write({reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  const bool standard_input = path == "-";
  const int descriptor = RetryInterrupted([&] {
    return standard_input ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  });
  SafetensorsFile file(standard_input ? "standard input" : path, descriptor);
  if (descriptor < 0) return ErrnoError(file.path_, "can't open");
  if (auto status = file.Prepare(standard_input); !status.ok()) return status;
  if (auto status = file.ReadHeader(); !status.ok()) return status;
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  for (const int descriptor : {descriptor_, source_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      source_(std::exchange(other.source_, -1)),
      bytes_(other.bytes_),
      data_offset_(other.data_offset_),
      header_(std::move(other.header_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(source_, other.source_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_offset_, other.data_offset_);
  std::swap(header_, other.header_);
  return *this;
}

absl::Status SafetensorsFile::Prepare(bool standard_input) {
  struct stat kind;
  if (::fstat(descriptor_, &kind) != 0) return ErrnoError(path_, "can't read");
  if (S_ISDIR(kind.st_mode)) return FileError(path_, "it is a directory");
  // Somebody may have read from standard input before.
  if (S_ISREG(kind.st_mode) && (!standard_input || ::lseek(descriptor_, 0, SEEK_CUR) == 0)) {
    bytes_ = static_cast<uint64_t>(kind.st_size);
    return absl::OkStatus();
  }
  source_ = std::exchange(descriptor_, ::memfd_create("safetensors", MFD_CLOEXEC));
  return descriptor_ >= 0 ? absl::OkStatus() : ErrnoError(path_, "can't keep what is read");
}

absl::Status SafetensorsFile::Fill(uint64_t bytes) {
  std::vector<char> buffer;
  while (source_ >= 0 && bytes_ < bytes) {
    buffer.resize(std::min<uint64_t>(kCopyBytes, bytes - bytes_));
    const ssize_t got = RetryInterrupted([&] { return ::read(source_, buffer.data(), buffer.size()); });
    if (got < 0) return ErrnoError(path_, "can't read");
    if (got == 0) break;
    for (ssize_t kept = 0; kept < got;) {
      const ssize_t written =
          RetryInterrupted([&] { return ::write(descriptor_, buffer.data() + kept, static_cast<size_t>(got - kept)); });
      if (written < 0) return ErrnoError(path_, "can't keep what is read");
      kept += written;
    }
    bytes_ += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadHeader() {
  if (auto status = Fill(kLengthBytes); !status.ok()) return status;
  if (bytes_ < kLengthBytes) {
    return FileError(path_, absl::StrCat("not a safetensors file: it has only ", bytes_, " bytes"));
  }
  uint64_t length = 0;
  if (auto status = ReadBytes(0, reinterpret_cast<char*>(&length), kLengthBytes); !status.ok()) return status;
  if (length > kMaxHeaderBytes) {
    return FileError(path_, absl::StrCat("not a safetensors file: its header would take ", length, " bytes, more than ",
                                         kMaxHeaderBytes));
  }
  data_offset_ = kLengthBytes + length;
  if (auto status = Fill(data_offset_); !status.ok()) return status;
  if (data_offset_ > bytes_) {
    return FileError(path_, absl::StrCat("its header takes ", length, " bytes, but the file ends after ",
                                         bytes_ - kLengthBytes, "; was it cut off?"));
  }
  std::string text(length, '\0');
  if (auto status = ReadBytes(kLengthBytes, text.data(), length); !status.ok()) return status;
  auto header = ParseSafetensorsHeader(text);
  if (!header.ok()) return FileError(path_, std::string(header.status().message()));
  header_ = *std::move(header);
  // All of its data, and what would be too much.
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header_.tensors) end = std::max(end, entry.end);
  if (auto status = Fill(end < kNoEnd - data_offset_ ? data_offset_ + end + 1 : kNoEnd); !status.ok()) return status;
  return CheckPlaces(path_, header_.tensors, bytes_ - data_offset_);
}

absl::Status SafetensorsFile::ReadBytes(uint64_t offset, char* bytes, uint64_t size) const {
  while (size > 0) {
    const ssize_t got = RetryInterrupted([&] { return ::pread(descriptor_, bytes, size, static_cast<off_t>(offset)); });
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
  auto file = WholeFile::Open(path);
  if (!file.ok()) return file.status();
  auto status = WriteAll(*header, tensors, [&](absl::string_view bytes) { return file->Write(bytes); });
  return status.ok() ? file->Publish() : status;
}

absl::Status WriteSafetensors(std::ostream* out, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const std::string name = "standard output";
  const auto header = MakeHeader(name, tensors, metadata);
  if (!header.ok()) return header.status();
  return WriteAll(*header, tensors, [&](absl::string_view bytes) {
    out->write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return out->flush() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(name, ": can't write"));
  });
}

}  // namespace paramd::cli
