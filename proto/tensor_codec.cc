#include "proto/tensor_codec.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <climits>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace paramd {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// ExchangeRequest and ExchangeReply.
constexpr int kHeaderField = 1;
constexpr int kChunkField = 2;
// Chunk.
constexpr int kOffsetField = 1;
constexpr int kDataField = 2;
constexpr int kSharedBeginField = 3;
constexpr int kSharedFloatsField = 4;

constexpr uint32_t LengthDelimited(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr uint32_t Varint(int field) { return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT); }

size_t VarintSize(uint64_t value) { return CodedOutputStream::VarintSize64(value); }

// Longer than what stands beside the header's own bytes: its tag and length, and those of a chunk.
constexpr size_t kFramingBytes = 96;

// A message but for its floats, written straight to memory: of small exchanges it is most of the work.
// Thread-compatible.
class Encoder {
 public:
  explicit Encoder(const google::protobuf::MessageLite* header)
      : bytes_((header != nullptr ? header->ByteSizeLong() : 0) + kFramingBytes, '\0'), end_(begin()) {
    if (header == nullptr) return;
    Tag(LengthDelimited(kHeaderField));
    Number(static_cast<uint64_t>(header->GetCachedSize()));
    end_ = header->SerializeWithCachedSizesToArray(end_);
  }

  void Tag(uint32_t tag) { end_ = CodedOutputStream::WriteTagToArray(tag, end_); }
  void Number(uint64_t value) { end_ = CodedOutputStream::WriteVarint64ToArray(value, end_); }

  grpc::Slice Finish() { return grpc::Slice(bytes_.data(), static_cast<size_t>(end_ - begin())); }

 private:
  uint8_t* begin() { return reinterpret_cast<uint8_t*>(bytes_.data()); }

  std::string bytes_;
  uint8_t* end_;
};

absl::Status Malformed() {
  return absl::InvalidArgumentError(
      "a message of the exchange stream is not valid protobuf; the peer speaks another "
      "protocol, or the bytes were damaged on the way");
}

struct Range {
  size_t begin = 0;
  size_t size = 0;
};

// CodedInputStream drops the upper bits of lengths and tags that are too long, and takes 0 for a field's number. Like
// protobuf's own parser, these refuse that.

bool ReadLength(CodedInputStream* in, int* length) {
  uint64_t value;
  if (!in->ReadVarint64(&value) || value > INT_MAX) return false;
  *length = static_cast<int>(value);
  return true;
}

// False if there is no valid tag; `tag` is 0 at the end of the message.
bool ReadTag(CodedInputStream* in, uint32_t* tag) {
  const int begin = in->CurrentPosition();
  *tag = in->ReadTag();
  if (*tag == 0) return in->ConsumedEntireMessage();
  return in->CurrentPosition() - begin <= 5 && WireFormatLite::GetTagFieldNumber(*tag) > 0;
}

bool SkipField(CodedInputStream* in, uint32_t tag) {
  if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    int length;
    return ReadLength(in, &length) && in->Skip(length);
  }
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_START_GROUP) {
    return WireFormatLite::SkipField(in, tag);
  }
  if (!in->IncrementRecursionDepth()) return false;
  const uint32_t end = tag - WireFormatLite::WIRETYPE_START_GROUP + WireFormatLite::WIRETYPE_END_GROUP;
  uint32_t inner;
  while (ReadTag(in, &inner) && inner != end) {
    if (inner == 0 || !SkipField(in, inner)) return false;
  }
  in->DecrementRecursionDepth();
  return inner == end;
}

