#include "state/safetensors.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "files/whole_file.h"
#include "process/system_call.h"
#include "proto/text.h"
#include "state/shape.h"

namespace paramd {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are our copies");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr char kStandardOutput[] = "standard output";
constexpr uint64_t kNoEnd = UINT64_MAX;
constexpr size_t kReadBytes = size_t{256} << 10;
// Of a pipe, at a time.
constexpr uint64_t kCopyBytes = uint64_t{1} << 20;

// Of the checksums in the metadata: those of the tensors in the order of their data, as hexadecimal numbers with commas
// between them, and that of length and header, which is made while its own digits are zeros.
constexpr char kPrefix[] = "paramd.";
constexpr char kChecksums[] = "paramd.checksums";
constexpr char kHeaderChecksum[] = "paramd.header_checksum";
constexpr char kNoChecksum[] = "00000000";
constexpr size_t kChecksumDigits = 8;

uint32_t Checksum(absl::string_view bytes, uint32_t before = 0) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::string Digits(uint32_t checksum) { return absl::StrCat(absl::Hex(checksum, absl::kZeroPad8)); }

absl::string_view LengthBytes(const uint64_t& length) { return {reinterpret_cast<const char*>(&length), kLengthBytes}; }

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

// Where the digits of the header's checksum are: no string of JSON holds a bare quotation mark.
std::optional<size_t> HeaderChecksumAt(absl::string_view header) {
  const std::string key = absl::StrCat("\"", kHeaderChecksum, "\":\"");
  const size_t found = header.find(key);
  if (found == absl::string_view::npos || header.size() - found < key.size() + kChecksumDigits) return std::nullopt;
  return found + key.size();
}

std::string JsonString(const std::string& text) { return nlohmann::json(text).dump(); }

// Of each tensor's data.
absl::StatusOr<std::vector<std::string>> MakeChecksums(const std::string& path, const SafetensorsContent& content) {
  std::vector<std::string> checksums;
  auto piece = content.data.begin();
  absl::string_view rest = piece == content.data.end() ? absl::string_view() : *piece;
  for (const SafetensorsEntry& tensor : content.header.tensors) {
    uint32_t checksum = 0;
    for (uint64_t left = tensor.end - tensor.begin; left > 0;) {
      while (rest.empty() && piece != content.data.end()) {
        if (++piece != content.data.end()) rest = *piece;
      }
      if (rest.empty()) {
        return TensorError(path, tensor.name, absl::StrCat("its values don't fit shape ", ShapeText(tensor.shape)));
      }
      const absl::string_view bytes = rest.substr(0, left);
      checksum = Checksum(bytes, checksum);
      left -= bytes.size();
      rest.remove_prefix(bytes.size());
    }
    checksums.push_back(Digits(checksum));
  }
  return checksums;
}

absl::StatusOr<std::string> MakeHeader(const std::string& path, SafetensorsContent* content) {
  std::vector<std::string> members = {""};  // the metadata
  std::set<std::string> names;
  uint64_t offset = 0;
  for (SafetensorsEntry& tensor : content->header.tensors) {
    if (tensor.name == kSafetensorsMetadata || !IsUtf8(tensor.name)) {
      return TensorError(path, tensor.name, "the format can't hold a tensor of this name");
    }
    if (!names.insert(tensor.name).second) return TensorError(path, tensor.name, "it comes twice");
    const auto elements = ElementCount(tensor.shape);
    if (!elements) return TensorError(path, tensor.name, absl::StrCat("bad shape ", ShapeText(tensor.shape)));
    tensor.begin = offset;
    tensor.end = offset + static_cast<uint64_t>(*elements) * static_cast<uint64_t>(ElementBits(tensor.dtype)) / 8;
    members.push_back(absl::StrCat(JsonString(tensor.name), ":{\"dtype\":", JsonString(tensor.dtype), ",\"shape\":[",
                                   absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", offset, ",", tensor.end,
                                   "]}"));
    offset = tensor.end;
  }
  uint64_t data = 0;
  for (const absl::string_view piece : content->data) data += piece.size();
  if (data != offset) {
    return FileError(path, absl::StrCat(data, " bytes of values don't fit tensors that take ", offset));
  }
  const auto checksums = MakeChecksums(path, *content);
  if (!checksums.ok()) return checksums.status();
  content->header.metadata[kChecksums] = absl::StrJoin(*checksums, ",");
  content->header.metadata[kHeaderChecksum] = kNoChecksum;
  std::vector<std::string> pairs;
  for (const auto& [key, value] : content->header.metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) return FileError(path, "its metadata is not UTF-8");
    pairs.push_back(absl::StrCat(JsonString(key), ":", JsonString(value)));
  }
  members[0] = absl::StrCat(JsonString(kSafetensorsMetadata), ":{", absl::StrJoin(pairs, ","), "}");
  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data
  if (header.size() > kMaxHeaderBytes) {
    return FileError(path, absl::StrCat("its header takes ", header.size(), " bytes, the format allows ",
                                        kMaxHeaderBytes, "; use fewer tensors or shorter names"));
  }
  const uint64_t length = header.size();
  const uint32_t checksum = Checksum(header, Checksum(LengthBytes(length)));
  header.replace(*HeaderChecksumAt(header), kChecksumDigits, Digits(checksum));
  return header;
}

