#include "tests/fuzz/resealed.h"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "state/log_segment.h"
#include "state/safetensors_header.h"

namespace paramd {
namespace {

uint32_t Checksum(uint32_t begin, std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32(begin, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::string Digits(uint32_t checksum) { return absl::StrCat(absl::Hex(checksum, absl::kZeroPad8)); }

// Puts `value` where that of a key of the metadata is.
bool Replace(const std::string& key, const std::string& value, std::string* header) {
  const std::string quoted = absl::StrCat("\"", key, "\":\"");
  const size_t begin = header->find(quoted);
  const size_t end = begin == std::string::npos ? begin : header->find('"', begin + quoted.size());
  if (end == std::string::npos) return false;
  header->replace(begin + quoted.size(), end - begin - quoted.size(), value);
  return true;
}

}  // namespace

std::string ResealedSegment(std::string_view input) {
  std::string bytes(input);
  const auto number = [&](size_t at, auto* to) { std::memcpy(to, &bytes[at], sizeof(*to)); };
  const auto crc = [&](uint32_t begin, size_t at, size_t length) {
    return Checksum(begin, std::string_view(bytes).substr(at, length));
  };
  const auto seal = [&](size_t at, uint32_t sum) { std::memcpy(&bytes[at], &sum, sizeof(sum)); };
  if (bytes.size() < kSegmentHeaderBytes) return bytes;
  seal(24, crc(0, 0, 24));
  for (size_t at = kSegmentHeaderBytes; bytes.size() - at >= kRecordHeaderBytes;) {
    uint32_t head = 0;
    uint64_t payload = 0;
    number(at + 4, &head);
    number(at + 8, &payload);
    const uint32_t sum = crc(crc(0, 8, 8), at + 4, kRecordHeaderBytes - 4);
    seal(at, sum);
    const size_t body = at + kRecordHeaderBytes;
    if (head == 0 && payload == 0) {
      at = body;
      continue;
    }
    const size_t left = bytes.size() - body;
    if (payload > left || head > left - payload || left - payload - head < 4) break;
    const size_t length = head + static_cast<size_t>(payload);
    seal(body + length, crc(sum, body, length));
    at = (body + length + 4 + 7) / 8 * 8;
    if (at > bytes.size()) break;
  }
  return bytes;
}

std::string ResealedTensors(std::string_view input) {
  const std::string unchanged(input);
  uint64_t length = 0;
  if (input.size() < sizeof(length)) return unchanged;
  std::memcpy(&length, input.data(), sizeof(length));
  input.remove_prefix(sizeof(length));
  if (length > input.size()) return unchanged;
  std::string header(input.substr(0, length));
  const std::string_view data = input.substr(length);
  const auto parsed = ParseSafetensorsHeader(header);
  if (!parsed.ok()) return unchanged;
  std::vector<std::string> checksums;
  for (const SafetensorsEntry& tensor : parsed->tensors) {
    if (tensor.begin > tensor.end || tensor.end > data.size()) return unchanged;
    checksums.push_back(Digits(Checksum(0, data.substr(tensor.begin, tensor.end - tensor.begin))));
  }
  if (!Replace("paramd.checksums", absl::StrJoin(checksums, ","), &header)) return unchanged;
  if (!Replace("paramd.header_checksum", Digits(0), &header)) return unchanged;
  length = header.size();
  const std::string begin(reinterpret_cast<const char*>(&length), sizeof(length));
  Replace("paramd.header_checksum", Digits(Checksum(Checksum(0, begin), header)), &header);
  return begin + header + std::string(data);
}

}  // namespace paramd