bool ParseChunk(CodedInputStream* in, DecodedExchange* decoded, Range* data) {
  int length;
  if (!ReadLength(in, &length)) return false;
  const auto outer = in->PushLimit(length);
  uint32_t tag;
  bool valid;
  while ((valid = ReadTag(in, &tag)) && tag != 0) {
    if (tag == Varint(kOffsetField)) {
      if (!in->ReadVarint64(&decoded->offset)) return false;
    } else if (tag == Varint(kSharedBeginField)) {
      if (!in->ReadVarint64(&decoded->shared_begin)) return false;
    } else if (tag == Varint(kSharedFloatsField)) {
      if (!in->ReadVarint64(&decoded->shared_floats)) return false;
    } else if (tag == LengthDelimited(kDataField)) {
      int size;
      if (!ReadLength(in, &size)) return false;
      data->begin = static_cast<size_t>(in->CurrentPosition());
      data->size = static_cast<size_t>(size);
      if (!in->Skip(size)) return false;
    } else if (!SkipField(in, tag)) {
      return false;
    }
  }
  if (!valid || in->BytesUntilLimit() != 0) return false;
  in->PopLimit(outer);
  return true;
}

// The part of `slices` that is in `range`.
std::vector<std::string_view> Cut(const std::vector<grpc::Slice>& slices, Range range) {
  std::vector<std::string_view> cut;
  size_t begin = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t end = begin + slice.size();
    const size_t from = std::max(begin, range.begin);
    const size_t to = std::min(end, range.begin + range.size);
    if (from < to) cut.emplace_back(reinterpret_cast<const char*>(slice.begin()) + (from - begin), to - from);
    begin = end;
  }
  return cut;
}

}  // namespace

grpc::ByteBuffer EncodeExchange(const google::protobuf::MessageLite* header, uint64_t offset, const grpc::Slice* data) {
  Encoder out(header);
  if (data != nullptr) {
    out.Tag(LengthDelimited(kChunkField));
    out.Number(1 + VarintSize(offset) + 1 + VarintSize(data->size()) + data->size());
    out.Tag(Varint(kOffsetField));
    out.Number(offset);
    out.Tag(LengthDelimited(kDataField));
    out.Number(data->size());
  }
  const grpc::Slice slices[] = {out.Finish(), data != nullptr ? *data : grpc::Slice()};
  return grpc::ByteBuffer(slices, data != nullptr ? 2 : 1);
}

grpc::ByteBuffer EncodeSharedExchange(const google::protobuf::MessageLite* header, uint64_t offset, uint64_t begin,
                                      uint64_t floats) {
  Encoder out(header);
  out.Tag(LengthDelimited(kChunkField));
  out.Number(1 + VarintSize(offset) + 1 + VarintSize(begin) + 1 + VarintSize(floats));
  out.Tag(Varint(kOffsetField));
  out.Number(offset);
  out.Tag(Varint(kSharedBeginField));
  out.Number(begin);
  out.Tag(Varint(kSharedFloatsField));
  out.Number(floats);
  const grpc::Slice slice = out.Finish();
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status DecodeExchange(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* header, DecodedExchange* decoded) {
  Range data;
  std::string header_bytes;
  {
    grpc::ProtoBufferReader reader(buffer);
    if (!reader.status().ok()) return Malformed();
    CodedInputStream in(&reader);
    uint32_t tag;
    bool valid;
    while ((valid = ReadTag(&in, &tag)) && tag != 0) {
      if (tag == LengthDelimited(kHeaderField)) {
        int length;
        if (!ReadLength(&in, &length) || !in.ReadString(&header_bytes, length) ||
            !header->MergeFromString(header_bytes)) {
          return Malformed();
        }
        decoded->has_header = true;
      } else if (tag == LengthDelimited(kChunkField)) {
        if (decoded->has_chunk || !ParseChunk(&in, decoded, &data)) return Malformed();
        decoded->has_chunk = true;
      } else if (!SkipField(&in, tag)) {
        return Malformed();
      }
    }
    if (!valid) return Malformed();
  }
  if (decoded->has_chunk) {
    auto slices = std::make_shared<std::vector<grpc::Slice>>();
    if (!buffer->Dump(slices.get()).ok()) return Malformed();
    decoded->data = Cut(*slices, data);
    decoded->owner_bytes = buffer->Length();
    decoded->owner = std::move(slices);
  }
  return absl::OkStatus();
}

}  // namespace paramd