// `write` takes a string_view.
template <typename Write>
absl::Status WriteAll(const std::string& header, const SafetensorsContent& content, const Write& write) {
  const uint64_t length = header.size();
  if (auto status = write(LengthBytes(length)); !status.ok()) return status;
  if (auto status = write(header); !status.ok()) return status;
  for (const absl::string_view piece : content.data) {
    if (auto status = write(piece); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsContent> ContentOf(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                                             const std::map<std::string, std::string>& metadata) {
  SafetensorsContent content{.header = {.metadata = metadata}};
  for (const SafetensorsTensor& tensor : tensors) {
    const auto elements = ElementCount(tensor.shape);
    if (!elements || static_cast<uint64_t>(*elements) != tensor.values.size()) {
      return TensorError(path, tensor.name,
                         absl::StrCat(tensor.values.size(), " values don't fit shape ", ShapeText(tensor.shape)));
    }
    content.header.tensors.push_back({.name = tensor.name, .dtype = "F32", .shape = tensor.shape});
    content.data.emplace_back(reinterpret_cast<const char*>(tensor.values.data()),
                              tensor.values.size() * sizeof(float));
  }
  return content;
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
      header_(std::move(other.header_)),
      has_checksums_(other.has_checksums_) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(source_, other.source_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_offset_, other.data_offset_);
  std::swap(header_, other.header_);
  std::swap(has_checksums_, other.has_checksums_);
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
  if (auto status = CheckHeader(length, std::move(text)); !status.ok()) return status;
  // All of its data, and what would be too much.
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header_.tensors) end = std::max(end, entry.end);
  if (auto status = Fill(end < kNoEnd - data_offset_ ? data_offset_ + end + 1 : kNoEnd); !status.ok()) return status;
  return CheckPlaces(path_, header_.tensors, bytes_ - data_offset_);
}

absl::Status SafetensorsFile::CheckHeader(uint64_t length, std::string text) {
  std::map<std::string, std::string>& metadata = header_.metadata;
  // All or none: else the key of one may be what has changed.
  const auto ours = metadata.lower_bound(kPrefix);
  if (ours == metadata.end() || !absl::StartsWith(ours->first, kPrefix)) return absl::OkStatus();
  const auto damaged = [this](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path_, ": its header has changed since it was written: ", what));
  };
  const auto at = HeaderChecksumAt(text);
  const auto stored = metadata.find(kHeaderChecksum);
  const auto list = metadata.find(kChecksums);
  if (!at || stored == metadata.end() || list == metadata.end()) return damaged("it lacks its checksum");
  text.replace(*at, kChecksumDigits, kNoChecksum);
  if (Digits(Checksum(text, Checksum(LengthBytes(length)))) != stored->second) return damaged("its checksum differs");
  const std::vector<std::string> checksums =
      list->second.empty() ? std::vector<std::string>() : absl::StrSplit(list->second, ',');
  if (checksums.size() != header_.tensors.size()) return damaged("it has not one checksum a tensor");
  for (size_t i = 0; i < checksums.size(); ++i) {
    uint32_t checksum = 0;
    if (!absl::SimpleHexAtoi(checksums[i], &checksum)) return damaged("a checksum is no number");
    header_.tensors[i].checksum = checksum;
  }
  metadata.erase(stored);
  metadata.erase(list);
  has_checksums_ = true;
  return absl::OkStatus();
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
  return Read(tensor,
              {absl::MakeSpan(reinterpret_cast<char*>(values.data()), static_cast<size_t>(tensor.end - tensor.begin))});
}

absl::Status SafetensorsFile::Read(const SafetensorsEntry& tensor, absl::Span<const absl::Span<char>> pieces) const {
  uint64_t offset = tensor.begin;
  uint32_t checksum = 0;
  for (absl::Span<char> piece : pieces) {
    // In parts that are still in the cache when their checksum is made.
    for (; !piece.empty(); piece.remove_prefix(std::min<uint64_t>(kReadBytes, piece.size()))) {
      const absl::Span<char> part = piece.subspan(0, kReadBytes);
      if (auto status = ReadBytes(data_offset_ + offset, part.data(), part.size()); !status.ok()) return status;
      offset += part.size();
      if (tensor.checksum.has_value()) checksum = Checksum({part.data(), part.size()}, checksum);
    }
  }
  if (offset != tensor.end) {
    return TensorError(path_, tensor.name,
                       absl::StrCat("it has ", tensor.end - tensor.begin, " bytes, not ", offset - tensor.begin));
  }
  if (tensor.checksum.has_value() && checksum != *tensor.checksum) {
    return absl::DataLossError(absl::StrCat(path_, ": tensor '", Quoted(tensor.name), "' (bytes ",
                                            data_offset_ + tensor.begin, " to ", data_offset_ + tensor.end,
                                            ") has changed since it was written: its checksum differs"));
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensorsContent(const std::string& path, SafetensorsContent content) {
  const auto header = MakeHeader(path, &content);
  if (!header.ok()) return header.status();
  auto file = WholeFile::Open(path);
  if (!file.ok()) return file.status();
  auto status = WriteAll(*header, content, [&](absl::string_view bytes) { return file->Write(bytes); });
  return status.ok() ? file->Publish() : status;
}

absl::Status WriteSafetensorsContent(std::ostream* out, SafetensorsContent content) {
  const auto header = MakeHeader(kStandardOutput, &content);
  if (!header.ok()) return header.status();
  return WriteAll(*header, content, [&](absl::string_view bytes) {
    out->write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return out->flush() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(kStandardOutput, ": can't write"));
  });
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  auto content = ContentOf(path, tensors, metadata);
  return content.ok() ? WriteSafetensorsContent(path, *std::move(content)) : content.status();
}

absl::Status WriteSafetensors(std::ostream* out, const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  auto content = ContentOf(kStandardOutput, tensors, metadata);
  return content.ok() ? WriteSafetensorsContent(out, *std::move(content)) : content.status();
}

}  // namespace paramd
